// The algorithms of collectives, against naive models, for teams of many sizes: results, order of
// combination, and numbers of messages.
#include "extended/collective/steps/schedules.hpp"

#include "extended/collective/steps/hypercube.hpp"
#include "tests/unit/extended/collective/simulated_team.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr Rank kSizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 31, 32, 33, 64};

void no_combine(const std::byte*, std::byte*, std::byte*, size_t) {
  FAIL() << "nothing to combine";
}

// Maps x to multiplier * x + addend modulo a prime. Composition is associative and not commutative.
struct Affine {
  uint32_t multiplier = 1;
  uint32_t addend = 0;
  friend bool operator==(const Affine&, const Affine&) = default;
};
Affine compose(Affine left, Affine right) {
  constexpr uint64_t kPrime = 65521;
  return {
      static_cast<uint32_t>(uint64_t{left.multiplier} * right.multiplier % kPrime),
      static_cast<uint32_t>((uint64_t{left.addend} * right.multiplier + right.addend) % kPrime)};
}
// Like a function of the client: the result is left in the right operand first.
template <typename T, typename Op>
void combine_with(Op op, const std::byte* left, std::byte* right, std::byte* out, size_t bytes) {
  ASSERT_EQ(bytes % sizeof(T), 0u);
  for (size_t at = 0; at < bytes; at += sizeof(T)) {
    T a;
    T b;
    std::memcpy(&a, left + at, sizeof(T));
    std::memcpy(&b, right + at, sizeof(T));
    const T result = op(a, b);
    std::memcpy(right + at, &result, sizeof(T));
  }
  if (out != right) std::memcpy(out, right, bytes);
}

template <typename T>
void fill(Bytes& bytes, const std::vector<T>& values) {
  std::memcpy(bytes.data(), values.data(), bytes.size());
}
template <typename T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Bytes pattern(Rank rank, size_t bytes) {
  Bytes data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(rank * 31 + i * 7 + 1);
  return data;
}

class Schedules : public ::testing::TestWithParam<Rank> {
 protected:
  Rank size() const { return GetParam(); }
  uint32_t rounds() const { return static_cast<uint32_t>(std::bit_width(size() - 1)); }
  std::mt19937 random_{size()};
};

TEST_P(Schedules, BarrierHasLogarithmicRounds) {
  SimulatedTeam team(size(), 0, 0);
  const auto build = [](Member me) {
    Schedule schedule;
    add_barrier(schedule, me, 7);
    return schedule;
  };
  EXPECT_TRUE(team.run(build, no_combine, random_));
  EXPECT_EQ(team.messages, uint64_t{size()} * rounds());
}

TEST_P(Schedules, BroadcastReachesAllFromEachRoot) {
  for (Rank root = 0; root < size(); ++root) {
    for (const auto build : {broadcast_tree, broadcast_flat, broadcast_parts}) {
      SimulatedTeam team(size(), 100, 100);
      team.sources[root] = pattern(root, 100);
      EXPECT_TRUE(team.run([&](Member me) { return build(me, root, 100); }, no_combine, random_));
      for (const Bytes& dest : team.dests) EXPECT_EQ(dest, team.sources[root]) << root;
      EXPECT_EQ(team.bytes_sent, (size() - 1) * 100u);
      if (build != broadcast_parts) {
        EXPECT_EQ(team.messages, size() - 1);
      }
    }
  }
}

TEST_P(Schedules, TreesOfAllRootsUseFewPeers) {
  std::vector<std::set<Rank>> peers(size());
  for (Rank root = 0; root < size(); ++root) {
    SimulatedTeam broadcast(size(), 8, 8);
    SimulatedTeam reduce(size(), 8, 8);
    EXPECT_TRUE(
        broadcast.run([&](Member me) { return broadcast_tree(me, root, 8); }, no_combine, random_));
    EXPECT_TRUE(reduce.run([&](Member me) { return reduce_tree(me, root, 8, 1); },
                           [](const std::byte*, std::byte*, std::byte*, size_t) {}, random_));
    for (Rank rank = 0; rank < size(); ++rank) {
      peers[rank].insert(broadcast.peers_of[rank].begin(), broadcast.peers_of[rank].end());
      peers[rank].insert(reduce.peers_of[rank].begin(), reduce.peers_of[rank].end());
    }
  }
  for (const auto& each : peers) EXPECT_LE(each.size(), rounds() + 1);
}

