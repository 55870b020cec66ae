// Maps ranks of the job to ranks of the node.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>

namespace hydrant::shm {

// A view, copied into each part that needs it.
struct NodeIndex {
  uint32_t size = 0;                // ranks of the node
  Rank first = 0;                   // the lowest rank of the node
  uint32_t span = 0;                // entries of `table`
  const uint32_t* table = nullptr;  // node rank by rank - first; null if they are equal

  // The node rank; `size` or more if the rank is not on this node.
  uint32_t of(Rank rank) const noexcept {
    const uint32_t index = rank - first;
    if (table == nullptr || index >= span) [[likely]]
      return index;
    return table[index];
  }
};

}  // namespace hydrant::shm
