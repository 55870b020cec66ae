// A thread's rows of the ranks: the segment that is mapped here, and counts of operations by path. RmaThread
// holds them.
#pragma once

#include <hydrant/gasnet/rma.h>
#include <hydrant/rma.h>

#include <cstdint>

namespace hydrant {

struct PathCounts {
  uint64_t ops = 0, bytes = 0;
};

}  // namespace hydrant

// A thread's knowledge of a rank's segment, and counts of its operations there.
struct hydrant_known_peer {
  uintptr_t addr;  // of the segment that is mapped here, in its owner's address space
  uintptr_t size;  // bytes; 0: no segment, or not looked up yet
  intptr_t shift;  // added to an owner's address, gives the address here
  hydrant::PathCounts path_counts[2][HYDRANT_PATH_COUNT];  // puts, gets
  uint64_t unused[21];                                     // pads to 512 bytes: a shift finds it
};
static_assert(sizeof(hydrant_known_peer) == 512);

namespace hydrant {
using KnownPeer = ::hydrant_known_peer;
}
