// Owns hydrant_mapped_segments, the table in which inlined puts and gets look for mapped memory (rma.h).
// Written by rma_path.cpp.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>

namespace hydrant {

// Empties the table. No thread may put or get meanwhile.
void hide_segments() noexcept;
// Enters a segment, at this address of its owner, unless another rank has its entry. Threads: any.
void show_segment(Rank owner, MemoryRange segment, intptr_t shift) noexcept;

}  // namespace hydrant
