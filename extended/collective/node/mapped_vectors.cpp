// Combines and copies vectors of mapped memory. line_operations.cpp calls it once all members have
// announced their memory.
#include "extended/collective/node/mapped_vectors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <numeric>

namespace hydrant {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPiece = 16384;

size_t piece_bytes(size_t unit) noexcept {
  const size_t whole = kPiece / unit * unit;
  return std::max(whole, unit);
}

}  // namespace

MappedVectors::MappedVectors(Rank rank, Rank size) noexcept
    : sources(size), dests(size), rank_(rank), cube_(size) {}

MappedVectors::Range MappedVectors::range_of(Rank rank, Rank size, size_t unit,
                                             size_t bytes) noexcept {
  // The elements that fill whole cache lines.
  const size_t grain = std::lcm(unit, kLine);
  const size_t grains = bytes / grain;
  const size_t share = grains / size;
  const size_t more = grains % size;  // the first members have one more
  const auto begin = [&](size_t member) {
    return (member * share + std::min(member, more)) * grain;
  };
  return {.first = begin(rank), .end = rank + 1 == size ? bytes : begin(size_t{rank} + 1)};
}

bool MappedVectors::reserve(const Reduction& reduction) noexcept {
  // A place per level of the tree, two at the top, one for pairs, and the right operand of a user function.
  const size_t places = static_cast<size_t>(std::bit_width(cube_.vertices())) + 4;
  const size_t piece = piece_bytes(reduction.unit);
  if (places * piece <= scratch_bytes_) return true;
  scratch_.reset(new (std::nothrow) std::byte[places * piece]);
  scratch_bytes_ = scratch_ != nullptr ? places * piece : 0;
  return scratch_ != nullptr;
}

void MappedVectors::combine(const std::byte* left, const std::byte* right,
                            std::byte* out) const noexcept {
  if (reduction_->function != nullptr) {
    reduction_->function(left, right, out, bytes_ / reduction_->unit);
    return;
  }
  std::byte* const copy = scratch_.get();
  std::memcpy(copy, right, bytes_);
  reduction_->combine(left, copy, out, bytes_);
}

const std::byte* MappedVectors::combine_represented(Rank member, std::byte* out) noexcept {
  if (!cube_.represents(member)) return sources[member] + offset_;
  combine(sources[member - 1] + offset_, sources[member] + offset_, out);
  return out;
}

// The left half goes to `out`, the right one to the next place behind it.
const std::byte* MappedVectors::combine_vertices(uint32_t first, uint32_t count,
                                                 std::byte* out) noexcept {
  if (count == 1) return combine_represented(cube_.member_at(first), out);
  const std::byte* left = combine_vertices(first, count / 2, out);
  const std::byte* right = combine_vertices(first + count / 2, count / 2, out + piece_);
  combine(left, right, out);
  return out;
}

std::byte* MappedVectors::nearest_dest() const noexcept {
  if (dests[rank_] != nullptr) return dests[rank_];
  return *std::find_if(dests.begin(), dests.end(), [](std::byte* dest) { return dest != nullptr; });
}

bool MappedVectors::reduce(const Reduction& reduction, Range range, size_t budget,
                           size_t* progress) noexcept {
  const size_t all = range.end - range.first;
  reduction_ = &reduction;
  piece_ = piece_bytes(reduction.unit);
  for (size_t done = 0; *progress < all && (done == 0 || done + piece_ <= budget); done += bytes_) {
    offset_ = range.first + *progress;
    bytes_ = std::min(piece_, all - *progress);
    // The first place is that of combine()'s copy. No source is read after the first store to a destination,
    // which may be the same memory.
    std::byte* const top = scratch_.get() + piece_;
    const uint32_t half = cube_.vertices() / 2;
    const std::byte* result = nullptr;
    std::byte* const mine = nearest_dest() + offset_;
    if (half == 0) {
      result = combine_represented(cube_.member_at(0), top);
    } else {
      const std::byte* left = combine_vertices(0, half, top);
      const std::byte* right = combine_vertices(half, half, top + piece_);
      combine(left, right, mine);
      result = mine;
    }
    for (std::byte* dest : dests) {
      if (dest != nullptr && dest + offset_ != result) std::memcpy(dest + offset_, result, bytes_);
    }
    *progress += bytes_;
  }
  return *progress == all;
}

bool MappedVectors::copy(Rank root, std::byte* dest, size_t bytes, size_t budget,
                         size_t* progress) noexcept {
  const size_t now = std::min(budget, bytes - *progress);
  if (dest != sources[root]) std::memcpy(dest + *progress, sources[root] + *progress, now);
  *progress += now;
  return *progress == bytes;
}

}  // namespace hydrant
