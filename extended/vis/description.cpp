// Writes and reads the descriptions of pieces in packets. packets.cpp calls it on both sides.
#include "extended/vis/description.hpp"

#include <cstring>

namespace hydrant {
namespace {

// First byte of a description.
constexpr auto kList = std::byte{0};
constexpr auto kGrid = std::byte{1};

// Longest number: 7 bits in each byte.
constexpr size_t kMaxNumber = 10;

std::byte* write_number(std::byte* out, uint64_t number) noexcept {
  while (number >= 0x80) {
    *out++ = static_cast<std::byte>(number | 0x80);
    number >>= 7;
  }
  *out++ = static_cast<std::byte>(number);
  return out;
}
// Short for small distances of either sign.
std::byte* write_distance(std::byte* out, int64_t distance) noexcept {
  return write_number(out,
                      static_cast<uint64_t>(distance) << 1 ^ static_cast<uint64_t>(distance >> 63));
}

// Upper bound.
size_t grid_room(const Grid& grid) noexcept { return 1 + kMaxNumber * (5 + 2 * grid.count); }

Described describe_grid(const Grid& grid, Cursor& cursor, std::byte* out, size_t room,
                        size_t most_data, bool with_data) noexcept {
  if (grid_room(grid) >= room) return {};
  const Position start = cursor.position();
  std::byte* end = out;
  *end++ = kGrid;
  end = write_number(end, grid.base);
  end = write_number(end, grid.element);
  end = write_number(end, grid.count);
  for (uint32_t i = 0; i < grid.count; ++i) {
    end = write_distance(end, grid.dimensions[i].stride);
    end = write_number(end, grid.dimensions[i].count);
  }
  end = write_number(end, start.piece);
  end = write_number(end, start.offset);
  const auto bytes = static_cast<size_t>(end - out);
  const size_t rest = (grid.elements() - start.piece) * grid.element - start.offset;
  const size_t data = std::min(rest, with_data ? std::min(most_data, room - bytes) : most_data);
  const size_t offset = start.offset + data;
  cursor.seek({start.piece + offset / grid.element, offset % grid.element});
  return {bytes, data};
}

Described describe_list(Cursor& cursor, std::byte* out, size_t room, size_t most_data,
                        bool with_data) noexcept {
  std::byte* end = out;
  *end++ = kList;
  uintptr_t place = 0;
  size_t data = 0;
  while (!cursor.at_end() && data < most_data) {
    const auto used = static_cast<size_t>(end - out) + (with_data ? data : 0);
    if (used + 2 * kMaxNumber >= room) break;
    const Piece piece = cursor.rest();
    size_t bytes = std::min(piece.bytes, most_data - data);
    if (with_data) bytes = std::min(bytes, room - used - 2 * kMaxNumber);
    end = write_distance(end, static_cast<int64_t>(piece.addr - place));
    end = write_number(end, bytes);
    place = piece.addr + bytes;
    data += bytes;
    cursor.advance(bytes);
  }
  return {static_cast<size_t>(end - out), data};
}

}  // namespace

Described describe(const Side& side, Cursor& cursor, std::byte* out, size_t room, size_t most_data,
                   bool with_data) noexcept {
  if (side.kind == Side::Kind::kGrid)
    return describe_grid(*side.grid, cursor, out, room, most_data, with_data);
  return describe_list(cursor, out, room, most_data, with_data);
}

DescribedPieces::DescribedPieces(const std::byte* description, size_t bytes, size_t data) noexcept
    : at_(description), end_(description + bytes), left_(data), cursor_(Side()) {
  if (bytes == 0) {
    left_ = 0;
    return;
  }
  is_grid_ = *at_++ == kGrid;
  if (is_grid_ && !read_grid()) left_ = 0;
}

uint64_t DescribedPieces::read_number() noexcept {
  uint64_t number = 0;
  for (uint32_t shift = 0; at_ != end_ && shift < 64; shift += 7) {
    const auto byte = static_cast<uint64_t>(*at_++);
    number |= (byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return number;
}
int64_t DescribedPieces::read_distance() noexcept {
  const uint64_t number = read_number();
  return static_cast<int64_t>(number >> 1 ^ (uint64_t{0} - (number & 1)));
}

bool DescribedPieces::read_grid() noexcept {
  grid_.base = read_number();
  grid_.element = read_number();
  const uint64_t count = read_number();
  if (grid_.element == 0 || count > kMaxDimensions) return false;
  grid_.count = static_cast<uint32_t>(count);
  for (uint32_t i = 0; i < grid_.count; ++i) {
    grid_.dimensions[i].stride = read_distance();
    grid_.dimensions[i].count = read_number();
    if (grid_.dimensions[i].count == 0) return false;
  }
  Position start;
  start.piece = read_number();
  start.offset = read_number();
  if (start.offset >= grid_.element) return false;
  cursor_ = Cursor(Side::of(grid_), start);
  return true;
}

bool DescribedPieces::next(Piece* piece) noexcept {
  if (left_ == 0) return false;
  if (is_grid_) {
    *piece = cursor_.rest();
    piece->bytes = std::min(piece->bytes, left_);
    if (piece->bytes != 0) cursor_.advance(piece->bytes);
  } else {
    if (at_ == end_) return false;
    piece->addr = place_ + static_cast<uintptr_t>(read_distance());
    piece->bytes = std::min<size_t>(read_number(), left_);
    place_ = piece->addr + piece->bytes;
  }
  left_ -= piece->bytes;
  return piece->bytes != 0;
}

}  // namespace hydrant
