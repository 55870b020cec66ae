// The members of a team as the vertices of a hypercube, for any number of members. If n is no power of
// two, the first 2(n-P) members form pairs, P being the largest power of two below n: the odd member of a
// pair is a vertex and represents the even one. Consecutive vertices represent consecutive members, so
// that combinations along the edges keep the order of ranks.
//
// Trees of all roots use the edges of this one graph: ceil(log2 n) + 1 peers per member.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <bit>
#include <cstdint>

namespace hydrant {

class Hypercube {
 public:
  explicit constexpr Hypercube(Rank members) noexcept
      : vertices_(std::bit_floor(members)), pairs_(members - vertices_) {}

  constexpr uint32_t vertices() const noexcept { return vertices_; }
  // True if the next member represents this one.
  constexpr bool is_represented(Rank member) const noexcept {
    return member < 2 * pairs_ && member % 2 == 0;
  }
  // True if the member represents the one before it.
  constexpr bool represents(Rank member) const noexcept {
    return member < 2 * pairs_ && member % 2 == 1;
  }
  // The vertex that is the member or represents it.
  constexpr uint32_t vertex_of(Rank member) const noexcept {
    return member < 2 * pairs_ ? member / 2 : member - pairs_;
  }
  constexpr Rank member_at(uint32_t vertex) const noexcept {
    return vertex < pairs_ ? 2 * vertex + 1 : vertex + pairs_;
  }

 private:
  uint32_t vertices_;
  uint32_t pairs_;
};

}  // namespace hydrant
