// Mappings of created segments between the ranks of a node. A rank publishes a key with its segment, and
// the others map the memory by it, if it lies in a memory file: of a created segment, or a shared arena
// (hydrant/alloc.h). Such memory keeps its place in its file, so that a mapping stays right for the rest of
// the job, whatever becomes of the segment.
//
// Threads: any. Cost: some microseconds; the first mapping of a file 30 us and the page faults.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace hydrant {

// Travels between ranks. `bytes` is 0 if other processes cannot map the segment.
struct SegmentKey {
  uint32_t bytes = 0;
  uint32_t unused = 0;
  std::array<std::byte, 72> blob = {};
};

SegmentKey key_of_segment(uintptr_t addr, size_t bytes) noexcept;
// Maps [addr, addr+bytes) of `owner` here, if that is a neighbour; then MemoryAccess::mapped() finds it.
// Otherwise the kernel or messages copy.
void map_segment(Rank owner, uintptr_t addr, size_t bytes, const SegmentKey& key) noexcept;

}  // namespace hydrant
