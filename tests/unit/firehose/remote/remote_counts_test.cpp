// How many messages and registrations remote pins cost, and how far their quotas go.
#include "tests/support/remote_pin_cluster.hpp"

#include <gtest/gtest.h>

#include <random>

namespace hydrant::testing {
namespace {

uint64_t sent(RemotePinCluster& world) {
  uint64_t all = 0;
  for (uint32_t i = 0; i < world.size(); ++i) all += world[i].sent[0] + world[i].sent[1];
  return all;
}

// Releases everything, and checks that nothing of the target's budget, its memory, or its messages is left.
void expect_nothing_left(RemotePinCluster& world) {
  for (uint32_t i = 0; i < world.size(); ++i) {
    for (uint32_t peer = 0; peer < world.size(); ++peer)
      hydrant_remote_evict(world[i].end, peer, 0, SIZE_MAX);
  }
  world.settle();
  std::this_thread::sleep_for(std::chrono::microseconds(100));
  world.settle();
  for (uint32_t i = 0; i < world.size(); ++i) {
    const hydrant_remote_stats_t stats = world.stats(i);
    EXPECT_EQ(stats.exports, 0u) << i;
    EXPECT_EQ(stats.exported_bytes, 0u) << i;
    EXPECT_EQ(stats.firehose_bytes, 0u) << i;
    EXPECT_EQ(stats.zombies, 0u) << i;
    hydrant_flush(world[i].domain);
    EXPECT_EQ(world[i].registrar.live(), 0u) << i;
    EXPECT_EQ(world[i].registrar.problems(), "") << i;
  }
  EXPECT_EQ(world.pending(), 0u);
}

bool use(RemotePinCluster& world, uint32_t from, uint32_t to, size_t page, size_t pages = 1) {
  RemoteResult a;
  remote_pin(world, from, to, world[to].arena.addr(page), pages * kPage, &a);
  const bool hit = a.held();
  if (!hit) world.settle();
  EXPECT_TRUE(a.done || a.code != GASNET_OK);
  if (a.held()) hydrant_remote_release(a.pin);
  return hit;
}

TEST(RemoteCounts, MissIsTwoMessagesAndAHitNone) {
  RemotePinCluster world(exact());
  for (size_t page = 0; page < 20; ++page) {
    const uint64_t before = sent(world);
    EXPECT_FALSE(use(world, 0, 1, 2 * page));
    EXPECT_EQ(sent(world), before + 2);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(use(world, 0, 1, 2 * page));
    EXPECT_EQ(sent(world), before + 2);
  }
  EXPECT_EQ(world[0].sent[HYDRANT_LANE_REQUEST], 20u);
  EXPECT_EQ(world[1].sent[HYDRANT_LANE_REPLY], 20u);
  EXPECT_EQ(world[1].registrar.pin_calls(), 20u) << "the target registers once for each";
  expect_nothing_left(world);
}

TEST(RemoteCounts, TryAndPartialPinsSendNothing) {
  RemotePinCluster world(exact());
  const uintptr_t addr = world[1].arena.addr(3);
  EXPECT_EQ(
      hydrant_pin_status(hydrant_try_remote_pin(world[0].end, 1, addr, kPage, HYDRANT_REMOTE_READ)),
      GASNET_ERR_NOT_READY);
  EXPECT_EQ(hydrant_pin_status(
                hydrant_partial_remote_pin(world[0].end, 1, addr, kPage, HYDRANT_REMOTE_READ)),
            GASNET_ERR_NOT_READY);
  EXPECT_EQ(sent(world), 0u);
  EXPECT_EQ(hydrant_remote_prefetch(world[0].end, 1, addr, kPage, HYDRANT_REMOTE_READ), GASNET_OK);
  world.settle();
  EXPECT_EQ(sent(world), 2u);
  const hydrant_pin_t a = hydrant_try_remote_pin(world[0].end, 1, addr + 8, 8, HYDRANT_REMOTE_READ);
  const hydrant_pin_t b =
      hydrant_partial_remote_pin(world[0].end, 1, addr - kPage, 4 * kPage, HYDRANT_REMOTE_READ);
  ASSERT_NE(a.region, nullptr);
  ASSERT_NE(b.region, nullptr);
  EXPECT_EQ(b.region->addr, addr);
  hydrant_remote_release(a);
  hydrant_release(b);
  EXPECT_EQ(sent(world), 2u);
  expect_nothing_left(world);
}

TEST(RemoteCounts, RecallOfAnIdleFirehoseIsTwoMessages) {
  RemotePinCluster world(exact());
  for (size_t page = 0; page < 10; ++page) use(world, 0, 1, 2 * page);
  const uint64_t before = sent(world);
  hydrant_invalidate(world[1].domain, world[1].arena.page(0), 20 * kPage);
  world.settle();
  EXPECT_EQ(sent(world), before + 2) << "one recall of ten, and one release of ten";
  EXPECT_EQ(world.stats(1).recalls, 10u);
  EXPECT_EQ(hydrant_remote_quiet(world[1].end), GASNET_OK);
  expect_nothing_left(world);
}

TEST(RemoteCounts, InitiatorsOfTheSamePagesShareTheirRegistrations) {
  constexpr uint32_t kInitiators = 6;
  constexpr size_t kShared = 16;
  RemotePinCluster world(exact(kInitiators + 1));
  for (uint32_t from = 0; from < kInitiators; ++from) {
    for (size_t page = 0; page < kShared; ++page) use(world, from, kInitiators, 2 * page);
  }
  EXPECT_EQ(world.stats(kInitiators).exports, kInitiators * kShared);
  EXPECT_EQ(world[kInitiators].registrar.live(), kShared);
  EXPECT_EQ(world[kInitiators].registrar.pin_calls(), kShared);
  // Invalidated for all peers: each is recalled, and the last one's release ends the registration.
  hydrant_invalidate(world[kInitiators].domain, world[kInitiators].arena.page(0), 1);
  EXPECT_EQ(world[kInitiators].registrar.live(), kShared);
  world.settle();
  EXPECT_EQ(world[kInitiators].registrar.live(), kShared - 1);
  EXPECT_EQ(world.stats(kInitiators).recalls, kInitiators);
  expect_nothing_left(world);
}

TEST(RemoteCounts, RequestsThatJoinSendNothing) {
  RemotePinCluster world(exact());
  RemoteResult results[20];
  for (RemoteResult& result : results)
    remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &result);
  world.settle();
  EXPECT_EQ(sent(world), 2u);
  EXPECT_EQ(world.stats(0).joins, 19u);
  for (const RemoteResult& result : results) {
    ASSERT_TRUE(result.held());
    hydrant_remote_release(result.pin);
  }
  expect_nothing_left(world);
}

TEST(RemoteCounts, EvictionsTravelWithTheNextMove) {
  RemotePinCluster::Settings settings = exact();
  settings.options.budget_bytes = 8 * kPage;
  settings.options.base_percent = 100;
  RemotePinCluster world(settings);
  size_t of_type[8] = {};
  for (size_t i = 0; i < 200; ++i) {
    RemoteResult a;
    remote_pin(world, 0, 1, world[1].arena.addr(2 * (i % 100)), kPage, &a);
    while (world.pending() != 0) {
      ++of_type[world.message(0).type()];
      world.deliver();
    }
    world.poll_all();
    ASSERT_TRUE(a.held());
    hydrant_remote_release(a.pin);
  }
  EXPECT_EQ(of_type[kMove], 200u);
  EXPECT_EQ(of_type[kReply], 200u);
  EXPECT_EQ(of_type[kRelease], 0u);
  EXPECT_EQ(of_type[kRecall], 0u);
  EXPECT_EQ(world.stats(0).evictions, 192u);
  EXPECT_EQ(world.stats(1).exports, 8u);
  expect_nothing_left(world);
}

// ---- quotas ---------------------------------------------------------------------------------------------

// Hits of six peers of 64 that use 48 pages each at random, where all 64 could have 1024 together.
uint64_t hits_of_six(uint32_t base_percent) {
  RemotePinCluster::Settings settings = exact(65);
  settings.present = 7;
  settings.pages = 6 * 48;
  settings.domain_merge_bytes = 1;  // a firehose is as long as the registration behind it
  settings.options.budget_bytes = 1024 * kPage;
  settings.options.base_percent = base_percent;
  RemotePinCluster world(settings);
  std::mt19937_64 random(11);
  uint64_t hits = 0;
  for (int i = 0; i < 12000; ++i) {
    const auto from = static_cast<uint32_t>(1 + random() % 6);
    hits += use(world, from, 0, (from - 1) * 48 + random() % 48);
  }
  EXPECT_LE(world.stats(0).exported_bytes, settings.options.budget_bytes);
  expect_nothing_left(world);
  return hits;
}

TEST(RemoteQuotas, SixOfSixtyFourHitMoreWithLeasesThanWithAFixedSplit) {
  const uint64_t fixed = hits_of_six(100), lent = hits_of_six(50);
  std::printf("hits of 12000: %zu with a fixed split, %zu with leases\n", size_t{fixed},
              size_t{lent});
  EXPECT_GT(fixed, 1000u);
  EXPECT_GE(lent * 2, fixed * 3);
}

// All ranks request memory of all others, and there is next to none: each request is answered in a bounded
// number of steps, possibly with "not now", and ranks that hold nothing do not block others.
TEST(RemoteQuotas, EveryRequestIsAnsweredUnderTheSmallestBudgets) {
  for (const uint32_t ranks : {2u, 3u, 4u}) {
    for (const uint64_t budget : {uint64_t{kPage}, uint64_t{2 * kPage}, uint64_t{ranks * kPage}}) {
      for (const uint32_t percent : {1u, 50u, 100u}) {
        // A budget that can serve no peer is refused (RemoteArgumentErrors).
        const uint64_t sure = budget * percent / 100;
        if (sure / (ranks - 1) + budget - sure < kPage) continue;
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(budget) + " bytes, " +
                     std::to_string(percent) + "%");
        RemotePinCluster::Settings settings = exact(ranks);
        settings.options.budget_bytes = budget;
        settings.options.base_percent = percent;
        RemotePinCluster world(settings);
        uint64_t granted = 0, answers = 0;
        for (size_t round = 0; round < 12; ++round) {
          std::vector<RemoteResult> results(size_t{ranks} * ranks);
          for (uint32_t from = 0; from < ranks; ++from) {
            for (uint32_t to = 0; to < ranks; ++to) {
              if (from == to) continue;
              remote_pin(world, from, to, world[to].arena.addr(2 * (round % 4)), kPage,
                         &results[from * ranks + to]);
            }
          }
          const uint64_t before = sent(world);
          int steps = 0;
          for (int quiet = 0; quiet < 3 && steps < 2000; ++steps) {
            const bool any = world.pending() != 0;
            if (any) world.deliver();
            int did = 0;
            for (uint32_t i = 0; i < ranks; ++i) did += hydrant_remote_poll(world[i].end);
            quiet = any || did != 0 || world.pending() != 0 ? 0 : quiet + 1;
          }
          EXPECT_LT(steps, 2000);
          EXPECT_LT(sent(world) - before, 20u * ranks * ranks);
          for (RemoteResult& result : results) {
            if (result.code == -1) continue;
            ++answers;
            EXPECT_TRUE(result.code != GASNET_OK || result.done);
            if (!result.held()) continue;
            ++granted;
            hydrant_remote_release(result.pin);
          }
        }
        EXPECT_EQ(answers, 12u * ranks * (ranks - 1));
        if (budget >= ranks * kPage && percent == 100) {
          EXPECT_EQ(granted, answers) << "a page for each";
        }
        if (budget >= ranks * kPage) {
          EXPECT_GT(granted, 0u);
        }
        expect_nothing_left(world);
      }
    }
  }
}