// The three reductions, into the members' dest.
struct Algorithm {
  const char* name;
  std::function<Schedule(Member, Rank root, size_t unit, size_t count)> build;
  bool to_all;
};
const Algorithm kReductions[] = {
    {"tree",
     [](Member me, Rank root, size_t unit, size_t count) {
       return reduce_tree(me, root, unit, count);
     },
     false},
    {"doubling",
     [](Member me, Rank, size_t unit, size_t count) {
       return reduce_all_doubling(me, unit, count);
     },
     true},
    {"halving",
     [](Member me, Rank, size_t unit, size_t count) { return reduce_all_halving(me, unit, count); },
     true},
    {"two levels, groups of 2",
     [](Member me, Rank, size_t unit, size_t count) {
       me.node_bits = 1;
       return reduce_all_two_levels(me, unit, count);
     },
     true},
    {"two levels, groups of 8",
     [](Member me, Rank, size_t unit, size_t count) {
       me.node_bits = 3;
       return reduce_all_two_levels(me, unit, count);
     },
     true}};

TEST_P(Schedules, ReductionsCombineInTheOrderOfRanks) {
  for (const Algorithm& algorithm : kReductions) {
    for (const size_t count : {size_t{1}, size_t{3}, size_t{64}, size_t{101}}) {
      for (const bool in_place : {false, true}) {
        const auto root = static_cast<Rank>(random_() % size());
        const size_t bytes = count * sizeof(Affine);
        SimulatedTeam team(size(), bytes, bytes);
        team.in_place = in_place && algorithm.to_all;
        std::vector<Affine> expected(count);
        for (Rank rank = 0; rank < size(); ++rank) {
          std::vector<Affine> mine(count);
          for (Affine& each : mine)
            each = {static_cast<uint32_t>(random_() % 65520 + 1),
                    static_cast<uint32_t>(random_() % 65521)};
          fill(team.sources[rank], mine);
          fill(team.dests[rank], mine);
          for (size_t i = 0; i < count; ++i) expected[i] = compose(expected[i], mine[i]);
        }
        const std::vector<Bytes> sources = team.sources;
        EXPECT_TRUE(
            team.run([&](Member me) { return algorithm.build(me, root, sizeof(Affine), count); },
                     [](const std::byte* left, std::byte* right, std::byte* out, size_t length) {
                       combine_with<Affine>(compose, left, right, out, length);
                     },
                     random_));
        for (Rank rank = 0; rank < size(); ++rank) {
          if (algorithm.to_all || rank == root) {
            EXPECT_EQ(values_of<Affine>(team.dests[rank]), expected)
                << algorithm.name << " rank " << rank << " root " << root << " count " << count;
          }
          EXPECT_EQ(team.sources[rank], sources[rank]) << "the source has changed";
        }
      }
    }
  }
}

TEST_P(Schedules, FloatsHaveTheSameBitsForAllAlgorithmsAndRoots) {
  constexpr size_t kCount = 67;
  std::vector<Bytes> sources(size(), Bytes(kCount * sizeof(double)));
  for (Bytes& source : sources) {
    std::vector<double> mine(kCount);
    for (double& each : mine)
      each = std::ldexp(static_cast<double>(random_()), static_cast<int>(random_() % 60));
    fill(source, mine);
  }
  Bytes expected;
  for (const Algorithm& algorithm : kReductions) {
    for (Rank root = 0; root < (algorithm.to_all ? 1 : size()); ++root) {
      SimulatedTeam team(size(), kCount * sizeof(double), kCount * sizeof(double));
      team.sources = sources;
      EXPECT_TRUE(
          team.run([&](Member me) { return algorithm.build(me, root, sizeof(double), kCount); },
                   [](const std::byte* left, std::byte* right, std::byte* out, size_t length) {
                     combine_with<double>(std::plus<>(), left, right, out, length);
                   },
                   random_));
      if (expected.empty()) expected = team.dests[root];
      for (Rank rank = 0; rank < size(); ++rank) {
        if (algorithm.to_all || rank == root) {
          EXPECT_EQ(team.dests[rank], expected) << algorithm.name;
        }
      }
    }
  }
}

