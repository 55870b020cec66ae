// Remote pins: peers are charged for what they hold here, and their releases make room.
#include "tests/support/remote_pin_cluster.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace hydrant::testing {
namespace {

RemotePinCluster::Settings fixed_split(uint32_t ranks, size_t pages_of_each) {
  RemotePinCluster::Settings settings = exact(ranks);
  settings.options.base_percent = 100;
  settings.options.budget_bytes = (ranks - 1) * pages_of_each * kPage;
  return settings;
}

// Pins and releases a page of rank 1; false if the pin failed.
bool use_page_of_1(RemotePinCluster& world, uint32_t from, size_t page) {
  RemoteResult result;
  remote_pin(world, from, 1, world[1].arena.addr(page), kPage, &result);
  world.settle();
  return result.held() && hydrant_remote_release(result.pin) == GASNET_OK;
}

// Pages of rank 1 that need no message.
size_t hits(RemotePinCluster& world, uint32_t from, size_t pages) {
  size_t found = 0;
  for (size_t page = 0; page < pages; ++page) {
    const hydrant_pin_t pin = hydrant_try_remote_pin(world[from].end, 1, world[1].arena.addr(page),
                                                     kPage, HYDRANT_REMOTE_WRITE);
    if (pin.region == nullptr) continue;
    ++found;
    hydrant_remote_release(pin);
  }
  return found;
}

TEST(RemoteQuotas, MergedNeighboursCountAgainstTheQuota) {
  // The target's domain joins neighbours, whichever peer requested them.
  RemotePinCluster world(fixed_split(3, 8));
  for (size_t page = 0; page < 32; ++page) {
    ASSERT_TRUE(use_page_of_1(world, 0, page)) << page;
    ASSERT_LE(hits(world, 0, 32), 8u) << page;
    ASSERT_LE(world.stats(1).exported_bytes, 8 * kPage) << page;
    // (A firehose that it no longer uses is released with its next move.)
    ASSERT_LE(world.stats(0).firehose_bytes, world.stats(1).exported_bytes) << page;
  }
  EXPECT_TRUE(use_page_of_1(world, 2, 0)) << "another's quota is still there";
}

TEST(RemoteQuotas, SupersetIsGrantedWhereTheQuotaAllowsIt) {
  RemotePinCluster world(fixed_split(3, 8));
  ASSERT_TRUE(use_page_of_1(world, 0, 4));
  ASSERT_TRUE(use_page_of_1(world, 0, 5));
  ASSERT_TRUE(use_page_of_1(world, 2, 4));
  EXPECT_EQ(hits(world, 2, 16), 2u);
  EXPECT_EQ(world.stats(2).firehose_bytes, 2 * kPage);
}

TEST(RemoteQuotas, SetOfExactlyTheBudgetIsHeldWhole) {
  RemotePinCluster::Settings settings = fixed_split(2, 16);
  settings.domain_bytes = 16 * kPage;
  for (const size_t merge : {size_t{1}, 16 * kPage}) {
    settings.options.merge_bytes = merge;
    RemotePinCluster world(settings);
    for (int round = 0; round < 3; ++round) {
      for (size_t i = 0; i < 16; ++i) ASSERT_TRUE(use_page_of_1(world, 0, i * 5 % 16)) << i;
    }
    EXPECT_EQ(hits(world, 0, 16), 16u) << merge;
    EXPECT_EQ(world.stats(1).reclaims, 0u) << merge;
    EXPECT_EQ(world.stats(1).declined, 0u) << merge;
  }
}

// In a full domain a joined region costs budget for as long as its parts are held.
TEST(RemoteQuotas, CompetingPeersUseTheWholeBudget) {
  RemotePinCluster::Settings settings;
  settings.ranks = 7;
  settings.options.budget_bytes = settings.domain_bytes = 128 * kPage;
  RemotePinCluster world(settings);
  uint32_t random = 1;
  int served = 0;
  for (uint32_t i = 0; i < 4000; ++i) {
    random = random * 1664525 + 1013904223;
    const uint32_t peer = i % 6 == 1 ? 6 : i % 6;
    served += use_page_of_1(world, peer, peer * 32 + (random >> 16) % 32) ? 1 : 0;
  }
  uint64_t all_hits = 0;
  for (const uint32_t peer : {0u, 2u, 3u, 4u, 5u, 6u}) all_hits += world.stats(peer).hits;
  EXPECT_GT(served, 3950) << "the others: not now";
  EXPECT_GT(all_hits, 2080u) << "they want half as much again as there is: 2667 at best";
}

TEST(RemoteQuotas, ReleasedExportsAreEvictedFirstAndOnlyUnderPressure) {
  for (const bool is_short : {true, false}) {
    RemotePinCluster::Settings settings = fixed_split(3, 4);
    settings.domain_bytes = is_short ? 8 * kPage : 64 * kPage;
    RemotePinCluster world(settings);
    for (size_t page = 0; page < 4; ++page) ASSERT_TRUE(use_page_of_1(world, 2, 64 + 2 * page));
    for (size_t page = 0; page < 12; ++page) {
      ASSERT_TRUE(use_page_of_1(world, 0, 2 * page)) << page;
      EXPECT_LE(world[1].registrar.live(), is_short ? 8u : 16u);
    }
    EXPECT_EQ(hits(world, 2, 80), 4u) << "another peer's are not touched";
    EXPECT_EQ(world[1].registrar.live(), is_short ? 8u : 16u);
    EXPECT_EQ(world.stats(1).declined, 0u);
    EXPECT_EQ(world.stats(1).reclaims, 0u);
  }
}

TEST(RemoteQuotas, MemoryOfAnotherPeerSurvivesARelease) {
  RemotePinCluster::Settings settings = fixed_split(3, 4);
  settings.domain_bytes = 8 * kPage;
  RemotePinCluster world(settings);
  ASSERT_TRUE(use_page_of_1(world, 2, 0));
  for (size_t page = 0; page < 12; ++page) ASSERT_TRUE(use_page_of_1(world, 0, 2 * page)) << page;
  const hydrant_pin_t pin =
      hydrant_try_remote_pin(world[2].end, 1, world[1].arena.addr(0), kPage, HYDRANT_REMOTE_WRITE);
  ASSERT_NE(pin.region, nullptr);
  EXPECT_NE(world[1].registrar.serial_of(pin.region->key), 0u);
  hydrant_remote_release(pin);
}

TEST(RemoteQuotas, LocallyHeldMemorySurvivesARelease) {
  RemotePinCluster::Settings settings = fixed_split(2, 4);
  settings.domain_bytes = 5 * kPage;
  RemotePinCluster world(settings);
  RemotePinCluster::Rank& target = world[1];
  for (size_t page = 0; page < 4; ++page) ASSERT_TRUE(use_page_of_1(world, 0, 2 * page));
  const hydrant_pin_t pin =
      hydrant_try_pin(target.domain, target.arena.page(2), kPage, HYDRANT_REMOTE_WRITE);
  ASSERT_NE(pin.region, nullptr);
  target.registrar.note_hold(*pin.region, 1);
  for (size_t page = 4; page < 12; ++page) ASSERT_TRUE(use_page_of_1(world, 0, 2 * page)) << page;
  EXPECT_EQ(target.registrar.problems(), "");
  EXPECT_EQ(target.registrar.live(), 5u);
  target.registrar.note_hold(*pin.region, -1);
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
}

// The same with a thread that takes and releases holds all the time.
TEST(RemoteQuotas, HitsHereAndReturnsGetAlong) {
  RemotePinCluster::Settings settings = fixed_split(2, 4);
  settings.domain_bytes = 6 * kPage;
  settings.inline_delivery = true;
  RemotePinCluster world(settings);
  RemotePinCluster::Rank& target = world[1];
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> held{0};
  std::thread local([&] {
    for (size_t i = 0; !stop.load(std::memory_order_relaxed); ++i) {
      const hydrant_pin_t pin =
          hydrant_try_pin(target.domain, target.arena.page(i % 8 * 2), kPage, HYDRANT_REMOTE_WRITE);
      if (pin.region == nullptr) continue;
      ++held;
      target.registrar.note_hold(*pin.region, 1);
      target.registrar.note_hold(*pin.region, -1);
      hydrant_release(pin);
    }
  });
  size_t served = 0;
  for (size_t i = 0; i < 3000 || (held.load() == 0 && i < 1'000'000); ++i)
    served += use_page_of_1(world, 0, i % 8 * 2) ? 1 : 0;
  stop = true;
  local.join();
  EXPECT_EQ(target.registrar.problems(), "");
  EXPECT_GT(held.load(), 0u);
  EXPECT_GT(served, 0u);
}

}  // namespace
}  // namespace hydrant::testing
