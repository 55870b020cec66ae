// Segments: memory of this process that others name as a target. The job's own segments are slices of one
// memfd per node that every rank of the node maps once, so a neighbour's memory is an offset away.
#pragma once

#include <hydrant/gasnet/objects.h>

#include "firehose/base/status.hpp"
#include "rdma/bootstrap.hpp"

#include <cstdint>

namespace hydrant {

// Collective over the job. Errors: kBadArg: the size is 0, no multiple of GASNET_PAGESIZE, or too large, or
// minheapoffset differs between ranks; kResource, on every rank of the node: memory is short, with needed
// and available bytes. After an error on any rank the job is to be ended.
// GASNET_SEGMENT_EVERYTHING: a barrier only; all memory is a segment already, and both arguments are ignored.
Status attach_segments(uintptr_t size, uintptr_t minheapoffset) noexcept;

// Collective over the job: others learn of the segment bound to this rank's endpoint if `mine_too`.
// Errors: those of the bootstrap.
Status publish_segments(bool mine_too) noexcept;

// Tells the job's store how large this rank's segment may be; before the job's first fence.
Status publish_max_segment() noexcept;
// The smallest of all ranks' limits: the same on every rank. Asks the store at the first call.
uintptr_t max_global_segment() noexcept;

// Where a rank's segment is for its owner; size 0 if it has none.
struct SegmentPlace {
  uint64_t addr = 0;
  uint64_t size = 0;
};
// Asks the job's store once and remembers. Errors: kNotReady, kBroken: as Bootstrap::get(); kNotReady also if
// the store would have to be asked and `may_ask` is false.
Status find_segment(Rank rank, SegmentPlace* place, bool may_ask = true) noexcept;
// Where it is mapped in this process; null if it is not, or if `rank` is no neighbour.
void* address_here(Rank rank, const SegmentPlace& place) noexcept;

}  // namespace hydrant
