// Collectives of vectors that all members have mapped: each member does its part of the work directly from
// the sources of all members into the destinations, in pieces that fit into a processor's first cache.
//
// A reduction divides the vector into ranges, one per member, which begin at cache lines. A member combines
// its range of all sources, along the tree over consecutive ranks that all algorithms use
// (schedules.hpp), and copies the result to the destinations. No other member reads or writes the range, so
// that sources and destinations may be the same memory. If destinations are not mapped, each member combines
// the whole vector for itself, from copies of the sources.
//
// Threads: callers serialise.
#pragma once

#include "extended/collective/node/fixed_array.hpp"
#include "extended/collective/steps/hypercube.hpp"
#include "extended/collective/steps/reduction.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant {

class MappedVectors {
 public:
  MappedVectors(Rank rank, Rank size) noexcept;

  // False: no memory.
  bool ok() const noexcept { return sources.ok() && dests.ok(); }

  // By member; null where the operation has none.
  FixedArray<const std::byte*> sources;
  FixedArray<std::byte*> dests;

  // Allocates memory for intermediate results. False: no memory.
  bool reserve(const Reduction& reduction) noexcept;

  // The bytes [first, end) of vectors.
  struct Range {
    size_t first = 0;
    size_t end = 0;
  };
  // Combines at most `budget` bytes, or one piece, of a range. `*progress` is the number of its bytes that
  // are done. True: all are done.
  bool reduce(const Reduction& reduction, Range range, size_t budget, size_t* progress) noexcept;
  // Copies at most `budget` bytes of the source of `root` to `dest`. True: all are done.
  bool copy(Rank root, std::byte* dest, size_t bytes, size_t budget, size_t* progress) noexcept;

  // The range that a member combines.
  static Range range_of(Rank rank, Rank size, size_t unit, size_t bytes) noexcept;

 private:
  // Combines the sources of consecutive vertices. Returns the result's place: a source, or `out`.
  const std::byte* combine_vertices(uint32_t first, uint32_t count, std::byte* out) noexcept;
  const std::byte* combine_represented(Rank member, std::byte* out) noexcept;
  // That of this member, if it has one.
  std::byte* nearest_dest() const noexcept;
  // Into `out`, which may be the left operand, and the destination of this member.
  void combine(const std::byte* left, const std::byte* right, std::byte* out) const noexcept;

  const Rank rank_;
  const Hypercube cube_;
  std::unique_ptr<std::byte[]> scratch_;
  size_t scratch_bytes_ = 0;

  // The current piece.
  const Reduction* reduction_ = nullptr;
  size_t offset_ = 0;
  size_t bytes_ = 0;
  size_t piece_ = 0;  // the most bytes of a piece, and the distance of places in scratch_
};

}  // namespace hydrant
