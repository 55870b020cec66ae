// The loops of strided transfers between mapped memories. vis_transfer.cpp and the short way of vis_calls.cpp
// call it.
#include "extended/vis/copy_grid.hpp"

#include "extended/vis/copy_piece.hpp"

#include <algorithm>

namespace hydrant {
namespace {

// Two dimensions of a grid: a row of elements, and a column of rows.
struct Plane {
  std::byte* dest;
  const std::byte* source;
  PairDimension row;
  PairDimension column;
};

template <typename Size>
[[gnu::always_inline]] inline void copy_elements(std::byte* dest, const std::byte* source,
                                                 const PairDimension& row, size_t count,
                                                 size_t element) noexcept {
  const ptrdiff_t to = row.dest;
  const ptrdiff_t from = row.source;
  size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    Size::copy(dest, source, element);
    Size::copy(dest + to, source + from, element);
    Size::copy(dest + 2 * to, source + 2 * from, element);
    Size::copy(dest + 3 * to, source + 3 * from, element);
    dest += 4 * to;
    source += 4 * from;
  }
  for (; i < count; ++i) {
    Size::copy(dest, source, element);
    dest += to;
    source += from;
  }
}

// A row of kBytes each by wide moves.
#ifdef __x86_64__
template <size_t kBytes>
[[gnu::target("avx"), gnu::noinline]] void copy_row_wide(const Row row) noexcept {
  std::byte* dest = row.dest;
  const std::byte* source = row.source;
  for (size_t i = 0; i < row.dimension.count; ++i) {
    WideMoves<kBytes>::copy(dest, source);
    dest += row.dimension.dest;
    source += row.dimension.source;
  }
}
#else
template <size_t kBytes>
void copy_row_wide(const Row&) noexcept {}
#endif

// Elements per edge of a block: both blocks of lines fit the first cache.
constexpr size_t edge_of(size_t element) noexcept { return element <= 8 ? 32 : 16; }

template <typename Size>
void copy_plane(const Plane& plane, size_t element, bool in_blocks) noexcept {
  const PairDimension& row = plane.row;
  const PairDimension& column = plane.column;
  const size_t width = in_blocks ? edge_of(element) : row.count;
  const size_t height = in_blocks ? edge_of(element) : column.count;
  for (size_t y = 0; y < column.count; y += height) {
    const size_t rows = std::min(height, column.count - y);
    for (size_t x = 0; x < row.count; x += width) {
      const size_t count = std::min(width, row.count - x);
      const auto at_x = static_cast<ptrdiff_t>(x);
      for (size_t i = y; i < y + rows; ++i) {
        const auto at_y = static_cast<ptrdiff_t>(i);
        copy_elements<Size>(plane.dest + at_x * row.dest + at_y * column.dest,
                            plane.source + at_x * row.source + at_y * column.source, row, count,
                            element);
      }
    }
  }
}

// The dimension in which the source's elements lie closest.
uint32_t fastest_of_source(const GridPair& pair) noexcept {
  uint32_t best = 0;
  for (uint32_t i = 1; i < pair.count; ++i) {
    if (magnitude(pair.dimensions[i].source) < magnitude(pair.dimensions[best].source)) best = i;
  }
  return best;
}

// Rows of less than this are worth blocks; longer elements fill their lines alone.
constexpr size_t kLine = 64;

}  // namespace

void copy_row(const Row& row) noexcept {
  if (row.element == 64 && has_wide_moves()) return copy_row_wide<64>(row);
  if (row.element == 128 && has_wide_moves()) return copy_row_wide<128>(row);
  const Row local = row;
  with_size_class(local.element, [&](auto size) {
    copy_elements<decltype(size)>(local.dest, local.source, local.dimension, local.dimension.count,
                                  local.element);
  });
}

void copy_grid(const GridPair& pair, intptr_t dest_shift, intptr_t source_shift) noexcept {
  auto* dest = reinterpret_cast<std::byte*>(pair.dest + static_cast<uintptr_t>(dest_shift));
  const auto* source =
      reinterpret_cast<const std::byte*>(pair.source + static_cast<uintptr_t>(source_shift));
  if (pair.count == 0) {
    copy_bytes(dest, source, pair.element);
    return;
  }
  if (pair.count == 1) {
    copy_row({dest, source, pair.element, pair.dimensions[0]});
    return;
  }
  Plane plane = {dest, source, pair.dimensions[0], {0, 0, 1}};
  uint32_t column = pair.count > 1 ? 1 : 0;
  const uint32_t fastest = fastest_of_source(pair);
  const bool in_blocks = fastest != 0 && pair.element < kLine;
  if (in_blocks) column = fastest;
  if (column != 0) plane.column = pair.dimensions[column];
  with_size_class(pair.element, [&](auto size) {
    using Size = decltype(size);
    // The other dimensions, as an odometer.
    std::array<size_t, kMaxDimensions> index;
    std::fill_n(index.begin(), pair.count, size_t{0});
    for (;;) {
      copy_plane<Size>(plane, pair.element, in_blocks);
      uint32_t i = 1;
      for (; i < pair.count; ++i) {
        if (i == column) continue;
        const PairDimension& dimension = pair.dimensions[i];
        plane.dest += dimension.dest;
        plane.source += dimension.source;
        if (++index[i] < dimension.count) break;
        index[i] = 0;
        const auto count = static_cast<ptrdiff_t>(dimension.count);
        plane.dest -= count * dimension.dest;
        plane.source -= count * dimension.source;
      }
      if (i >= pair.count) break;
    }
  });
}

}  // namespace hydrant
