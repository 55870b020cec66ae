// Copies a strided transfer between memories that are both mapped here.
#pragma once

#include "extended/vis/grid_pair.hpp"

namespace hydrant {

// Loops that are specialised by the size of an element. In a transpose the fast dimension of the destination
// is not the source's: blocks of both, so that each line is used while it is in the first cache. The shifts
// lead from the addresses of the pair to those of this process.
void copy_grid(const GridPair& pair, intptr_t dest_shift, intptr_t source_shift) noexcept;

// The same for a single row of elements.
struct Row {
  std::byte* dest;
  const std::byte* source;
  size_t element;
  PairDimension dimension;
};
void copy_row(const Row& row) noexcept;

}  // namespace hydrant
