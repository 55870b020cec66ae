// The choice among the algorithms of collective operations (schedules.hpp), by length, team and the knobs
// HYDRANT_COLL_*, and the number of operations by algorithm.
//
// All members of a team have to choose the same, so the choice depends on nothing else, and the knobs are
// compared among the ranks at start-up.
#pragma once

#include "extended/collective/steps/schedules.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace hydrant {

enum class Algorithm : uint8_t {
  kBarrierRounds,
  kBroadcastTree,
  kBroadcastFlat,
  kBroadcastParts,
  kReduceTree,
  kReduceAllDoubling,
  kReduceAllHalving,
  kReduceAllTwoLevels,
  kGatherAllRounds,
  kGatherAllFlat,
  kGatherFlat,
  kScatterFlat,
  kExchangeFlat,
  kEnd,  // not an algorithm
};
constexpr size_t kAlgorithms = static_cast<size_t>(Algorithm::kEnd);

// As in HYDRANT_STATS: "broadcast_tree".
const char* algorithm_name(Algorithm algorithm) noexcept;

// A value of each knob, and whether mailboxes are used, as one number: equal if all ranks choose alike.
uint32_t collective_choices() noexcept;

// Each builds this member's schedule, and counts it.
Schedule make_barrier(Member me) noexcept;
Schedule make_broadcast(Member me, Rank root, size_t bytes) noexcept;
Schedule make_reduce(Member me, Rank root, size_t unit, size_t count) noexcept;
Schedule make_reduce_all(Member me, size_t unit, size_t count) noexcept;
Schedule make_gather_all(Member me, size_t bytes) noexcept;
Schedule make_gather(Member me, Rank root, size_t bytes) noexcept;
Schedule make_scatter(Member me, Rank root, size_t bytes) noexcept;
Schedule make_exchange(Member me, size_t bytes) noexcept;

// The algorithms that the calls above use; for tests.
Algorithm choose_broadcast(Member me, size_t bytes) noexcept;
Algorithm choose_reduce_all(Member me, size_t unit, size_t count) noexcept;
Algorithm choose_gather_all(size_t bytes) noexcept;

// Member::node_bits for reductions in mailboxes: 0 if they have one level.
uint32_t mailbox_node_bits(Member me) noexcept;

// Operations of this process by algorithm.
std::array<uint64_t, kAlgorithms> algorithm_counts() noexcept;

}  // namespace hydrant
