// Implements the C functions for segments and endpoints, which clients call. Collective work goes to
// segments.cpp, the memory of created segments to created_memory.cpp.
#include <hydrant/gasnet/system.h>

#include "am/call/in_call.hpp"
#include "am/job/endpoints.hpp"
#include "am/job/job.hpp"
#include "am/job/resolve.hpp"
#include "am/segment/created_memory.hpp"
#include "am/segment/neighbourhood.hpp"
#include "am/segment/segment_size.hpp"
#include "am/segment/segments.hpp"
#include "firehose/base/thread.hpp"

#include <atomic>
#include <bitset>
#include <cstdio>
#include <gasnet_config.h>
#include <new>
#include <span>

using namespace hydrant;

namespace {

// A segment made by gex_Segment_Create(); `mapped` is true if the library allocated its memory.
struct OwnSegment : hydrant_segment {
  bool mapped = false;
  OwnSegment* next = nullptr;  // of the spare ones
};

// Destroyed segments, for the next ones: a thread that looks for memory in the segments of this process may
// still read them.
class SpareSegments {
 public:
  // Null: no memory.
  OwnSegment* take() noexcept {
    const MutexLock lock(mu_);
    if (first_ == nullptr) return new (std::nothrow) OwnSegment;
    OwnSegment* taken = first_;
    first_ = taken->next;
    return taken;
  }
  void give(OwnSegment* segment) noexcept {
    const MutexLock lock(mu_);
    segment->next = first_;
    first_ = segment;
  }

 private:
  Mutex mu_;
  OwnSegment* first_ HYDRANT_GUARDED_BY(mu_) = nullptr;
};
SpareSegments& spare_segments() noexcept {
  static constinit SpareSegments all;
  return all;
}

// Endpoints with this segment have none afterwards.
void unbind(gex_Segment_t segment) noexcept {
  const uint32_t count = endpoint_count();
  for (uint32_t index = 0; index < count; ++index) {
    gex_Segment_t bound = segment;
    std::atomic_ref<gex_Segment_t>(find_endpoint(index)->segment)
        .compare_exchange_strong(bound, GEX_SEGMENT_INVALID, std::memory_order_acq_rel);
  }
}

// With GASNET_SEGMENT_EVERYTHING the primordial segments are visible after the attach, as in the other modes.
bool may_have_segments(uint32_t endpoint) noexcept {
  return job().segment_mode != kSegmentEverything || endpoint != 0 ||
         job().state.load(std::memory_order_acquire) == JobState::kAttached;
}

bool is_team(gex_TM_t tm) noexcept {
  return tm != GEX_TM_INVALID && (reinterpret_cast<uintptr_t>(tm) & 1) == 0;
}

// The arguments of gex_EP_PublishBoundSegment() that a member of the team may pass.
Status check_published(const gex_EP_t* eps, size_t num_eps, gex_Flags_t flags) noexcept {
  if (flags != 0) return fail(Status::kBadArg, "flags is not 0");
  if (eps == nullptr && num_eps != 0)
    return fail(Status::kBadArg, "eps is NULL, and num_eps is %zu", num_eps);
  std::bitset<GASNET_MAXEPS> named;
  for (size_t i = 0; i < num_eps; ++i) {
    if (!is_endpoint(eps[i])) return fail(Status::kBadArg, "eps[%zu] is no endpoint", i);
    if (named[eps[i]->index])
      return fail(Status::kBadArg, "eps[%zu] names endpoint %u a second time", i,
                  static_cast<unsigned>(eps[i]->index));
    named[eps[i]->index] = true;
  }
  return Status::kOk;
}

Status query_bound(gex_TM_t tm, gex_Rank_t member, void** owneraddr_p, void** localaddr_p,
                   uintptr_t* size_p) noexcept {
  SegmentAddress address;
  Rank rank = 0;
  if (!is_wired() || resolve(tm, member, &rank) != Status::kOk ||
      !may_have_segments(endpoints_of(tm).to) ||
      find_segment(rank, &address, true, endpoints_of(tm).to) != Status::kOk || address.size == 0)
    return Status::kBadArg;
  if (owneraddr_p != nullptr) *owneraddr_p = reinterpret_cast<void*>(address.addr);
  if (localaddr_p != nullptr) *localaddr_p = mapped_address(rank, address);
  if (size_p != nullptr) *size_p = address.size;
  return Status::kOk;
}

}  // namespace

