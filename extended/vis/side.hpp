// A side of a vector, indexed or strided transfer, and the walk over its bytes. Both sides of a transfer
// are walked together: the pieces differ, their bytes in order correspond.
//
// A side refers to the client's lists and copies nothing. The walk drops empty pieces and merges pieces that
// lie one behind the other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <gasnet_vis.h>

namespace hydrant {

// Dimensions with at least two elements: more would hold over 2^64 elements.
inline constexpr size_t kMaxDimensions = 64;

// Not initialised, because arrays of it are on the stack of every call.
struct Dimension {
  ptrdiff_t stride;
  size_t count;
};

// Elements of `element` bytes at base + i0 * stride0 + i1 * stride1 ...; the first dimension runs fastest.
// Not value-initialised: only the first `count` dimensions mean anything.
struct Grid {
  uintptr_t base;
  size_t element;
  uint32_t count;
  std::array<Dimension, kMaxDimensions> dimensions;

  size_t elements() const noexcept {
    size_t product = 1;
    for (uint32_t i = 0; i < count; ++i) product *= dimensions[i].count;
    return product;
  }
};

struct Piece {
  uintptr_t addr = 0;
  size_t bytes = 0;
};

struct Side {
  enum class Kind : uint8_t { kVector, kIndexed, kGrid };
  Kind kind = Kind::kVector;
  size_t count = 0;  // pieces
  size_t bytes = 0;  // of each piece; not for vectors
  union {
    const gex_Memvec_t* vector = nullptr;
    void* const* addresses;
    const Grid* grid;
  };

  static Side of(const gex_Memvec_t* list, size_t count) noexcept {
    Side side;
    side.count = count;
    side.vector = list;
    return side;
  }
  static Side of(void* const* list, size_t count, size_t bytes) noexcept {
    Side side;
    side.kind = Kind::kIndexed;
    side.count = bytes != 0 ? count : 0;
    side.bytes = bytes;
    side.addresses = list;
    return side;
  }
  static Side of(const Grid& grid) noexcept {
    Side side;
    side.kind = Kind::kGrid;
    side.count = grid.elements();
    side.bytes = grid.element;
    side.grid = &grid;
    return side;
  }

  // Piece `i` of a list.
  Piece at(size_t i) const noexcept {
    if (kind == Kind::kVector)
      return {reinterpret_cast<uintptr_t>(vector[i].gex_addr), vector[i].gex_len};
    return {reinterpret_cast<uintptr_t>(addresses[i]), bytes};
  }
};

// A place in a side: a piece, and an offset from its start, which may lie in a following piece that was
// merged with it.
struct Position {
  size_t piece = 0;
  size_t offset = 0;
};

class Cursor {
 public:
  explicit Cursor(const Side& side, Position start = {}) noexcept : side_(side) { seek(start); }

  // The rest of the current piece; no bytes at the end.
  Piece rest() const noexcept { return {run_.addr + offset_, run_.bytes - offset_}; }
  bool at_end() const noexcept { return run_.bytes == 0; }
  Position position() const noexcept { return {first_, offset_}; }

  // `bytes` is at most rest().bytes.
  void advance(size_t bytes) noexcept {
    offset_ += bytes;
    if (offset_ != run_.bytes) return;
    offset_ = 0;
    if (side_.kind == Side::Kind::kGrid) {
      step();
    } else {
      load(next_);
    }
  }

  void seek(Position to) noexcept {
    offset_ = to.offset;
    if (side_.kind == Side::Kind::kGrid) {
      seek_element(to.piece);
    } else {
      load(to.piece);
    }
  }

 private:
  // A bound, so that a seek costs little.
  static constexpr size_t kMaxMerged = 64;

  // Loads the pieces from `i` on that lie one behind the other.
  void load(size_t i) noexcept {
    run_ = {};
    while (i < side_.count && side_.at(i).bytes == 0) ++i;
    first_ = i;
    next_ = i;
    if (i == side_.count) return;
    run_ = side_.at(i);
    const size_t end = std::min(side_.count - i, kMaxMerged) + i;
    for (++i; i < end; ++i) {
      const Piece piece = side_.at(i);
      if (piece.bytes != 0 && piece.addr != run_.addr + run_.bytes) break;
      run_.bytes += piece.bytes;
    }
    next_ = i;
  }

  void seek_element(size_t number) noexcept {
    const Grid& grid = *side_.grid;
    first_ = number;
    run_ = {grid.base, number < side_.count ? grid.element : 0};
    if (run_.bytes == 0) return;
    for (uint32_t i = 0; i < grid.count; ++i) {
      const Dimension& dimension = grid.dimensions[i];
      index_[i] = number % dimension.count;
      number /= dimension.count;
      run_.addr += index_[i] * static_cast<size_t>(dimension.stride);
    }
  }

  // To the next element of a grid.
  void step() noexcept {
    const Grid& grid = *side_.grid;
    ++first_;
    for (uint32_t i = 0; i < grid.count; ++i) {
      const Dimension& dimension = grid.dimensions[i];
      run_.addr += static_cast<size_t>(dimension.stride);
      if (++index_[i] < dimension.count) return;
      run_.addr -= dimension.count * static_cast<size_t>(dimension.stride);
      index_[i] = 0;
    }
    run_.bytes = 0;
  }

  Side side_;
  Piece run_;
  size_t offset_ = 0;
  size_t first_ = 0;                          // the first piece of the run
  size_t next_ = 0;                           // the piece behind the run, in a list
  std::array<size_t, kMaxDimensions> index_;  // in a grid; those of its dimensions are set
};

// There are at least `bytes` left.
inline void skip_bytes(Cursor& cursor, size_t bytes) noexcept {
  while (bytes != 0) {
    const size_t part = std::min(cursor.rest().bytes, bytes);
    cursor.advance(part);
    bytes -= part;
  }
}

// Calls visit(dest, source, bytes) for each pair of pieces, until it returns false. Both cursors are then
// behind the last pair that it accepted.
template <typename Visit>
void walk(Cursor& dest, Cursor& source, Visit visit) noexcept {
  while (!dest.at_end() && !source.at_end()) {
    const Piece to = dest.rest();
    const Piece from = source.rest();
    const size_t bytes = std::min(to.bytes, from.bytes);
    if (!visit(to.addr, from.addr, bytes)) return;
    dest.advance(bytes);
    source.advance(bytes);
  }
}

}  // namespace hydrant
