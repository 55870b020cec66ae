// The members of a team as the vertices of a hypercube, for any number of members. If n is no power of
// two, the first 2(n-P) members form pairs, P being the largest power of two below n: the odd member of a
// pair is a vertex and represents the even one. Consecutive vertices represent consecutive members, so
// that combinations along the edges keep the order of ranks.
//
// Trees of all roots use the edges of this one graph: ceil(log2 n) + 1 peers per member.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <algorithm>
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

// The largest b such that each aligned group of 2^b vertices is on one node, which `node_of` says of each
// member.
template <typename NodeOf>
constexpr uint32_t node_bits_of(const Hypercube& cube, NodeOf&& node_of) noexcept {
  auto bits = static_cast<uint32_t>(std::countr_zero(cube.vertices()));
  auto before = node_of(cube.member_at(0));
  for (uint32_t vertex = 1; vertex < cube.vertices() && bits != 0; ++vertex) {
    const auto node = node_of(cube.member_at(vertex));
    // A group begins here.
    if (node != before) bits = std::min(bits, static_cast<uint32_t>(std::countr_zero(vertex)));
    before = node;
  }
  return bits;
}

}  // namespace hydrant
