// The algorithms of collective operations: builders of schedules. Costs are for n members; a message is a
// send and its receive.
//
// Reductions: the order of combination is the binary tree over consecutive ranks that Hypercube gives,
// whatever the algorithm, the root, the length and the arrival of messages. Results are therefore the same
// bits on all members, in every run, and for both reductions; operations need not be commutative.
//
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
// 2005.
#pragma once

#include "extended/collective/steps/schedule.hpp"

namespace hydrant {

struct Member {
  Rank rank = 0;
  Rank size = 1;
  // Each aligned group of 2^node_bits vertices of the team's hypercube is on one node (hypercube.hpp).
  uint32_t node_bits = 0;
};

// Dissemination: ceil(log2 n) rounds of one empty message. Several may stand in one schedule, with
// different tags.
void add_barrier(Schedule& schedule, Member me, uint32_t first_tag) noexcept;
inline constexpr uint32_t kTagsBefore = 1000;
inline constexpr uint32_t kTagsBehind = 2000;

// Source of the root to dest of all. Binomial tree over the hypercube: at most ceil(log2 n) + 1 messages
// deep.
Schedule broadcast_tree(Member me, Rank root, size_t bytes) noexcept;
// The root sends to each member: one message deep, for data that members read from the root's memory.
Schedule broadcast_flat(Member me, Rank root, size_t bytes) noexcept;

// The root's data are divided among all members, which then gather the parts: along each edge of the
// hypercube twice, 2 (n-1)/n of the vector for each member. Nodes send each other every byte once.
Schedule broadcast_parts(Member me, Rank root, size_t bytes) noexcept;

// The vector of `count` elements of `unit` bytes, combined over all members, into dest of the root.
// Binomial tree.
Schedule reduce_tree(Member me, Rank root, size_t unit, size_t count) noexcept;
// Into dest of all members. The members of each group on a node combine their vectors by a binomial tree,
// one of them does the exchanges of recursive doubling, and the tree returns the result: log2 g exchanges
// between nodes for each group, for g groups.
Schedule reduce_all_two_levels(Member me, size_t unit, size_t count) noexcept;
// The same with groups of one member, wherever the members are: log2 n exchanges of the whole vector.
Schedule reduce_all_doubling(Member me, size_t unit, size_t count) noexcept;
// Into dest of all members. Halves of the vector are exchanged and combined, then quarters, and so on;
// gathering the parts reverses it (Rabenseifner): 2 log2 n exchanges, of less than two vectors together.
Schedule reduce_all_halving(Member me, size_t unit, size_t count) noexcept;

// Source of all, `bytes` each, to dest of all, in the order of ranks. Bruck: ceil(log2 n) messages, for
// small data.
Schedule gather_all_rounds(Member me, size_t bytes) noexcept;
// Each member sends to all others: one message deep.
Schedule gather_all_flat(Member me, size_t bytes) noexcept;
// Source of all, `bytes` each, to dest of the root, in the order of ranks.
Schedule gather_flat(Member me, Rank root, size_t bytes) noexcept;
// `bytes` of the root's source to dest of each member, in the order of ranks.
Schedule scatter_flat(Member me, Rank root, size_t bytes) noexcept;
// `bytes` for each member from source to dest of that member, at the place of the sender's rank. Pairwise.
Schedule exchange_flat(Member me, size_t bytes) noexcept;

}  // namespace hydrant
