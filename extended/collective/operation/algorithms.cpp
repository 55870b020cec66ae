// Chooses the algorithms of collective operations. The calls (collective_calls.cpp, collective1_calls.cpp)
// and node teams that cannot use shared memory start what it builds.
#include "extended/collective/operation/algorithms.hpp"

#include "extended/collective/mailbox/mailbox_choice.hpp"
#include "extended/collective/operation/operation.hpp"
#include "extended/collective/steps/hypercube.hpp"
#include "rdma/config/job_knobs.hpp"

#include <atomic>
#include <initializer_list>
#include <string_view>

namespace hydrant {
namespace {

// From this length on a reduction to all is bound by its bytes, not by the number of its exchanges.
constexpr size_t kHalvingBytes = 16384;
// From this length on a broadcast among nodes is bound by the bytes that the root sends.
constexpr size_t kPartsBytes = 262144;
constexpr uint32_t kPartsGroups = 4;  // and from this number of groups on

constexpr std::array<const char*, kAlgorithms> kNames = {
    "barrier_rounds",    "broadcast_tree",      "broadcast_flat",     "broadcast_parts",
    "reduce_tree",       "reduce_all_doubling", "reduce_all_halving", "reduce_all_two_levels",
    "gather_all_rounds", "gather_all_flat",     "gather_flat",        "scatter_flat",
    "exchange_flat"};

constinit std::atomic<uint64_t> g_counts[kAlgorithms] = {};

Schedule counted(Algorithm algorithm, Schedule schedule) noexcept {
  g_counts[static_cast<size_t>(algorithm)].fetch_add(1, std::memory_order_relaxed);
  return schedule;
}

// The knob's choices are "auto", and those that are listed.
Algorithm forced_or(JobKnob knob, Algorithm automatic,
                    std::initializer_list<Algorithm> listed) noexcept {
  const uint64_t choice = knob_number(knob);
  return choice == 0 ? automatic : listed.begin()[choice - 1];
}

// The members' groups on nodes: fewer than the vertices of the hypercube if some share a node.
uint32_t groups_of(Member me) noexcept { return Hypercube(me.size).vertices() >> me.node_bits; }
bool has_two_levels(Member me) noexcept { return me.node_bits != 0 && groups_of(me) > 1; }

}  // namespace

const char* algorithm_name(Algorithm algorithm) noexcept {
  return kNames[static_cast<size_t>(algorithm)];
}

uint32_t collective_choices() noexcept {
  uint64_t all = 0;
  for (const JobKnob knob : {JobKnob::kCollNode, JobKnob::kCollBroadcast, JobKnob::kCollReduceAll,
                             JobKnob::kCollGatherAll})
    all = all * 4 + knob_number(knob);
  all = all * 4 + (wants_mailboxes() ? 1 : 0);
  return static_cast<uint32_t>(all);
}

// Members get large data from the root's own memory. A team within a node chooses in node_team.cpp.
Algorithm choose_broadcast(Member me, size_t bytes) noexcept {
  const Algorithm automatic = bytes <= eager_bytes() ? Algorithm::kBroadcastTree
                              : bytes < kPartsBytes || groups_of(me) < kPartsGroups
                                  ? Algorithm::kBroadcastFlat
                                  : Algorithm::kBroadcastParts;
  return forced_or(
      JobKnob::kCollBroadcast, automatic,
      {Algorithm::kBroadcastTree, Algorithm::kBroadcastFlat, Algorithm::kBroadcastParts});
}
Algorithm choose_reduce_all(Member me, size_t unit, size_t count) noexcept {
  const Algorithm small =
      has_two_levels(me) ? Algorithm::kReduceAllTwoLevels : Algorithm::kReduceAllDoubling;
  const Algorithm chosen = forced_or(
      JobKnob::kCollReduceAll, unit * count >= kHalvingBytes ? Algorithm::kReduceAllHalving : small,
      {Algorithm::kReduceAllDoubling, Algorithm::kReduceAllHalving,
       Algorithm::kReduceAllTwoLevels});
  // Each member keeps a part of the vector.
  return chosen == Algorithm::kReduceAllHalving && count < me.size ? small : chosen;
}
uint32_t mailbox_node_bits(Member me) noexcept {
  return choose_reduce_all(me, 1, 1) == Algorithm::kReduceAllTwoLevels ? me.node_bits : 0;
}
Algorithm choose_gather_all(size_t bytes) noexcept {
  return forced_or(JobKnob::kCollGatherAll,
                   bytes > eager_bytes() ? Algorithm::kGatherAllFlat : Algorithm::kGatherAllRounds,
                   {Algorithm::kGatherAllRounds, Algorithm::kGatherAllFlat});
}

Schedule make_barrier(Member me) noexcept {
  Schedule schedule;
  add_barrier(schedule, me, 0);
  return counted(Algorithm::kBarrierRounds, std::move(schedule));
}
Schedule make_broadcast(Member me, Rank root, size_t bytes) noexcept {
  const Algorithm chosen = choose_broadcast(me, bytes);
  return counted(chosen, chosen == Algorithm::kBroadcastFlat    ? broadcast_flat(me, root, bytes)
                         : chosen == Algorithm::kBroadcastParts ? broadcast_parts(me, root, bytes)
                                                                : broadcast_tree(me, root, bytes));
}
Schedule make_reduce(Member me, Rank root, size_t unit, size_t count) noexcept {
  return counted(Algorithm::kReduceTree, reduce_tree(me, root, unit, count));
}
Schedule make_reduce_all(Member me, size_t unit, size_t count) noexcept {
  const Algorithm chosen = choose_reduce_all(me, unit, count);
  return counted(chosen,
                 chosen == Algorithm::kReduceAllHalving     ? reduce_all_halving(me, unit, count)
                 : chosen == Algorithm::kReduceAllTwoLevels ? reduce_all_two_levels(me, unit, count)
                                                            : reduce_all_doubling(me, unit, count));
}
Schedule make_gather_all(Member me, size_t bytes) noexcept {
  const Algorithm chosen = choose_gather_all(bytes);
  return counted(chosen, chosen == Algorithm::kGatherAllFlat ? gather_all_flat(me, bytes)
                                                             : gather_all_rounds(me, bytes));
}
Schedule make_gather(Member me, Rank root, size_t bytes) noexcept {
  return counted(Algorithm::kGatherFlat, gather_flat(me, root, bytes));
}
Schedule make_scatter(Member me, Rank root, size_t bytes) noexcept {
  return counted(Algorithm::kScatterFlat, scatter_flat(me, root, bytes));
}
Schedule make_exchange(Member me, size_t bytes) noexcept {
  return counted(Algorithm::kExchangeFlat, exchange_flat(me, bytes));
}

std::array<uint64_t, kAlgorithms> algorithm_counts() noexcept {
  std::array<uint64_t, kAlgorithms> counts;
  for (size_t i = 0; i < kAlgorithms; ++i) counts[i] = g_counts[i].load(std::memory_order_relaxed);
  return counts;
}

}  // namespace hydrant
