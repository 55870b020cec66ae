// Implements GASNet-1's calls that have no equivalent in GASNet-EX. They use the same job, handler table and
// segments.
#include <gasnet.h>

#include "am/call/in_call.hpp"
#include "am/call/thread_state.hpp"
#include "am/handler/token.hpp"
#include "am/job/job.hpp"
#include "am/message/send.hpp"
#include "am/segment/segments.hpp"
#include "am/start_job.hpp"
#include "firehose/base/cancellation.hpp"

#include <algorithm>
#include <vector>

using namespace hydrant;

namespace {

// GASNet-1's table entries have neither a category nor a number of arguments.
constexpr gex_Flags_t kAnyUse = GEX_FLAG_AM_SHORT | GEX_FLAG_AM_MEDLONG | GEX_FLAG_AM_REQREP;

Status add_legacy_handlers(gasnet_handlerentry_t* table, int count) noexcept {
  std::vector<gex_AM_Entry_t> entries;
  entries.reserve(static_cast<size_t>(std::max(count, 0)));
  for (int i = 0; i < count; ++i) {
    entries.push_back({.gex_index = table[i].index,
                       .gex_fnptr = table[i].fnptr,
                       .gex_flags = kAnyUse,
                       .gex_nargs = HandlerTable::kAnyNumber,
                       .gex_cdata = nullptr,
                       .gex_name = nullptr});
  }
  if (const Status status = job().handlers.add(entries.data(), entries.size());
      status != Status::kOk)
    return status;
  for (int i = 0; i < count; ++i) table[i].index = entries[static_cast<size_t>(i)].gex_index;
  return Status::kOk;
}

}  // namespace

extern "C" {

int hydrant_gasnet1_init(int* argc, char*** argv, const hydrant_client_info* info) {
  const CancellationDisabled guard;
  if (is_wired())
    return report(fail(Status::kNotInit, "it was called before; call it once"), "gasnet_init");
  Status status = start_job(argc, argv, *info);
  if (status == Status::kOk) status = make_client("LEGACY", GEX_FLAG_USES_GASNET1);
  return report(status, "gasnet_init", true);
}

int gasnet_attach(gasnet_handlerentry_t* table, int numentries, uintptr_t segsize,
                  uintptr_t minheapoffset) {
  const InCall in_call("gasnet_attach");
  const CancellationDisabled guard;
  constexpr const char* kCall = "gasnet_attach";
  if (!is_wired()) return report(fail(Status::kNotInit, "call gasnet_init() first"), kCall);
  if (job().state.load(std::memory_order_acquire) == JobState::kAttached)
    return report(fail(Status::kNotInit, "it was called before; call it once"), kCall);
  if (numentries < 0 || (table == nullptr && numentries != 0))
    return report(fail(Status::kBadArg, "invalid handler table: %d entries at %p", numentries,
                       static_cast<void*>(table)),
                  kCall);
  if (const Status status = add_legacy_handlers(table, numentries); status != Status::kOk)
    return report(status, kCall);
  if (segsize == 0) segsize = GASNET_PAGESIZE;
  return report(attach_segments(segsize, minheapoffset), kCall, true);
}

void gasnet_QueryGexObjects(gex_Client_t* client_p, gex_EP_t* endpoint_p, gex_TM_t* tm_p,
                            gex_Segment_t* segment_p) {
  Job& the_job = job();
  if (client_p != nullptr) *client_p = &the_job.client;
  if (endpoint_p != nullptr) *endpoint_p = &the_job.endpoint;
  if (tm_p != nullptr) *tm_p = &hydrant_world;
  if (segment_p != nullptr) *segment_p = the_job.endpoint.segment;
}

size_t hydrant_am_max_medium(void) { return max_medium(); }

int gasnet_AMGetMsgSource(gex_Token_t token, gex_Rank_t* srcindex) {
  if (token == nullptr || srcindex == nullptr)
    return report(fail(Status::kBadArg, "token or srcindex is NULL"), "gasnet_AMGetMsgSource");
  *srcindex = token->from;
  return GASNET_OK;
}

// Handlers run only inside library calls, so a no-interrupt section only has to delay messages to this
// process itself.
void gasnet_hold_interrupts(void) {
  const InCall in_call("gasnet_hold_interrupts", CallKind::kLocal);
  ++own_thread_state().held_interrupts;
}
void gasnet_resume_interrupts(void) {
  const InCall in_call("gasnet_resume_interrupts", CallKind::kLocal);
  uint32_t& held = own_thread_state().held_interrupts;
  if (held == 0) fatal("gasnet_resume_interrupts without gasnet_hold_interrupts");
  if (--held == 0 && handler_depth == 0) run_deferred_messages();
}

}  // extern "C"