extern "C" {

int gex_Segment_Attach(gex_Segment_t* segment_p, gex_TM_t tm, uintptr_t size) {
  const InCall in_call("gex_Segment_Attach");
  constexpr const char* kCall = "gex_Segment_Attach";
  Job& the_job = job();
  if (!is_wired()) return report(fail(Status::kNotInit, "call gex_Client_Init() first"), kCall);
  if (tm != &hydrant_world)
    return report(
        fail(Status::kBadArg, "the team is not the primordial one, which is the only team"), kCall);
  if (the_job.state.load(std::memory_order_acquire) == JobState::kAttached)
    return report(
        fail(Status::kResource, "a segment is attached already, which is the limit: attach once"),
        kCall);
  if (the_job.endpoint.segment != nullptr)
    return report(fail(Status::kBadArg, "the endpoint has a segment already"), kCall, true);
  const Status status = attach_segments(size, 0);
  if (status == Status::kOk && segment_p != nullptr) *segment_p = the_job.endpoint.segment;
  return report(status, kCall, true);
}

gex_Event_t gex_EP_QueryBoundSegmentNB(gex_TM_t tm, gex_Rank_t rank, void** owneraddr_p,
                                       void** localaddr_p, uintptr_t* size_p, gex_Flags_t flags) {
  const InCall in_call("gex_EP_QueryBoundSegmentNB", (flags & GEX_FLAG_IMMEDIATE) != 0
                                                         ? CallKind::kLocal
                                                         : CallKind::kCommunicates);
  SegmentAddress address;
  Rank peer = 0;
  if ((flags & GEX_FLAG_IMMEDIATE) != 0 && is_wired() && resolve(tm, rank, &peer) == Status::kOk &&
      find_segment(peer, &address, false, endpoints_of(tm).to) == Status::kNotReady) {
    return GEX_EVENT_NO_OP;
  }
  if (query_bound(tm, rank, owneraddr_p, localaddr_p, size_p) != Status::kOk && size_p != nullptr)
    *size_p = 0;
  return GEX_EVENT_INVALID;
}

int gex_Segment_QueryBound(gex_TM_t tm, gex_Rank_t rank, void** owneraddr_p, void** localaddr_p,
                           uintptr_t* size_p) {
  const InCall in_call("gex_Segment_QueryBound");
  return to_c(query_bound(tm, rank, owneraddr_p, localaddr_p, size_p));
}

int gasnet_getSegmentInfo(gasnet_seginfo_t* table, int numentries) {
  const InCall in_call("gasnet_getSegmentInfo", CallKind::kLocal);
  constexpr const char* kCall = "gasnet_getSegmentInfo";
  if (job().state.load(std::memory_order_acquire) != JobState::kAttached)
    return report(
        fail(Status::kNotInit,
             "no segment is attached: call gasnet_attach() or gex_Segment_Attach() first"),
        kCall);
  if (table == nullptr || numentries < 0)
    return report(
        fail(Status::kBadArg, "the table is NULL, or numentries is negative (%d)", numentries),
        kCall);
  for (int i = 0; i < numentries && static_cast<Rank>(i) < job().size(); ++i) {
    SegmentAddress address;
    if (const Status status = find_segment(static_cast<Rank>(i), &address); status != Status::kOk)
      return report(status, kCall);
    table[i] = {.addr = reinterpret_cast<void*>(address.addr), .size = address.size};
  }
  return GASNET_OK;
}

int gasnet_getNodeInfo(gasnet_nodeinfo_t* table, int numentries) {
  const InCall in_call("gasnet_getNodeInfo", CallKind::kLocal);
  constexpr const char* kCall = "gasnet_getNodeInfo";
  if (!is_wired()) return report(fail(Status::kNotInit, "call gasnet_init() first"), kCall);
  if (table == nullptr || numentries < 0)
    return report(
        fail(Status::kBadArg, "the table is NULL, or numentries is negative (%d)", numentries),
        kCall);
  for (int i = 0; i < numentries && static_cast<Rank>(i) < job().size(); ++i) {
    const auto rank = static_cast<Rank>(i);
    SegmentAddress address;
    (void)find_segment(rank, &address);
    const void* here = mapped_address(rank, address);
    RankLocation where;
    if (const Status status = find_location(rank, &where); status != Status::kOk)
      return report(status, kCall);
    table[i] = {.host = where.host,
                .supernode = where.supernode,
                .offset = here != nullptr ? static_cast<intptr_t>(
                                                reinterpret_cast<uintptr_t>(here) - address.addr)
                                          : 0};
  }
  return GASNET_OK;
}

uintptr_t gasnet_getMaxLocalSegmentSize(void) {
  if (job().segment_mode == kSegmentEverything) return UINTPTR_MAX;
  return is_wired() ? max_agreed_segment() : max_local_segment();
}
uintptr_t gasnet_getMaxGlobalSegmentSize(void) {
  if (job().segment_mode == kSegmentEverything) return UINTPTR_MAX;
  return is_wired() ? max_global_segment() : 0;
}

// ---- segments of the client's own memory ----

int gex_Segment_Create(gex_Segment_t* segment_p, gex_Client_t client, gex_Addr_t addr,
                       uintptr_t size, gex_MK_t kind, gex_Flags_t flags) {
  const InCall in_call("gex_Segment_Create");
  constexpr const char* kCall = "gex_Segment_Create";
  const Job& the_job = job();
  if (!is_wired() || client != &the_job.client)
    return report(fail(Status::kNotInit, "the client handle is invalid"), kCall);
  if (segment_p == nullptr || size == 0 || flags != 0)
    return report(fail(Status::kBadArg, "segment_p is NULL, size is 0, or flags is not 0"), kCall);
  if (kind != GEX_MK_HOST)
    return report(fail(Status::kBadArg, "only GEX_MK_HOST is supported"), kCall);
  const auto first = reinterpret_cast<uintptr_t>(addr);
  if (addr != nullptr && first + size - 1 < first)
    return report(fail(Status::kBadArg, "%zu bytes at %#zx wrap around the address space", size,
                       static_cast<size_t>(first)),
                  kCall);
  OwnSegment* segment = spare_segments().take();
  if (segment == nullptr) return report(fail(Status::kResource, "no memory for a segment"), kCall);
  segment->mapped = addr == nullptr;
  if (addr == nullptr) {
    const Status status = allocate_created_segment(size, &addr);
    if (status != Status::kOk) {
      spare_segments().give(segment);
      return report(status, kCall);
    }
    if (the_job.hooks.segment_memory_begins != nullptr)
      the_job.hooks.segment_memory_begins(addr, size);
  }
  segment->client = client;
  segment->flags = flags;
  segment->addr = addr;
  segment->size = size;
  segment->cdata = nullptr;
  *segment_p = segment;
  return GASNET_OK;
}

void gex_Segment_Destroy(gex_Segment_t segment, gex_Flags_t) {
  const InCall in_call("gex_Segment_Destroy");
  if (segment == GEX_SEGMENT_INVALID || segment == &job().segment)
    return;  // the job's segment lives as long as the process
  unbind(segment);
  auto* own = static_cast<OwnSegment*>(segment);
  if (job().hooks.segment_memory_ends != nullptr)
    job().hooks.segment_memory_ends(own->addr, own->size);
  if (own->mapped) free_created_segment(own->addr, own->size);
  spare_segments().give(own);
}

int gex_EP_BindSegment(gex_EP_t ep, gex_Segment_t segment, gex_Flags_t flags) {
  const InCall in_call("gex_EP_BindSegment");
  constexpr const char* kCall = "gex_EP_BindSegment";
  Job& the_job = job();
  if (!is_wired()) return report(fail(Status::kNotInit, "call gex_Client_Init() first"), kCall);
  if (!is_endpoint(ep))
    return report(fail(Status::kBadArg, "the endpoint handle is invalid"), kCall);
  if (segment == GEX_SEGMENT_INVALID || segment->client != &the_job.client || flags != 0)
    return report(
        fail(Status::kBadArg, "the segment does not belong to this client, or flags is not 0"),
        kCall);
  const bool is_everything = the_job.segment_mode == kSegmentEverything && ep->index == 0;
  gex_Segment_t none = GEX_SEGMENT_INVALID;
  if (is_everything || !std::atomic_ref<gex_Segment_t>(ep->segment)
                            .compare_exchange_strong(none, segment, std::memory_order_acq_rel))
    return report(fail(Status::kBadArg, "the endpoint has a segment already"), kCall);
  return GASNET_OK;
}

int gex_EP_PublishBoundSegment(gex_TM_t tm, gex_EP_t* eps, size_t num_eps, gex_Flags_t flags) {
  const InCall in_call("gex_EP_PublishBoundSegment");
  constexpr const char* kCall = "gex_EP_PublishBoundSegment";
  if (!is_wired()) return report(fail(Status::kNotInit, "call gex_Client_Init() first"), kCall);
  if (!is_team(tm) || is_destroyed_team(tm))
    return report(fail(Status::kBadArg, "tm is not a team, or was destroyed"), kCall);
  const Status status = check_published(eps, num_eps, flags);
  char why[256];
  (void)snprintf(why, sizeof why, "%s", status == Status::kOk ? "" : last_error_text());
  // A member with wrong arguments takes part with nothing, because the others wait for it.
  publish_segments(tm, status == Status::kOk ? std::span<const gex_EP_t>(eps, num_eps)
                                             : std::span<const gex_EP_t>());
  return status == Status::kOk ? GASNET_OK : report(fail(status, "%s", why), kCall, true);
}

int gex_EP_Create(gex_EP_t* ep_p, gex_Client_t client, gex_EP_Capabilities_t caps,
                  gex_Flags_t flags) {
  const InCall in_call("gex_EP_Create");
  constexpr const char* kCall = "gex_EP_Create";
  if (!is_wired() || client != &job().client)
    return report(fail(Status::kNotInit, "the client handle is invalid"), kCall);
  if (ep_p == nullptr) return report(fail(Status::kBadArg, "ep_p is NULL"), kCall);
  return report(create_endpoint(caps, flags, ep_p), kCall);
}

}  // extern "C"