TEST_P(Schedules, ReductionsSendAsMuchAsTheirFormulas) {
  constexpr size_t kCount = 1024;
  const Rank vertices = std::bit_floor(size());
  const Rank pairs = size() - vertices;
  const auto cube_rounds = static_cast<uint64_t>(std::countr_zero(vertices));
  const auto nothing = [](const std::byte*, std::byte*, std::byte*, size_t) {};
  SimulatedTeam tree(size(), kCount, kCount);
  EXPECT_TRUE(tree.run([&](Member me) { return reduce_tree(me, 0, 1, kCount); }, nothing, random_));
  EXPECT_EQ(tree.messages,
            size() - 1 + (pairs != 0 ? 1 : 0));  // rank 0 is represented, and gets the result back
  SimulatedTeam doubling(size(), kCount, kCount);
  EXPECT_TRUE(doubling.run([&](Member me) { return reduce_all_doubling(me, 1, kCount); }, nothing,
                           random_));
  EXPECT_EQ(doubling.messages, vertices * cube_rounds + 2 * pairs);
  EXPECT_EQ(doubling.bytes_sent, doubling.messages * kCount);
  SimulatedTeam halving(size(), kCount, kCount);
  EXPECT_TRUE(
      halving.run([&](Member me) { return reduce_all_halving(me, 1, kCount); }, nothing, random_));
  EXPECT_EQ(halving.messages, 2 * vertices * cube_rounds + 2 * pairs);
  EXPECT_EQ(halving.bytes_sent, 2 * kCount * (vertices - 1) + 2 * pairs * kCount);
}

// Nodes of 2^b members each.
TEST_P(Schedules, NodesSendEachOtherAsMuchAsTheFormulas) {
  if (!std::has_single_bit(size())) return;
  constexpr size_t kBytes = 4096;
  const auto nothing = [](const std::byte*, std::byte*, std::byte*, size_t) {};
  for (uint32_t bits = 0; size() >> bits != 0; ++bits) {
    const uint64_t nodes = size() >> bits;
    const auto node_rounds = static_cast<uint64_t>(std::countr_zero(nodes));
    const auto run = [&](SimulatedTeam& team, const SimulatedTeam::Builder& build) {
      for (Rank rank = 0; rank < size(); ++rank) team.nodes[rank] = rank >> bits;
      team.node_bits = bits;
      EXPECT_TRUE(team.run(build, nothing, random_));
    };
    SimulatedTeam reduce(size(), kBytes, kBytes);
    run(reduce, [&](Member me) { return reduce_all_two_levels(me, 1, kBytes); });
    EXPECT_EQ(reduce.messages_between_nodes, nodes * node_rounds);
    EXPECT_EQ(reduce.messages, nodes * node_rounds + 2 * (size() - nodes));
    SimulatedTeam halving(size(), kBytes, kBytes);
    run(halving, [&](Member me) { return reduce_all_halving(me, 1, kBytes); });
    EXPECT_EQ(halving.bytes_between_nodes, 2 * (nodes - 1) * kBytes);
    const auto root = static_cast<Rank>(random_() % size());
    SimulatedTeam tree(size(), kBytes, kBytes);
    run(tree, [&](Member me) { return broadcast_tree(me, root, kBytes); });
    EXPECT_EQ(tree.messages_between_nodes, nodes - 1);
    SimulatedTeam parts(size(), kBytes, kBytes);
    run(parts, [&](Member me) { return broadcast_parts(me, root, kBytes); });
    EXPECT_EQ(parts.bytes_between_nodes, (nodes - 1) * kBytes);
    for (Rank rank = 0; rank < size(); ++rank)
      EXPECT_LE(parts.bytes_sent_of[rank], 2 * kBytes * (size() - 1) / size());
  }
}

