// GASNet-1's calls that have no twin in GASNet-EX.
#include <gasnet.h>

#include "am/job.hpp"
#include "am/segments.hpp"
#include "am/send.hpp"
#include "am/thread_state.hpp"
#include "am/token.hpp"

#include <algorithm>
#include <vector>

using namespace hydrant;

namespace {

// GASNet-1's rows say neither category nor number of arguments.
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
  if (is_wired()) return report(fail(Status::kNotInit, "it was called before"), "gasnet_init");
  Status status = start_job(argc, argv, *info);
  if (status == Status::kOk) status = make_client("LEGACY", GEX_FLAG_USES_GASNET1);
  return report(status, "gasnet_init", true);
}

int gasnet_attach(gasnet_handlerentry_t* table, int numentries, uintptr_t segsize,
                  uintptr_t minheapoffset) {
  constexpr const char* kCall = "gasnet_attach";
  if (!is_wired()) return report(fail(Status::kNotInit, "gasnet_init comes first"), kCall);
  if (job().state.load(std::memory_order_acquire) == JobState::kAttached)
    return report(fail(Status::kNotInit, "it was called before"), kCall);
  if (numentries < 0 || (table == nullptr && numentries != 0))
    return report(fail(Status::kBadArg, "%d handlers in a table at %p", numentries,
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

size_t hydrant_least_medium(void) { return max_medium(); }

int gasnet_AMGetMsgSource(gex_Token_t token, gex_Rank_t* srcindex) {
  if (token == nullptr || srcindex == nullptr)
    return report(fail(Status::kBadArg, "no token, or no place for the rank"),
                  "gasnet_AMGetMsgSource");
  *srcindex = token->from;
  return GASNET_OK;
}

// Handlers run in calls of the library only: messages to this process itself are all there is to hold back.
void gasnet_hold_interrupts(void) { ++own_thread_state().held_interrupts; }
void gasnet_resume_interrupts(void) {
  uint32_t& held = own_thread_state().held_interrupts;
  if (held == 0) fatal("gasnet_resume_interrupts without gasnet_hold_interrupts");
  if (--held == 0 && handler_depth == 0) run_held_messages();
}

}  // extern "C"