// The peer holds its whole quota: "not now" at once, and a pin as soon as one is released.
TEST(RemoteQuotas, HeldMemoryIsNotReady) {
  RemotePinCluster::Settings settings = exact();
  settings.options.budget_bytes = 2 * kPage;
  RemotePinCluster world(settings);
  RemoteResult a, b, c, d;
  remote_pin(world, 0, 1, world[1].arena.addr(1), kPage, &a);
  world.settle();
  for (int tries = 0; tries < 3 && !b.held();
       ++tries) {  // its base is one page, so it requests more
    remote_pin(world, 0, 1, world[1].arena.addr(3), kPage, &b);
    world.settle();
  }
  ASSERT_TRUE(a.held());
  ASSERT_TRUE(b.held());
  remote_pin(world, 0, 1, world[1].arena.addr(5), kPage, &c);
  world.settle();
  EXPECT_FALSE(c.held());
  EXPECT_TRUE(c.code == GASNET_ERR_NOT_READY || c.status == GASNET_ERR_NOT_READY);
  hydrant_remote_release(a.pin);
  remote_pin(world, 0, 1, world[1].arena.addr(5), kPage, &d);
  world.settle();
  EXPECT_TRUE(d.held());
  if (d.held()) hydrant_remote_release(d.pin);
  hydrant_remote_release(b.pin);
  expect_nothing_left(world);
}