TEST_P(Schedules, GroupsOnANodeAreFound) {
  const Hypercube cube(size());
  for (int i = 0; i < 20; ++i) {
    // Nodes of consecutive members, of random or equal sizes.
    const auto most = static_cast<Rank>(random_() % 9 + 1);
    std::vector<uint32_t> nodes;
    for (uint32_t node = 0; nodes.size() < size(); ++node)
      nodes.resize(
          std::min<size_t>(size(), nodes.size() + (i % 2 == 0 ? most : random_() % most + 1)),
          node);
    uint32_t expected = 0;
    for (uint32_t bits = 0; cube.vertices() >> bits != 0; ++bits) {
      bool together = true;
      for (uint32_t vertex = 0; vertex < cube.vertices(); ++vertex)
        together = together &&
                   nodes[cube.member_at(vertex)] == nodes[cube.member_at(vertex >> bits << bits)];
      if (together) expected = bits;
    }
    EXPECT_EQ(node_bits_of(cube, [&](Rank rank) { return nodes[rank]; }), expected);
  }
}

TEST_P(Schedules, GathersKeepTheOrderOfRanks) {
  for (const size_t bytes : {size_t{1}, size_t{24}}) {
    Bytes expected;
    for (Rank rank = 0; rank < size(); ++rank) {
      const Bytes part = pattern(rank, bytes);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const auto root = static_cast<Rank>(random_() % size());
    const auto gathers = [&](const SimulatedTeam::Builder& build, bool to_all) {
      SimulatedTeam team(size(), bytes, bytes * size());
      for (Rank rank = 0; rank < size(); ++rank) team.sources[rank] = pattern(rank, bytes);
      EXPECT_TRUE(team.run(build, no_combine, random_));
      for (Rank rank = 0; rank < size(); ++rank) {
        if (to_all || rank == root) {
          EXPECT_EQ(team.dests[rank], expected);
        }
      }
    };
    gathers([&](Member me) { return gather_all_rounds(me, bytes); }, true);
    gathers([&](Member me) { return gather_all_flat(me, bytes); }, true);
    gathers([&](Member me) { return gather_flat(me, root, bytes); }, false);
  }
}

TEST_P(Schedules, ScatterAndExchangeDeliverEachPart) {
  constexpr size_t kPart = 5;
  const auto root = static_cast<Rank>(random_() % size());
  SimulatedTeam scatter(size(), kPart * size(), kPart);
  scatter.sources[root] = pattern(root, kPart * size());
  EXPECT_TRUE(
      scatter.run([&](Member me) { return scatter_flat(me, root, kPart); }, no_combine, random_));
  SimulatedTeam exchange(size(), kPart * size(), kPart * size());
  for (Rank rank = 0; rank < size(); ++rank) exchange.sources[rank] = pattern(rank, kPart * size());
  EXPECT_TRUE(
      exchange.run([&](Member me) { return exchange_flat(me, kPart); }, no_combine, random_));
  for (Rank rank = 0; rank < size(); ++rank) {
    EXPECT_EQ(
        std::memcmp(scatter.dests[rank].data(), scatter.sources[root].data() + rank * kPart, kPart),
        0);
    for (Rank from = 0; from < size(); ++from) {
      EXPECT_EQ(std::memcmp(exchange.dests[rank].data() + from * kPart,
                            exchange.sources[from].data() + rank * kPart, kPart),
                0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Schedules, ::testing::ValuesIn(kSizes));

}  // namespace
}  // namespace hydrant::testing
