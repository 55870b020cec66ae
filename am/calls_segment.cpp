// The C functions of segments.
#include <hydrant/gasnet/system.h>

#include "am/job.hpp"
#include "am/neighbourhood.hpp"
#include "am/segment_size.hpp"
#include "am/segments.hpp"
#include "firehose/base/errno_text.hpp"

#include <cerrno>
#include <new>
#include <sys/mman.h>

using namespace hydrant;

namespace {

// A segment that the client made: its own memory, or ours.
struct OwnSegment : hydrant_segment {
  bool mapped = false;
};

// Where all memory is one, it is shown from the attach on, as others are.
bool may_have_segments() noexcept {
  return job().segment_mode != kEverything ||
         job().state.load(std::memory_order_acquire) == JobState::kAttached;
}

}  // namespace

extern "C" {

int gex_Segment_Attach(gex_Segment_t* segment_p, gex_TM_t tm, uintptr_t size) {
  constexpr const char* kCall = "gex_Segment_Attach";
  Job& the_job = job();
  if (!is_wired()) return report(fail(Status::kNotInit, "gex_Client_Init comes first"), kCall);
  if (tm != &hydrant_world)
    return report(fail(Status::kBadArg, "only over the primordial team"), kCall);
  if (the_job.state.load(std::memory_order_acquire) == JobState::kAttached)
    return report(fail(Status::kResource, "there is a segment already"), kCall);
  if (the_job.endpoint.segment != nullptr)
    return report(fail(Status::kBadArg, "the endpoint has a segment already"), kCall, true);
  const Status status = attach_segments(size, 0);
  if (status == Status::kOk && segment_p != nullptr) *segment_p = the_job.endpoint.segment;
  return report(status, kCall, true);
}

gex_Event_t gex_EP_QueryBoundSegmentNB(gex_TM_t tm, gex_Rank_t rank, void** owneraddr_p,
                                       void** localaddr_p, uintptr_t* size_p, gex_Flags_t flags) {
  SegmentPlace place;
  if ((flags & GEX_FLAG_IMMEDIATE) != 0 && is_wired() && rank < job().size() &&
      find_segment(rank, &place, false) == Status::kNotReady) {
    return GEX_EVENT_NO_OP;
  }
  if (gex_Segment_QueryBound(tm, rank, owneraddr_p, localaddr_p, size_p) != GASNET_OK &&
      size_p != nullptr) {
    *size_p = 0;
  }
  return GEX_EVENT_INVALID;
}

int gex_Segment_QueryBound(gex_TM_t, gex_Rank_t rank, void** owneraddr_p, void** localaddr_p,
                           uintptr_t* size_p) {
  SegmentPlace place;
  if (!is_wired() || rank >= job().size() || !may_have_segments() ||
      find_segment(rank, &place) != Status::kOk || place.size == 0) {
    return GASNET_ERR_BAD_ARG;
  }
  if (owneraddr_p != nullptr) *owneraddr_p = reinterpret_cast<void*>(place.addr);
  if (localaddr_p != nullptr) *localaddr_p = address_here(rank, place);
  if (size_p != nullptr) *size_p = place.size;
  return GASNET_OK;
}

int gasnet_getSegmentInfo(gasnet_seginfo_t* table, int numentries) {
  constexpr const char* kCall = "gasnet_getSegmentInfo";
  if (job().state.load(std::memory_order_acquire) != JobState::kAttached)
    return report(fail(Status::kNotInit, "segments are attached first"), kCall);
  if (table == nullptr || numentries < 0) return report(fail(Status::kBadArg, "no table"), kCall);
  for (int i = 0; i < numentries && static_cast<Rank>(i) < job().size(); ++i) {
    SegmentPlace place;
    if (const Status status = find_segment(static_cast<Rank>(i), &place); status != Status::kOk)
      return report(status, kCall);
    table[i] = {.addr = reinterpret_cast<void*>(place.addr), .size = place.size};
  }
  return GASNET_OK;
}

int gasnet_getNodeInfo(gasnet_nodeinfo_t* table, int numentries) {
  constexpr const char* kCall = "gasnet_getNodeInfo";
  if (!is_wired()) return report(fail(Status::kNotInit, "gasnet_init comes first"), kCall);
  if (table == nullptr || numentries < 0) return report(fail(Status::kBadArg, "no table"), kCall);
  for (int i = 0; i < numentries && static_cast<Rank>(i) < job().size(); ++i) {
    const auto rank = static_cast<Rank>(i);
    SegmentPlace place;
    (void)find_segment(rank, &place);
    const void* here = address_here(rank, place);
    table[i] = {.host = host_of(rank),
                .supernode = supernode_of(rank),
                .offset = here != nullptr ? static_cast<intptr_t>(
                                                reinterpret_cast<uintptr_t>(here) - place.addr)
                                          : 0};
  }
  return GASNET_OK;
}

uintptr_t gasnet_getMaxLocalSegmentSize(void) {
  return job().segment_mode == kEverything ? UINTPTR_MAX : max_local_segment();
}
uintptr_t gasnet_getMaxGlobalSegmentSize(void) {
  if (job().segment_mode == kEverything) return UINTPTR_MAX;
  return is_wired() ? max_global_segment() : 0;
}

// ---- segments of the client's own memory ----

int gex_Segment_Create(gex_Segment_t* segment_p, gex_Client_t client, gex_Addr_t addr,
                       uintptr_t size, gex_MK_t kind, gex_Flags_t flags) {
  constexpr const char* kCall = "gex_Segment_Create";
  if (!is_wired() || client != &job().client)
    return report(fail(Status::kNotInit, "no such client"), kCall);
  if (segment_p == nullptr || size == 0 || flags != 0)
    return report(fail(Status::kBadArg, "no place for the segment, no size, or unknown flags"),
                  kCall);
  if (kind != GEX_MK_HOST)
    return report(fail(Status::kUnsupported, "only GEX_MK_HOST is known"), kCall);
  auto* segment = new (std::nothrow) OwnSegment;
  if (segment == nullptr) return report(fail(Status::kResource, "no memory for a segment"), kCall);
  if (addr == nullptr) {
    addr = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (addr == MAP_FAILED) {
      delete segment;
      return report(fail(Status::kResource, "no memory for a segment of %zu bytes: %s", size,
                         errno_text(errno)),
                    kCall);
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
  if (segment == GEX_SEGMENT_INVALID || segment == &job().segment)
    return;  // the job's own lives as long
  if (segment == job().endpoint.segment) {
    report(fail(Status::kBadArg, "the segment is bound to an endpoint"), "gex_Segment_Destroy");
    return;
  }
  auto* own = static_cast<OwnSegment*>(segment);
  if (own->mapped) munmap(own->addr, own->size);
  delete own;
}

int gex_EP_BindSegment(gex_EP_t ep, gex_Segment_t segment, gex_Flags_t flags) {
  constexpr const char* kCall = "gex_EP_BindSegment";
  Job& the_job = job();
  if (!is_wired() || ep != &the_job.endpoint)
    return report(fail(Status::kNotInit, "no such endpoint"), kCall);
  if (segment == GEX_SEGMENT_INVALID || segment->client != &the_job.client || flags != 0)
    return report(fail(Status::kBadArg, "no segment of this client, or unknown flags"), kCall);
  if (the_job.segment_mode == kEverything || ep->segment != nullptr)
    return report(fail(Status::kBadArg, "the endpoint has a segment already"), kCall);
  ep->segment = segment;
  return GASNET_OK;
}

int gex_EP_PublishBoundSegment(gex_TM_t tm, gex_EP_t* eps, size_t num_eps, gex_Flags_t flags) {
  constexpr const char* kCall = "gex_EP_PublishBoundSegment";
  Job& the_job = job();
  if (!is_wired()) return report(fail(Status::kNotInit, "gex_Client_Init comes first"), kCall);
  if (tm != &hydrant_world || flags != 0 || num_eps > 1 || (num_eps == 1 && eps == nullptr))
    return report(
        fail(Status::kBadArg, "another team, unknown flags, or more endpoints than exist"), kCall);
  if (num_eps == 1 && eps[0] != &the_job.endpoint)
    return report(fail(Status::kBadArg, "no such endpoint"), kCall);
  return report(publish_segments(num_eps == 1), kCall, true);
}

int gex_EP_Create(gex_EP_t*, gex_Client_t, gex_EP_Capabilities_t, gex_Flags_t) {
  return report(fail(Status::kResource, "the most endpoints is %d (GASNET_MAXEPS)", GASNET_MAXEPS),
                "gex_EP_Create");
}

}  // extern "C"