// A peer holds the whole pool and goes idle: another peer's requests bring it back.
TEST(RemoteQuotas, NoPeerStarvesBesideAnIdlePeer) {
  RemotePinCluster::Settings settings = exact(3);
  settings.domain_merge_bytes = 1;
  settings.options.budget_bytes = 16 * kPage;
  RemotePinCluster world(settings);
  for (int round = 0; round < 4; ++round) {
    for (size_t page = 0; page < 12; ++page) use(world, 0, 2, 2 * page);
  }
  EXPECT_GT(world.stats(2).lent_bytes, 0u);
  RemoteResult held[10];
  for (size_t i = 0; i < 10; ++i) {
    for (int tries = 0; tries < 200 && !held[i].held(); ++tries) {
      remote_pin(world, 1, 2, world[2].arena.addr(100 + 2 * i), kPage, &held[i]);
      world.settle();
    }
    EXPECT_TRUE(held[i].held()) << i;
  }
  EXPECT_LE(world.stats(2).exported_bytes, 16 * kPage);
  for (const RemoteResult& result : held) {
    if (result.held()) hydrant_remote_release(result.pin);
  }
  expect_nothing_left(world);
}

// The target's own pins need budget: peers are asked to release idle firehoses.
TEST(RemoteQuotas, IdleFirehosesMakeRoomForTheTarget) {
  RemotePinCluster::Settings settings = exact();
  settings.domain_bytes = 16 * kPage;
  settings.options.budget_bytes = 16 * kPage;
  RemotePinCluster world(settings);
  for (size_t page = 0; page < 16; ++page) use(world, 0, 1, 2 * page);
  const uint64_t before = world.stats(1).exports;
  EXPECT_GE(before, 15u);
  bool granted = false;
  for (int tries = 0; tries < 50 && !granted; ++tries) {
    const hydrant_pin_t mine = hydrant_pin(world[1].domain, world[1].arena.page(100), 2 * kPage, 0);
    granted = mine.region != nullptr;
    if (granted) hydrant_release(mine);
    world.settle();
  }
  EXPECT_TRUE(granted);
  EXPECT_GT(world.stats(1).reclaims, 0u);
  EXPECT_LT(world.stats(1).exports, before);
  expect_nothing_left(world);
}

