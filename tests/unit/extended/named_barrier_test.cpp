// GASNet-1's rules of names, for all combinations of three ranks, against rules that are written here
// independently of the implementation.
#include "extended/barrier/named_barrier.hpp"

#include "tests/unit/extended/barrier_world.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <set>

namespace hydrant {
namespace {

using test::Algorithm;
using test::BarrierWorld;
using test::kAlgorithms;

struct Argument {
  int id;
  int flags;
};
// Every kind of argument, with enough ids for three ranks to differ, and equal ids with anonymous flags.
constexpr Argument kArguments[] = {
    {1, 0},
    {2, 0},
    {-3, 0},
    {0, 0},
    {1, GASNET_BARRIERFLAG_ANONYMOUS},
    {7, GASNET_BARRIERFLAG_ANONYMOUS},
    {1, GASNET_BARRIERFLAG_MISMATCH},
    {0, GASNET_BARRIERFLAG_MISMATCH | GASNET_BARRIERFLAG_ANONYMOUS},
};
constexpr size_t kArgumentCount = std::size(kArguments);

// ---- the rules of the specification ----

bool says_mismatch(const Argument& argument) {
  return (argument.flags & GASNET_BARRIERFLAG_MISMATCH) != 0;
}
bool has_name(const Argument& argument) {
  return !says_mismatch(argument) && (argument.flags & GASNET_BARRIERFLAG_ANONYMOUS) == 0;
}

struct Expected {
  bool matched;
  std::optional<int> name;  // of gasnet_barrier_result()
};

Expected expect(const std::vector<Argument>& notified, const Argument& waited) {
  std::set<int> names;
  bool mismatch = false;
  for (const Argument& argument : notified) {
    if (says_mismatch(argument)) mismatch = true;
    if (has_name(argument)) names.insert(argument.id);
  }
  if (names.size() > 1) mismatch = true;
  Expected expected{.matched = !mismatch, .name = std::nullopt};
  if (!mismatch && names.size() == 1) expected.name = *names.begin();
  if (says_mismatch(waited)) expected.matched = false;
  if (has_name(waited) && names.size() == 1 && *names.begin() != waited.id)
    expected.matched = false;
  return expected;
}

class Ranks {
 public:
  Ranks(Algorithm algorithm, uint32_t size, bool strict) : world(algorithm, size) {
    for (Rank rank = 0; rank < size; ++rank)
      barriers.push_back(
          std::make_unique<NamedBarrier>(world.release(rank), progress[rank], strict));
  }
  // All ranks notify, then all wait; returns the results of all ranks.
  std::vector<bool> meet(const std::vector<Argument>& notified,
                         const std::vector<Argument>& waited) {
    const auto size = static_cast<Rank>(barriers.size());
    for (Rank rank = 0; rank < size; ++rank)
      barriers[rank]->notify(notified[rank].id, notified[rank].flags);
    std::vector<bool> matched(size);
    std::vector<bool> done(size);
    // Enough polls for any algorithm with so few ranks.
    for (int look = 0; look < 20; ++look) {
      for (Rank rank = 0; rank < size; ++rank) {
        world.deliver_all_to(rank);
        progress[rank].run();
        bool answer = false;
        if (done[rank] || !barriers[rank]->finish(waited[rank].id, waited[rank].flags, &answer))
          continue;
        done[rank] = true;
        matched[rank] = answer;
      }
    }
    for (Rank rank = 0; rank < size; ++rank) EXPECT_TRUE(done[rank]) << "rank " << rank;
    return matched;
  }

