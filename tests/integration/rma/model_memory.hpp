// Local memory of the model's operations, and the expected contents of remote memory.
#pragma once

#include "tests/integration/rma/client.hpp"

#include <cstddef>
#include <random>
#include <vector>

namespace rma_client {

using Random = std::mt19937_64;
inline size_t below(Random& random, size_t limit) { return limit == 0 ? 0 : random() % limit; }

// The initial byte of an area. Varies, so that a moved byte is detected.
inline std::byte initial_byte(uint32_t which, size_t offset) {
  return static_cast<std::byte>((offset * 0x9e3779b1u >> 13) + which);
}

// Local memory of one operation, surrounded by guard bytes that must not change.
class Local {
 public:
  enum Kind : uint32_t { kHeapBlock, kBeforeHole, kOwnSegment, kConstant, kKinds };

  Local() = default;
  // kConstant is read-only memory. kOwnSegment becomes kHeapBlock if there is no room.
  Local(Kind kind, size_t bytes, Random& random, class SegmentRoom& room);
  Local(Local&& other) noexcept { swap(other); }
  Local& operator=(Local&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Local() { release(); }

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool is_constant() const { return kind_ == kConstant; }
  // Overwrites the memory, as a caller may after completion. Ends the job if the guard bytes have changed.
  void scribble();
  void check_guards() const;
  void release();

 private:
  void swap(Local& other) noexcept;

  Kind kind_ = kHeapBlock;
  std::byte* base_ = nullptr;  // null: empty
  size_t base_bytes_ = 0;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  SegmentRoom* room_ = nullptr;
};

// A thread's part of its rank's segment: allocated from the front, freed as a whole.
class SegmentRoom {
 public:
  SegmentRoom(std::byte* first, size_t bytes) : first_(first), bytes_(bytes) {}
  std::byte* take(size_t bytes) {
    if (bytes > bytes_ - used_) return nullptr;
    std::byte* taken = first_ + used_;
    used_ += bytes;
    ++out_;
    return taken;
  }
  void give() {
    if (--out_ == 0) used_ = 0;
  }

 private:
  std::byte* first_;
  size_t bytes_;
  size_t used_ = 0;
  size_t out_ = 0;
};

// The part of one area of one rank that only one thread of one rank writes. Neighbouring slices share
// words.
struct Slice {
  gex_Rank_t rank = 0;
  Area which = kSegment;
  size_t first = 0;              // offset in the area
  std::vector<std::byte> holds;  // contents when all started operations are complete

  Slice(gex_Rank_t owner, Area an_area, size_t index, size_t slices);
  std::byte* at(size_t offset) const { return area(rank, which) + first + offset; }
};

// Returns 0, a few bytes, sizes around powers of two and pages, or anything up to `most`.
size_t random_size(Random& random, size_t most);

}  // namespace rma_client