size_t pending_of(RemotePinCluster& world, uint8_t type, uint32_t to) {
  size_t n = 0;
  for (size_t i = 0; i < world.pending(); ++i)
    n += world.message(i).type() == type && world.message(i).to == to;
  return n;
}

// Fails to pin at the target itself for lack of budget, `times` times.
void starve(RemotePinCluster& world, uint32_t rank, int times) {
  for (int i = 0; i < times; ++i) {
    const hydrant_pin_t mine =
        hydrant_pin(world[rank].domain, world[rank].arena.page(100), 8 * kPage, 0);
    if (mine.region != nullptr) hydrant_release(mine);
    hydrant_remote_poll(world[rank].end);
  }
}

// However many pins fail meanwhile, and however many messages the release takes.
TEST(RemoteQuotas, PeerIsReclaimedOnceUntilItReleases) {
  constexpr uint8_t kReclaim = 7;
  constexpr size_t kPages = 512;
  RemotePinCluster::Settings settings = exact();
  settings.domain_bytes = kPages * kPage;
  settings.options.budget_bytes = kPages * kPage;
  settings.options.base_percent = 100;
  settings.pages = 2 * kPages;
  RemotePinCluster world(settings);
  for (size_t page = 0; page < kPages; ++page) use(world, 0, 1, 2 * page);
  ASSERT_EQ(world.stats(1).exports, kPages);
  starve(world, 1, 30);
  EXPECT_EQ(pending_of(world, kReclaim, 0), 1u);
  world.deliver();
  starve(world, 1, 5);
  while (world.pending() != 0) {  // the rest of a quarter is released by polls, 48 to a message
    world.deliver();
    EXPECT_EQ(pending_of(world, kReclaim, 0), 0u);
    if (world.stats(1).exports > kPages - kPages / 4) starve(world, 1, 1);
    hydrant_remote_poll(world[0].end);
  }
  EXPECT_EQ(world.stats(1).reclaims, 1u);
  EXPECT_EQ(world.stats(1).exports, kPages - kPages / 4);
  // The budget is free now. The next shortage sends a new reclaim.
  std::vector<RemoteResult> held(kPages / 4);
  for (size_t i = 0; i < held.size(); ++i) {
    remote_pin(world, 0, 1, world[1].arena.addr(2 * i), kPage, &held[i]);
    world.settle();
  }
  starve(world, 1, 3);
  EXPECT_EQ(pending_of(world, kReclaim, 0), 1u);
  world.settle();
  EXPECT_EQ(world.stats(1).reclaims, 2u);
  for (const RemoteResult& result : held) {
    if (result.held()) hydrant_remote_release(result.pin);
  }
  expect_nothing_left(world);
}

