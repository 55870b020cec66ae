// A strided transfer in canonical form: pairs of equal elements in a grid that both sides share.
//
// Dimensions with one element are dropped, those with strides of the destination below 0 are reversed, the
// others are sorted by that stride, and dimensions that continue the one before on both sides are merged. Two
// calls that copy the same bytes between the same places so have the same form, but for grids that overlap
// themselves.
#pragma once

#include "extended/vis/side.hpp"
#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

namespace hydrant {

struct PairDimension {
  ptrdiff_t dest;
  ptrdiff_t source;
  size_t count;
};

inline size_t magnitude(ptrdiff_t stride) noexcept {
  return stride < 0 ? size_t{0} - static_cast<size_t>(stride) : static_cast<size_t>(stride);
}

// As in Grid, only the first `count` dimensions mean anything.
struct GridPair {
  uintptr_t dest;
  uintptr_t source;
  size_t element;
  uint32_t count;
  size_t bytes;  // in all; 0: nothing to copy
  std::array<PairDimension, kMaxDimensions> dimensions;
};

// The arguments of a strided call.
struct StridedArguments {
  void* dest;
  const ptrdiff_t* dest_strides;
  const void* source;
  const ptrdiff_t* source_strides;
  size_t element;
  const size_t* count;
  size_t levels;
};

// Errors: kBadArg: a null array that is needed, or more bytes than an address space has. Strides are needed
// only if there are bytes, and counts only if the elements have bytes.
Status canonicalise(const StridedArguments& arguments, GridPair& pair) noexcept;

// The memory between the first and the last byte of one side. Errors: kBadArg: it wraps around the address
// space.
Status dest_box(const GridPair& pair, MemoryRange* box) noexcept;
Status source_box(const GridPair& pair, MemoryRange* box) noexcept;

// A side alone, with the order of the pair; dimensions that continue the one before are merged.
void dest_grid(const GridPair& pair, Grid& grid) noexcept;
void source_grid(const GridPair& pair, Grid& grid) noexcept;

}  // namespace hydrant
