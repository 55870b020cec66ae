// Segments: memory of this process that other ranks may access as a target. The job's segments are
// slices of one memfd per node. Every rank of the node maps it once, so a neighbour's memory is at a
// constant offset.
#pragma once

#include <hydrant/gasnet/objects.h>

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace hydrant {

// Collective over the job. Errors: kBadArg: the size is 0, not a multiple of GASNET_PAGESIZE, or too large,
// or minheapoffset differs between ranks; kResource, on every rank of the node: too little memory, with
// needed and available bytes, or a limit of files or address space. No rank waits for a rank that has failed,
// and a failed attach leaves nothing behind. If it has failed on every rank of the job, as on a single node,
// all ranks may attach again. With GASNET_SEGMENT_EVERYTHING it is only a barrier and ignores both arguments,
// because all memory is a segment.
Status attach_segments(uintptr_t size, uintptr_t minheapoffset) noexcept;

// Collective over the team: each member publishes the bound segments of its `endpoints`, to all members.
// Ends the job if there is no memory. Cost: a gather to all, and another if any member has several endpoints
// with segments.
void publish_segments(gex_TM_t tm, std::span<const gex_EP_t> endpoints) noexcept;

// Publishes the maximum size of this rank's segment in the job's store; after this process has mapped its own
// memory, and before the last fence of the job's start.
Status publish_max_segment() noexcept;
// True in a handler while attach_segments() polls in a fence. The handler may run in such a poll, so it must
// not wait for the job's store.
bool is_store_busy() noexcept;
// The smallest maximum of all ranks: the same on every rank, but this rank's own while is_store_busy(). The
// first call queries the store.
uintptr_t max_global_segment() noexcept;
// The maximum that this rank may attach: the same on every rank, because each samples available memory and
// limits at a different time, unless GASNET_MAX_SEGSIZE alone decides on all of them.
uintptr_t max_agreed_segment() noexcept;

// Address of a rank's segment in its owner's process; size 0 if the rank has no segment.
struct SegmentAddress {
  uint64_t addr = 0;
  uint64_t size = 0;

  // `bytes` is not 0.
  constexpr bool holds(uintptr_t start, size_t bytes) const noexcept {
    const uintptr_t offset = start - addr;
    return offset < size && bytes <= size - offset;
  }
};
// Finds the bound segment of a rank's endpoint. That of a primordial endpoint may have to be queried in the
// job's store, once; others are known when they were published to this process. Errors: kNotReady and
// kBroken as Bootstrap::get(); also kNotReady if the store must be queried but `may_ask` is false.
Status find_segment(Rank rank, SegmentAddress* address, bool may_ask = true,
                    uint32_t endpoint = 0) noexcept;
// True if a segment of any endpoint of `rank`, as far as they are known here, contains the range.
bool is_in_segment_of(Rank rank, uintptr_t addr, size_t bytes) noexcept;
// True if this process knows the segment of any rank.
bool segments_are_known() noexcept;
// The segment's address in this process; null if it is not mapped here or `rank` is no neighbour.
void* mapped_address(Rank rank, const SegmentAddress& address) noexcept;

}  // namespace hydrant
