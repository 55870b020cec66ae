// Random sides of transfers, and their bytes in order, computed without the code under test.
#pragma once

#include "extended/vis/grid_pair.hpp"
#include "extended/vis/side.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

namespace hydrant::testing {

using Addresses = std::vector<uintptr_t>;  // of each byte, in order

inline size_t pick(std::mt19937& random, size_t low, size_t high) {
  return low + random() % (high - low + 1);
}

// Disjoint pieces in [start, start + room), in random order, with gaps, neighbours and empty pieces.
inline std::vector<gex_Memvec_t> random_vector(std::mt19937& random, uintptr_t start, size_t room,
                                               size_t longest) {
  std::vector<gex_Memvec_t> list;
  size_t at = 0;
  while (list.size() < 200) {
    const size_t gap = random() % 3 == 0 ? pick(random, 1, 20) : 0;
    const size_t bytes = random() % 8 == 0 ? 0 : pick(random, 1, longest);
    if (at + gap + bytes > room) break;
    at += gap;
    list.push_back({reinterpret_cast<void*>(bytes != 0 ? start + at : 0), bytes});
    at += bytes;
    if (random() % 40 == 0) break;
  }
  if (random() % 2 == 0) std::shuffle(list.begin(), list.end(), random);
  return list;
}

inline Addresses bytes_of(const std::vector<gex_Memvec_t>& list) {
  Addresses all;
  for (const gex_Memvec_t& piece : list) {
    for (size_t i = 0; i < piece.gex_len; ++i)
      all.push_back(reinterpret_cast<uintptr_t>(piece.gex_addr) + i);
  }
  return all;
}

// A strided transfer whose destination does not overlap itself.
struct RandomGrid {
  uintptr_t dest = 0;
  uintptr_t source = 0;
  size_t element = 0;
  std::vector<size_t> counts;
  std::vector<ptrdiff_t> dest_strides;
  std::vector<ptrdiff_t> source_strides;

  StridedArguments arguments() const {
    return {reinterpret_cast<void*>(dest),
            dest_strides.data(),
            reinterpret_cast<void*>(source),
            source_strides.data(),
            element,
            counts.data(),
            counts.size()};
  }
  // The two addresses of each byte.
  std::vector<std::pair<uintptr_t, uintptr_t>> pairs() const {
    std::vector<std::pair<uintptr_t, uintptr_t>> all;
    for (const size_t count : counts) {
      if (count == 0) return all;
    }
    std::vector<size_t> index(counts.size());
    for (;;) {
      uintptr_t to = dest;
      uintptr_t from = source;
      for (size_t i = 0; i < counts.size(); ++i) {
        to += index[i] * static_cast<uintptr_t>(dest_strides[i]);
        from += index[i] * static_cast<uintptr_t>(source_strides[i]);
      }
      for (size_t i = 0; i < element; ++i) all.emplace_back(to + i, from + i);
      size_t i = 0;
      while (i < counts.size() && ++index[i] == counts[i]) index[i++] = 0;
      if (i == counts.size()) return all;
    }
  }
};

// Both sides lie in the `room` bytes behind their starts.
inline RandomGrid random_grid(std::mt19937& random, uintptr_t dest, uintptr_t source, size_t room) {
  RandomGrid grid;
  constexpr size_t kElements[] = {1, 2, 3, 4, 8, 12, 16, 24, 40, 64, 100};
  grid.element = kElements[random() % std::size(kElements)];
  const size_t levels = random() % 10 == 0 ? pick(random, 6, 20) : random() % 5;
  std::vector<size_t> order;
  for (size_t i = 0; i < levels; ++i) {
    grid.counts.push_back(levels > 5 ? pick(random, 1, 2) : pick(random, 1, 9));
    order.push_back(i);
  }
  const auto lay_out = [&](std::vector<ptrdiff_t>& strides, uintptr_t* start, bool may_repeat) {
    strides.assign(levels, 0);
    if (random() % 2 == 0) std::shuffle(order.begin(), order.end(), random);
    size_t extent = grid.element;
    for (const size_t i : order) {
      const size_t stride = extent + (random() % 2 == 0 ? 0 : random() % 5);
      if (stride * grid.counts[i] > room) {
        grid.counts[i] = 1;
        strides[i] = static_cast<ptrdiff_t>(random() % 100);
        continue;
      }
      const bool repeats = may_repeat && random() % 12 == 0;
      strides[i] = repeats ? 0 : static_cast<ptrdiff_t>(stride);
      if (repeats) continue;
      extent = stride * grid.counts[i];
      if (random() % 4 == 0) {
        *start += stride * (grid.counts[i] - 1);
        strides[i] = -strides[i];
      }
    }
  };
  grid.dest = dest;
  grid.source = source;
  lay_out(grid.dest_strides, &grid.dest, false);
  lay_out(grid.source_strides, &grid.source, true);
  if (random() % 25 == 0 && levels != 0) grid.counts[random() % levels] = 0;
  return grid;
}

}  // namespace hydrant::testing
