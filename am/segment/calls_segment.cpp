// Implements the C functions for segments, which clients call. Collective work goes to segments.cpp, memory
// of the client's own segments to rdma/guarded_memory.hpp.
#include <hydrant/gasnet/system.h>

#include "am/job/job.hpp"
#include "am/job/resolve.hpp"
#include "am/progress/in_call.hpp"
#include "am/segment/neighbourhood.hpp"
#include "am/segment/segment_size.hpp"
#include "am/segment/segments.hpp"
#include "firehose/base/cancellation.hpp"
#include "firehose/base/errno_text.hpp"
#include "rdma/guarded_memory.hpp"

#include <cerrno>
#include <gasnet_config.h>
#include <new>
#include <sys/mman.h>

using namespace hydrant;

namespace {

// A segment made by gex_Segment_Create(); `mapped` is true if the library allocated its memory.
struct OwnSegment : hydrant_segment {
  bool mapped = false;
};

// With GASNET_SEGMENT_EVERYTHING segments are visible after the attach, as in the other modes.
bool may_have_segments() noexcept {
  return job().segment_mode != kSegmentEverything ||
         job().state.load(std::memory_order_acquire) == JobState::kAttached;
}

// Allocates whole pages between guard areas.
Status map_private(uintptr_t size, void** addr) noexcept {
  const size_t bytes = (size + GASNET_PAGESIZE - 1) & ~size_t{GASNET_PAGESIZE - 1};
  std::byte* start = nullptr;
  if (bytes < size)
    return fail(Status::kResource,
                "a segment of %zu bytes is more than the address space: ask for less", size);
  if (const Status status = reserve_guarded(bytes, GASNET_PAGESIZE, GuardSize::kRoomy,
                                            {.what = "segment", .rank = job().rank()}, &start);
      status != Status::kOk)
    return add_context(status, "%s", remedy_of_no_room(bytes, "ask for less"));
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (mmap(start, bytes, PROT_READ | PROT_WRITE, kFlags, -1, 0) == MAP_FAILED) {
    const int error = errno;
    (void)release_guarded(start);
    return fail(Status::kResource, "the system has no memory for a segment of %zu bytes: %s; %s",
                size, errno_text(error),
                remedy_of_no_room(bytes, "ask for less, or raise ulimit -v"));
  }
  *addr = start;
  return Status::kOk;
}

bool is_team(gex_TM_t tm) noexcept {
  return tm != GEX_TM_INVALID && (reinterpret_cast<uintptr_t>(tm) & 1) == 0;
}

Status query_bound(gex_TM_t tm, gex_Rank_t member, void** owneraddr_p, void** localaddr_p,
                   uintptr_t* size_p) noexcept {
  SegmentAddress address;
  Rank rank = 0;
  if (!is_wired() || resolve(tm, member, &rank) != Status::kOk || !may_have_segments() ||
      find_segment(rank, &address) != Status::kOk || address.size == 0)
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
  const CancellationDisabled guard;
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
  const CancellationDisabled guard;
  SegmentAddress address;
  Rank peer = 0;
  if ((flags & GEX_FLAG_IMMEDIATE) != 0 && is_wired() && resolve(tm, rank, &peer) == Status::kOk &&
      find_segment(peer, &address, false) == Status::kNotReady) {
    return GEX_EVENT_NO_OP;
  }
  if (query_bound(tm, rank, owneraddr_p, localaddr_p, size_p) != Status::kOk && size_p != nullptr)
    *size_p = 0;
  return GEX_EVENT_INVALID;
}

int gex_Segment_QueryBound(gex_TM_t tm, gex_Rank_t rank, void** owneraddr_p, void** localaddr_p,
                           uintptr_t* size_p) {
  const InCall in_call("gex_Segment_QueryBound");
  const CancellationDisabled guard;
  return to_c(query_bound(tm, rank, owneraddr_p, localaddr_p, size_p));
}

int gasnet_getSegmentInfo(gasnet_seginfo_t* table, int numentries) {
  const InCall in_call("gasnet_getSegmentInfo", CallKind::kLocal);
  const CancellationDisabled guard;
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
  const CancellationDisabled guard;
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
  const CancellationDisabled guard;
  constexpr const char* kCall = "gex_Segment_Create";
  if (!is_wired() || client != &job().client)
    return report(fail(Status::kNotInit, "the client handle is invalid"), kCall);
  if (segment_p == nullptr || size == 0 || flags != 0)
    return report(fail(Status::kBadArg, "segment_p is NULL, size is 0, or flags is not 0"), kCall);
  if (kind != GEX_MK_HOST)
    return report(fail(Status::kUnsupported, "only GEX_MK_HOST is supported"), kCall);
  auto* segment = new (std::nothrow) OwnSegment;
  if (segment == nullptr) return report(fail(Status::kResource, "no memory for a segment"), kCall);
  if (addr == nullptr) {
    const Status status = map_private(size, &addr);
    if (status != Status::kOk) {
      delete segment;
      return report(status, kCall);
    }
    segment->mapped = true;
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
  const CancellationDisabled guard;
  if (segment == GEX_SEGMENT_INVALID || segment == &job().segment)
    return;  // the job's segment lives as long as the process
  if (segment == job().endpoint.segment) {
    report(fail(Status::kBadArg, "the segment is bound to an endpoint"), "gex_Segment_Destroy");
    return;
  }
  auto* own = static_cast<OwnSegment*>(segment);
  if (own->mapped && !release_guarded(static_cast<std::byte*>(own->addr)))
    munmap(own->addr, own->size);
  delete own;
}

int gex_EP_BindSegment(gex_EP_t ep, gex_Segment_t segment, gex_Flags_t flags) {
  const InCall in_call("gex_EP_BindSegment");
  constexpr const char* kCall = "gex_EP_BindSegment";
  Job& the_job = job();
  if (!is_wired()) return report(fail(Status::kNotInit, "call gex_Client_Init() first"), kCall);
  if (ep != &the_job.endpoint)
    return report(fail(Status::kBadArg, "the endpoint handle is invalid"), kCall);
  if (segment == GEX_SEGMENT_INVALID || segment->client != &the_job.client || flags != 0)
    return report(
        fail(Status::kBadArg, "the segment does not belong to this client, or flags is not 0"),
        kCall);
  if (the_job.segment_mode == kSegmentEverything || ep->segment != nullptr)
    return report(fail(Status::kBadArg, "the endpoint has a segment already"), kCall);
  ep->segment = segment;
  return GASNET_OK;
}

int gex_EP_PublishBoundSegment(gex_TM_t tm, gex_EP_t* eps, size_t num_eps, gex_Flags_t flags) {
  const InCall in_call("gex_EP_PublishBoundSegment");
  const CancellationDisabled guard;
  constexpr const char* kCall = "gex_EP_PublishBoundSegment";
  Job& the_job = job();
  if (!is_wired()) return report(fail(Status::kNotInit, "call gex_Client_Init() first"), kCall);
  if (!is_team(tm) || flags != 0 || num_eps > 1 || (num_eps == 1 && eps == nullptr))
    return report(
        fail(Status::kBadArg, "tm is not a team, flags is not 0, or num_eps is more than 1"),
        kCall);
  if (num_eps == 1 && eps[0] != &the_job.endpoint)
    return report(fail(Status::kBadArg, "the endpoint handle is invalid"), kCall);
  return report(publish_segments(tm, num_eps == 1), kCall, true);
}

int gex_EP_Create(gex_EP_t*, gex_Client_t, gex_EP_Capabilities_t, gex_Flags_t) {
  const InCall in_call("gex_EP_Create");
  return report(
      fail(Status::kResource, "the limit of %d endpoint (GASNET_MAXEPS) is reached", GASNET_MAXEPS),
      "gex_EP_Create");
}

}  // extern "C"
