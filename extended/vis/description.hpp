// The description of pieces in a packet: compressed, so that it stays short beside pieces of a few bytes.
// docs/wire_format_am.md shows the bytes.
//
//   list   per piece: distance from the end of the piece before, length; a few bytes for each
//   grid   base, element, dimensions, and the place where the packet's data begin: 20 to 60 bytes in all
#pragma once

#include "extended/vis/side.hpp"

namespace hydrant {

struct Described {
  size_t bytes = 0;  // of the description
  size_t data = 0;   // of the pieces described
};

// Describes pieces from the cursor on, in at most `room` bytes, and moves the cursor behind them. Their data
// are at most `most_data` bytes; if `with_data`, they fit behind the description. Both results are 0 if the
// room does not suffice.
Described describe(const Side& side, Cursor& cursor, std::byte* out, size_t room, size_t most_data,
                   bool with_data) noexcept;

// Reads a description. Malformed ones end early.
class DescribedPieces {
 public:
  // `data` is the sum of all pieces' bytes.
  DescribedPieces(const std::byte* description, size_t bytes, size_t data) noexcept;
  // False at the end.
  bool next(Piece* piece) noexcept;

 private:
  bool read_grid() noexcept;
  uint64_t read_number() noexcept;
  int64_t read_distance() noexcept;

  const std::byte* at_;
  const std::byte* const end_;
  size_t left_;          // data bytes
  uintptr_t place_ = 0;  // list: end of the piece before
  bool is_grid_ = false;
  Grid grid_;
  Cursor cursor_;
};

}  // namespace hydrant
