// A thread's rows of the ranks: the segment that is mapped here, and counts of operations by path. RmaThread
// holds them.
#pragma once

#include <hydrant/rma.h>

#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>

namespace hydrant {

struct PathCounts {
  uint64_t ops = 0, bytes = 0;
};

// A thread's knowledge of a rank's segment, and counts of its operations there.
struct KnownPeer {
  uintptr_t addr;  // of the segment that is mapped here, in its owner's address space
  uintptr_t size;  // bytes; 0: no segment, or not looked up yet
  intptr_t shift;  // added to an owner's address, gives the address here
  PathCounts path_counts[2][HYDRANT_PATH_COUNT];  // puts, gets
  uint64_t unused[21];                            // pads to 512 bytes: a shift finds it
};
static_assert(sizeof(KnownPeer) == 512);

// The calling thread's rows, for calls that check nothing else. `count` is 0 until the thread's first other
// call, and while its next call has to take the way of all checks.
struct KnownPeers {
  const KnownPeer* first;
  Rank count;
};
extern constinit thread_local KnownPeers known_peers [[gnu::tls_model("initial-exec")]];

}  // namespace hydrant
