// Leases of a target's memory: the arithmetic alone, without messages.
#include "firehose/remote/target/lease_table.hpp"

#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace hydrant {
namespace {

using testing::kPage;

bool take(LeaseTable& leases, uint32_t peer, uint64_t bytes, bool is_short = false) {
  if (!leases.admit(peer, bytes, is_short)) return false;
  leases.grant(peer, bytes);
  return true;
}

TEST(LeaseTable, BaseIsSplitBetweenThePeers) {
  LeaseTable leases;
  ASSERT_TRUE(leases.set_up(120 * kPage, 4, 50));
  for (uint32_t peer = 0; peer < 4; ++peer) EXPECT_EQ(leases.terms(peer).bytes, 20 * kPage);
  EXPECT_EQ(leases.lent(), 0u);
}

TEST(LeaseTable, FixedSplitIsNeverExceeded) {
  LeaseTable leases;
  ASSERT_TRUE(leases.set_up(30 * kPage, 4, 100));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(take(leases, 1, kPage));
  EXPECT_FALSE(take(leases, 1, kPage, true));
  leases.ask(1, kPage);
  EXPECT_EQ(leases.terms(1).bytes, 10 * kPage);
  EXPECT_EQ(leases.terms(1).number, 1u) << "nothing to tell";
  EXPECT_FALSE(leases.has_change());
}

TEST(LeaseTable, SinglePeerMayLeaseTheWholePool) {
  LeaseTable leases;
  ASSERT_TRUE(leases.set_up(60 * kPage, 4, 50));
  uint64_t had = 0;
  while (take(leases, 2, kPage)) ++had;
  EXPECT_EQ(had, 40u);  // its base of 10, and the 30 of the pool
  EXPECT_EQ(leases.lent(), 30 * kPage);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(take(leases, 1, kPage)) << "its own for sure";
}

TEST(LeaseTable, IdlePeersLeaseIsCutAndReported) {
  LeaseTable leases;
  ASSERT_TRUE(leases.set_up(60 * kPage, 4, 50));
  while (take(leases, 2, kPage)) {
  }
  const uint32_t before = leases.terms(2).number;
  int asked = 0;
  while (!leases.has_change() && asked < 1000) {
    ++asked;
    (void)leases.admit(1, 20 * kPage, true);
  }
  ASSERT_TRUE(leases.has_change());
  uint32_t told = 0;
  ASSERT_TRUE(leases.take_change(&told));
  EXPECT_EQ(told, 2u);
  EXPECT_FALSE(leases.take_change(&told));
  EXPECT_GT(leases.terms(2).number, before);
  EXPECT_LT(leases.terms(2).bytes, leases.held(2));
  EXPECT_FALSE(leases.admit(2, kPage, false)) << "no grant before a release";
  // The amount that it releases is lent to other peers.
  const uint64_t lease = leases.terms(1).bytes;
  leases.release(2, leases.held(2));
  (void)leases.admit(1, 20 * kPage, true);
  EXPECT_GT(leases.terms(1).bytes, lease);
}

TEST(LeaseTable, LeaseOfADeadPeerReturnsToThePool) {
  LeaseTable leases;
  ASSERT_TRUE(leases.set_up(60 * kPage, 4, 50));
  const uint64_t base = leases.terms(2).bytes;
  while (take(leases, 2, kPage)) {
  }
  leases.forget(2);
  EXPECT_EQ(leases.lent(), 0u);
  EXPECT_EQ(leases.held(2), 0u);
  EXPECT_EQ(leases.terms(2).bytes, base);
  uint64_t had = 0;
  while (take(leases, 1, kPage)) ++had;
  EXPECT_EQ(had, 40u);
}

TEST(LeaseTable, LargestHolderIsFound) {
  LeaseTable leases;
  ASSERT_TRUE(leases.set_up(60 * kPage, 4, 50));
  const auto skip_none = [](uint32_t) { return false; };
  EXPECT_EQ(leases.largest_holder(skip_none), 4u) << "no peer holds memory";
  leases.grant(1, kPage);
  leases.grant(3, 2 * kPage);
  EXPECT_EQ(leases.largest_holder(skip_none), 3u);
  leases.release(3, 2 * kPage);
  EXPECT_EQ(leases.largest_holder(skip_none), 1u);
  EXPECT_NE(leases.largest_holder([](uint32_t peer) { return peer == 1; }), 1u) << "passed over";
}

TEST(LeaseTable, ZeroBudgetGrantsNothing) {
  for (const uint64_t budget : {uint64_t{0}, kPage - 1}) {
    LeaseTable leases;
    ASSERT_TRUE(leases.set_up(budget, 3, 50));
    EXPECT_FALSE(take(leases, 1, kPage));
    EXPECT_FALSE(take(leases, 1, kPage, true));
    leases.ask(1, kPage);
    EXPECT_LE(leases.terms(1).bytes, budget);
  }
}

// Leases and holdings together stay below the budget after any sequence of grants, and the sums are right.
TEST(LeaseTable, RandomGrantsStayWithinTheBudget) {
  for (const uint32_t ranks : {2u, 3u, 9u, 64u}) {
    for (const uint32_t percent : {1u, 50u, 99u, 100u}) {
      const uint64_t budget = 256 * kPage + 7;
      LeaseTable leases;
      ASSERT_TRUE(leases.set_up(budget, ranks, percent));
      const uint64_t base = leases.terms(1).bytes;
      std::mt19937_64 random(ranks * 1000 + percent);
      std::vector<std::vector<uint64_t>> has(ranks);
      for (int step = 0; step < 20000; ++step) {
        const auto peer = static_cast<uint32_t>(1 + random() % (ranks - 1));
        auto& mine = has[peer];
        switch (random() % 8) {
          case 0:
          case 1:
          case 2: {
            const uint64_t bytes = kPage * (1 + random() % 16);
            if (take(leases, peer, bytes, random() % 4 == 0)) mine.push_back(bytes);
            break;
          }
          case 3:
          case 4:
            if (mine.empty()) break;
            leases.release(peer, mine.back());
            mine.pop_back();
            break;
          case 5: leases.ask(peer, kPage * (random() % 64)); break;
          case 6: {
            uint32_t told = 0;
            if (leases.has_change()) {
              EXPECT_TRUE(leases.take_change(&told));
            }
            break;
          }
          default:
            if (random() % 50 != 0) break;
            leases.forget(peer);
            mine.clear();
        }
        uint64_t lent = 0, all = 0;
        for (uint32_t p = 1; p < ranks; ++p) {
          const uint64_t larger = std::max(leases.terms(p).bytes, leases.held(p));
          all += larger;
          lent += std::max(larger, base) - base;
        }
        ASSERT_EQ(leases.lent(), lent) << "step " << step;
        ASSERT_LE(all, budget) << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace hydrant
