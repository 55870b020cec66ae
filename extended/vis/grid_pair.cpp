// Brings strided transfers into canonical form. vis_calls.cpp calls it first.
#include "extended/vis/grid_pair.hpp"

#include <cstdint>
#include <cstring>

namespace hydrant {
namespace {

// The distance of the last element of a dimension from its first.
template <typename Stride>
size_t reach(Stride stride, size_t count) noexcept {
  return static_cast<size_t>(stride) * (count - 1);
}

void reverse(GridPair& pair, PairDimension& dimension) noexcept {
  pair.dest += reach(dimension.dest, dimension.count);
  pair.source += reach(dimension.source, dimension.count);
  dimension.dest = static_cast<ptrdiff_t>(size_t{0} - static_cast<size_t>(dimension.dest));
  dimension.source = static_cast<ptrdiff_t>(size_t{0} - static_cast<size_t>(dimension.source));
}

// Insertion keeps the order of equal strides, and there are few dimensions.
void insert(GridPair& pair, const PairDimension& dimension) noexcept {
  uint32_t at = pair.count++;
  for (; at > 0 && pair.dimensions[at - 1].dest > dimension.dest; --at)
    pair.dimensions[at] = pair.dimensions[at - 1];
  pair.dimensions[at] = dimension;
}

bool continues(ptrdiff_t stride, ptrdiff_t before, size_t count) noexcept {
  return static_cast<size_t>(stride) == static_cast<size_t>(before) * count;
}

void merge(GridPair& pair) noexcept {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < pair.count; ++i) {
    const PairDimension dimension = pair.dimensions[i];
    if (kept == 0 && static_cast<size_t>(dimension.dest) == pair.element &&
        dimension.source == dimension.dest) {
      pair.element *= dimension.count;
      continue;
    }
    if (kept != 0) {
      PairDimension& before = pair.dimensions[kept - 1];
      if (continues(dimension.dest, before.dest, before.count) &&
          continues(dimension.source, before.source, before.count)) {
        before.count *= dimension.count;
        continue;
      }
    }
    pair.dimensions[kept++] = dimension;
  }
  pair.count = kept;
}

Status wrapping(uintptr_t base) noexcept {
  return fail(Status::kBadArg, "strides from %#zx on wrap around the address space",
              static_cast<size_t>(base));
}

template <typename StrideOf>
Status box_of(uintptr_t base, const GridPair& pair, MemoryRange* box, StrideOf stride_of) noexcept {
  uintptr_t low = base;
  uintptr_t high = base;
  bool wraps = __builtin_add_overflow(high, pair.element, &high);
  for (uint32_t i = 0; i < pair.count; ++i) {
    const ptrdiff_t stride = stride_of(pair.dimensions[i]);
    size_t distance = 0;
    wraps |= __builtin_mul_overflow(magnitude(stride), pair.dimensions[i].count - 1, &distance);
    wraps |= stride < 0 ? __builtin_sub_overflow(low, distance, &low)
                        : __builtin_add_overflow(high, distance, &high);
  }
  if (wraps) return wrapping(base);
  *box = {low, high - low};
  return Status::kOk;
}

template <typename StrideOf>
void grid_of(uintptr_t base, const GridPair& pair, Grid& grid, StrideOf stride_of) noexcept {
  grid.base = base;
  grid.element = pair.element;
  grid.count = 0;
  for (uint32_t i = 0; i < pair.count; ++i) {
    const Dimension dimension = {stride_of(pair.dimensions[i]), pair.dimensions[i].count};
    if (grid.count == 0 && static_cast<size_t>(dimension.stride) == grid.element) {
      grid.element *= dimension.count;
      continue;
    }
    if (grid.count != 0) {
      Dimension& before = grid.dimensions[grid.count - 1];
      if (continues(dimension.stride, before.stride, before.count)) {
        before.count *= dimension.count;
        continue;
      }
    }
    grid.dimensions[grid.count++] = dimension;
  }
}

Status null_array(size_t levels) noexcept {
  return fail(Status::kBadArg, "stridelevels is %zu, and count, dststrides or srcstrides is NULL",
              levels);
}

ptrdiff_t dest_stride(const PairDimension& dimension) noexcept { return dimension.dest; }
ptrdiff_t source_stride(const PairDimension& dimension) noexcept { return dimension.source; }

}  // namespace

Status canonicalise(const StridedArguments& arguments, GridPair& pair) noexcept {
  pair.dest = reinterpret_cast<uintptr_t>(arguments.dest);
  pair.source = reinterpret_cast<uintptr_t>(arguments.source);
  pair.element = pair.bytes = arguments.element;
  pair.count = 0;
  if (arguments.element == 0 || arguments.levels == 0) return Status::kOk;
  if (arguments.count == nullptr) return null_array(arguments.levels);
  // A count of 0 makes the others, and the strides, meaningless.
  for (size_t i = 0; i < arguments.levels; ++i) {
    if (arguments.count[i] != 0) continue;
    pair.bytes = 0;
    return Status::kOk;
  }
  if (arguments.dest_strides == nullptr || arguments.source_strides == nullptr)
    return null_array(arguments.levels);
  for (size_t i = 0; i < arguments.levels; ++i) {
    PairDimension dimension = {arguments.dest_strides[i], arguments.source_strides[i],
                               arguments.count[i]};
    if (dimension.count == 1) continue;
    if (__builtin_mul_overflow(pair.bytes, dimension.count, &pair.bytes))
      return fail(
          Status::kBadArg,
          "the product of elemsz (%zu) and the counts of %zu dimensions exceeds the address "
          "space",
          arguments.element, arguments.levels);
    // The one stride that reverse() cannot negate.
    if (dimension.dest == PTRDIFF_MIN) return wrapping(pair.dest);
    if (dimension.source == PTRDIFF_MIN) return wrapping(pair.source);
    if (dimension.dest < 0) reverse(pair, dimension);
    insert(pair, dimension);
  }
  merge(pair);
  return Status::kOk;
}

Status dest_box(const GridPair& pair, MemoryRange* box) noexcept {
  return box_of(pair.dest, pair, box, dest_stride);
}
Status source_box(const GridPair& pair, MemoryRange* box) noexcept {
  return box_of(pair.source, pair, box, source_stride);
}

void dest_grid(const GridPair& pair, Grid& grid) noexcept {
  grid_of(pair.dest, pair, grid, dest_stride);
}
void source_grid(const GridPair& pair, Grid& grid) noexcept {
  grid_of(pair.source, pair, grid, source_stride);
}

}  // namespace hydrant
