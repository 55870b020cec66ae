// Starts vector, indexed and strided transfers on the path that suits them; docs/vis.md explains the choice.
//
//   copied    both memories are mapped here: loops (copy_grid.cpp, copy_list.cpp)
//   kernel    the kernel copies many pieces in one system call (rma_many.cpp)
//   packets   many pieces travel in one Medium, with a description of the target's pieces (packets.cpp)
//   pieces    each piece is a put or get of its own, all under one counter (rma_many.cpp)
#pragma once

#include "extended/event/completion_counter.hpp"
#include "extended/rma/common/transfer.hpp"
#include "extended/vis/grid_pair.hpp"
#include "extended/vis/side.hpp"

namespace hydrant {

enum class VisPath : uint8_t { kCopied, kPieces, kPackets, kKernel };
// "pieces" for kKernel, as in the counts (RmaThread::vis_counts).
const char* vis_path_name(VisPath path) noexcept;

struct VisTransfer {
  Direction direction = Direction::kPut;
  Rank peer = 0;
  const Side* dest = nullptr;
  const Side* source = nullptr;
  const GridPair* grids = nullptr;  // of a strided transfer; null for lists
  MemoryRange peer_box;             // of a strided transfer: around all the peer's pieces
  size_t bytes = 0;                 // not 0
  bool source_may_change = false;   // before the operation is complete
  bool immediate = false;

  bool is_put() const noexcept { return direction == Direction::kPut; }
};

// As transfer(): executes or starts, and reports pieces under way to `counter`. Errors: as transfer().
Status start_vis(const VisTransfer& what, CompletionCounter& counter) noexcept;

// Once per job, when the transport is known.
void start_vis_paths() noexcept;

}  // namespace hydrant