  BarrierWorld world;
  ProgressTable progress[8];
  std::vector<std::unique_ptr<NamedBarrier>> barriers;
};

class NamedBarrierTest : public ::testing::TestWithParam<Algorithm> {};

TEST_P(NamedBarrierTest, AllCombinationsOfThreeRanksFollowTheRules) {
  Ranks ranks(GetParam(), 3, true);
  size_t matches = 0;
  size_t cases = 0;
  for (size_t combination = 0; combination < kArgumentCount * kArgumentCount * kArgumentCount;
       ++combination) {
    const std::vector<Argument> notified = {
        kArguments[combination % kArgumentCount],
        kArguments[combination / kArgumentCount % kArgumentCount],
        kArguments[combination / kArgumentCount / kArgumentCount]};
    for (size_t shift = 0; shift < kArgumentCount; ++shift, ++cases) {
      const std::vector<Argument> waited = {kArguments[shift],
                                            kArguments[(shift + 1) % kArgumentCount],
                                            kArguments[(shift + 3) % kArgumentCount]};
      const std::vector<bool> matched = ranks.meet(notified, waited);
      for (Rank rank = 0; rank < 3; ++rank) {
        const Expected expected = expect(notified, waited[rank]);
        ASSERT_EQ(matched[rank], expected.matched)
            << "combination " << combination << " shift " << shift << " rank " << rank;
        int id = 4711;
        const int result = ranks.barriers[rank]->result(&id);
        ASSERT_EQ(result == 0, expected.name.has_value()) << "combination " << combination;
        ASSERT_EQ(id, expected.name.value_or(4711)) << "combination " << combination;
        matches += expected.matched ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(cases, 8u * 8 * 8 * 8);
  // The test covers both results.
  EXPECT_GT(matches, cases / 10);
  EXPECT_LT(matches, 3 * cases);
  EXPECT_EQ(ranks.world.refused, 0u);
}

TEST_P(NamedBarrierTest, UnnamedBarriersStillReportMismatches) {
  Ranks ranks(GetParam(), 5, true);
  const Argument unnamed{0, GASNET_BARRIERFLAG_UNNAMED};
  std::vector<Argument> all(5, unnamed);
  EXPECT_EQ(ranks.meet(all, all), std::vector<bool>(5, true));
  int id = 0;
  EXPECT_NE(ranks.barriers[2]->result(&id), 0);
  for (Rank odd = 0; odd < 5; ++odd) {
    std::vector<Argument> one = all;
    one[odd].flags |= GASNET_BARRIERFLAG_MISMATCH;
    EXPECT_EQ(ranks.meet(one, all), std::vector<bool>(5, false)) << odd;
  }
  EXPECT_EQ(ranks.meet(all, all), std::vector<bool>(5, true));
}

TEST_P(NamedBarrierTest, NonStrictAnonymousBarriersSendNoNames) {
  Ranks strict(GetParam(), 5, true);
  Ranks loose(GetParam(), 5, false);
  const std::vector<Argument> anonymous(5, {9, GASNET_BARRIERFLAG_ANONYMOUS});
  const std::vector<Argument> named(5, {9, 0});
  for (Ranks* ranks : {&strict, &loose}) {
    EXPECT_EQ(ranks->meet(anonymous, anonymous), std::vector<bool>(5, true));
  }
  EXPECT_EQ(strict.world.sent_with_id, strict.world.sent);
  EXPECT_EQ(loose.world.sent_with_id, 0u);
  // Only the rank that passes the mismatch, and the rank that detects it, send names.
  std::vector<Argument> one = anonymous;
  one[3].flags |= GASNET_BARRIERFLAG_MISMATCH;
  const uint64_t before = loose.world.sent;
  EXPECT_EQ(loose.meet(one, anonymous), std::vector<bool>(5, false));
  if (loose.world.has_active_messages()) {
    EXPECT_GT(loose.world.sent_with_id, 0u);
    EXPECT_LT(loose.world.sent_with_id, loose.world.sent - before);
  }
  EXPECT_EQ(loose.meet(named, named), std::vector<bool>(5, true));
  int id = 0;
  EXPECT_EQ(loose.barriers[4]->result(&id), 0);
  EXPECT_EQ(id, 9);
}

TEST_P(NamedBarrierTest, OneRankMatchesAtOnce) {
  Ranks ranks(GetParam(), 1, true);
  NamedBarrier& barrier = *ranks.barriers[0];
  int id = 0;
  EXPECT_NE(barrier.result(&id), 0);
  EXPECT_FALSE(barrier.is_open());
  barrier.notify(5, 0);
  EXPECT_TRUE(barrier.is_open());
  bool matched = false;
  ASSERT_TRUE(barrier.finish(5, 0, &matched));
  EXPECT_TRUE(matched);
  EXPECT_FALSE(barrier.is_open());
  EXPECT_EQ(barrier.result(&id), 0);
  EXPECT_EQ(id, 5);
  barrier.notify(5, 0);
  ASSERT_TRUE(barrier.finish(6, 0, &matched));
  EXPECT_FALSE(matched);
}

TEST_P(NamedBarrierTest, PollsDriveTheBarrierOnlyWhileOpen) {
  Ranks ranks(GetParam(), 4, true);
  for (Rank rank = 0; rank < 4; ++rank) ranks.barriers[rank]->notify(0, 0);
  const bool is_rdma = GetParam().kind == Algorithm::kRdma && GetParam().radix != 0;
  EXPECT_EQ(ranks.progress[0].silent_work().is_there, is_rdma);
  // No rank calls finish(): polls alone complete the barrier.
  for (int look = 0; look < 20; ++look) {
    for (Rank rank = 0; rank < 4; ++rank) {
      ranks.world.deliver_all_to(rank);
      ranks.progress[rank].run();
    }
  }
  for (Rank rank = 0; rank < 4; ++rank) {
    bool matched = false;
    ASSERT_TRUE(ranks.barriers[rank]->finish(0, 0, &matched)) << rank;
    EXPECT_TRUE(matched);
    EXPECT_EQ(ranks.progress[rank].run(), 0u);
    EXPECT_FALSE(ranks.progress[rank].silent_work().is_there);
  }
}

INSTANTIATE_TEST_SUITE_P(All, NamedBarrierTest, ::testing::ValuesIn(kAlgorithms),
                         [](const auto& kind) { return kind.param.name(); });

}  // namespace
}  // namespace hydrant