// If all of it is in use, or the reply finds no room at first, or moves carry it, the reply still arrives.
TEST(RemoteQuotas, EmptyReclaimIsAnswered) {
  constexpr uint8_t kReclaim = 7;
  RemotePinCluster::Settings settings = exact();
  settings.domain_bytes = 16 * kPage;
  settings.options.budget_bytes = 16 * kPage;
  settings.options.base_percent = 100;
  RemotePinCluster world(settings);
  std::vector<RemoteResult> held(16);
  for (size_t i = 0; i < held.size(); ++i) {
    remote_pin(world, 0, 1, world[1].arena.addr(2 * i), kPage, &held[i]);
    world.settle();
    ASSERT_TRUE(held[i].held());
  }
  for (uint64_t round = 1; round <= 6; ++round) {
    starve(world, 1, 10);
    ASSERT_EQ(pending_of(world, kReclaim, 0), 1u);
    ASSERT_EQ(world.pending(), 1u);
    if (round > 3) world.refuse(0, static_cast<int>(round) - 3);
    world.deliver();
    world.settle();
    EXPECT_EQ(world.stats(1).reclaims, round);
  }
  EXPECT_EQ(world.stats(0).releases_alone, 6u) << "one reply each";
  EXPECT_EQ(world.stats(1).exports, 16u);
  for (const RemoteResult& result : held) hydrant_remote_release(result.pin);
  expect_nothing_left(world);
}

TEST(RemoteQuotas, UnresponsivePeerIsSkipped) {
  constexpr uint8_t kReclaim = 7;
  RemotePinCluster::Settings settings = exact(3);
  settings.domain_bytes = 32 * kPage;
  settings.options.budget_bytes = 32 * kPage;
  settings.options.base_percent = 100;
  RemotePinCluster world(settings);
  for (size_t page = 0; page < 16; ++page) use(world, 0, 2, 2 * page);
  for (size_t page = 0; page < 15; ++page) use(world, 1, 2, 2 * (20 + page));
  starve(world, 2, 63);
  EXPECT_EQ(pending_of(world, kReclaim, 0), 1u);
  EXPECT_EQ(pending_of(world, kReclaim, 1), 0u);
  starve(world, 2, 200);
  EXPECT_EQ(pending_of(world, kReclaim, 0), 1u) << "not again";
  EXPECT_EQ(pending_of(world, kReclaim, 1), 1u) << "instead of it";
  world.settle();
  EXPECT_EQ(world.stats(2).reclaims, 2u);
  starve(world, 2, 1);
  expect_nothing_left(world);
}

TEST(RemoteQuotas, NoGrantWhileZombiesFillTheirLimit) {
  RemotePinCluster::Settings settings = exact();
  settings.options.zombie_bytes = 2 * kPage;
  RemotePinCluster world(settings);
  RemoteResult held[2], more;
  for (size_t i = 0; i < 2; ++i) {
    remote_pin(world, 0, 1, world[1].arena.addr(2 * i), kPage, &held[i]);
    world.settle();
    ASSERT_TRUE(held[i].held());
  }
  hydrant_invalidate(world[1].domain, world[1].arena.page(0), 4 * kPage);
  world.settle();
  EXPECT_EQ(world.stats(1).zombie_bytes, 2 * kPage);
  remote_pin(world, 0, 1, world[1].arena.addr(20), kPage, &more);
  world.settle();
  EXPECT_EQ(more.status, GASNET_ERR_NOT_READY);
  for (const RemoteResult& result : held) hydrant_remote_release(result.pin);
  world.settle();
  EXPECT_FALSE(use(world, 0, 1, 20));
  EXPECT_TRUE(use(world, 0, 1, 20));
  expect_nothing_left(world);
}

}  // namespace
}  // namespace hydrant::testing
