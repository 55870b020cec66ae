// Properties of the RDMA barrier: its words, refused posts, which ranks must poll and which post, one writer
// per word.
#include "tests/support/patience.hpp"
#include "tests/unit/extended/rdma_barrier_job.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

using test::BarrierJob;

constexpr BarrierName kNames[] = {{NameState::kAnonymous, 0},
                                  {NameState::kNamed, 0},
                                  {NameState::kNamed, 0xffffffff},
                                  {NameState::kNamed, 0x80000001},
                                  {NameState::kMismatch, 0}};

// ---- words ----

TEST(BarrierWord, NamesSurviveEncodingAndDecoding) {
  for (const uint32_t epoch : {1u, 2u, 3u, 0x3fffffu, 0x400000u, 0x7fffffffu, 0xffffffffu, 0u}) {
    for (const BarrierName name : kNames) {
      const uint64_t word = barrier_word::make(epoch, name);
      EXPECT_TRUE(barrier_word::is_of(word, epoch));
      EXPECT_EQ(barrier_word::name_in(word), name);
      EXPECT_FALSE(barrier_word::is_of(word, epoch + 1));
      EXPECT_FALSE(barrier_word::is_of(word, epoch + 2));
      EXPECT_FALSE(barrier_word::is_of(word, epoch - 2));
    }
  }
}

TEST(BarrierWord, ZeroMemoryIsNotAWordOfAnEarlyEpoch) {
  EXPECT_FALSE(barrier_word::is_of(0, 1));
  EXPECT_FALSE(barrier_word::is_of(0, 2));
}

// Bytes of a barrier word arrive in any order over the word that is two epochs older; it is incomplete
// until all have arrived.
TEST(BarrierWord, PartialWordIsNotAccepted) {
  for (const uint32_t epoch : {1u, 2u, 3u, 4u, 5u, 0x400001u, 0xffffffffu, 0u, 1u}) {
    for (const BarrierName before : kNames) {
      for (const BarrierName now : kNames) {
        const uint64_t old = epoch > 2 || epoch == 0 ? barrier_word::make(epoch - 2, before) : 0;
        const uint64_t word = barrier_word::make(epoch, now);
        for (uint32_t parts = 0; parts < 255; ++parts) {
          uint64_t mask = 0;
          for (uint32_t byte = 0; byte < 8; ++byte)
            mask |= (parts >> byte & 1) != 0 ? uint64_t{0xff} << 8 * byte : 0;
          ASSERT_FALSE(barrier_word::is_of((word & mask) | (old & ~mask), epoch)) << parts;
        }
      }
    }
  }
}

// ---- jobs ----

TEST(RdmaBarrier, EpochsWrapAround) {
  BarrierJob job(5, 2, 0xffff'fff9);
  for (uint32_t barrier = 0; barrier < 14; ++barrier) {
    const BarrierName name{NameState::kNamed, barrier};
    for (Rank rank = 0; rank < 4; ++rank) job.start(rank, name);
    for (int look = 0; look < 8; ++look) {
      job.deliver_all();
      for (Rank rank = 0; rank < 4; ++rank) ASSERT_FALSE(job.finish(rank)) << barrier;
    }
    job.start(4, name);
    std::set<Rank> over;
    for (int look = 0; look < 8; ++look) {
      job.deliver_all();
      for (Rank rank = 0; rank < 5; ++rank) {
        BarrierName all;
        if (!job.ranks[rank]->finish(&all)) continue;
        EXPECT_EQ(all, name);
        over.insert(rank);
      }
    }
    ASSERT_EQ(over.size(), 5u) << barrier;
  }
  EXPECT_EQ(job.ranks[0]->epoch(), 7u);
}

// All ranks of two nodes have notified, the poster of each node last, and none of them calls the library
// before its wait.
TEST(RdmaBarrier, TwoNodesNeedNoPollsOnceAllHaveNotifiedThePosterLast) {
  for (const uint32_t per_node : {1u, 2u}) {
    BarrierJob job(2 * per_node, per_node);
    for (int barrier = 0; barrier < 5; ++barrier) {
      for (Rank rank = 2 * per_node; rank-- != 0;) job.start(rank);
      job.deliver_all();
      // A single check per rank, in any order, is enough: the last arrival has sent everything.
      for (Rank rank = 2 * per_node; rank-- != 0;) EXPECT_TRUE(job.finish(rank)) << rank;
    }
  }
}

// Ranks arrive and look in any order, and a node's ranks contact one node for each round.
TEST(RdmaBarrier, NodeContactsAsManyPeersAsThereAreRounds) {
  for (const uint32_t per_node : {1u, 3u}) {
    constexpr uint32_t kNodes = 5;
    const Rank size = kNodes * per_node;
    BarrierJob job(size, per_node);
    std::mt19937 random(per_node);
    std::vector<Rank> order(size);
    for (Rank rank = 0; rank < size; ++rank) order[rank] = rank;
    for (int barrier = 0; barrier < 100; ++barrier) {
      std::ranges::shuffle(order, random);
      for (const Rank rank : order) job.start(rank);
      std::set<Rank> over;
      for (int look = 0; look < 12; ++look) {
        std::ranges::shuffle(order, random);
        job.deliver_all();
        for (const Rank rank : order)
          if (!over.contains(rank) && job.finish(rank)) over.insert(rank);
      }
      ASSERT_EQ(over.size(), size) << barrier;
    }
    EXPECT_EQ(job.network.contacts().size(), kNodes * RdmaBarrier::rounds_of(kNodes));
  }
}

// Two nodes of three ranks. The poster of the first node computes after its notify.
TEST(RdmaBarrier, NextRankStandsInForASilentPoster) {
  BarrierJob job(6, 3);
  const auto all_but_the_poster_look = [&] {
    std::set<Rank> over;
    for (int look = 0; look < 4; ++look) {
      job.deliver_all();
      for (const Rank rank : {2u, 1u, 3u, 4u, 5u})
        if (job.finish(rank)) over.insert(rank);
    }
    return over.size();
  };
  for (Rank rank = 0; rank < 6; ++rank) job.start(rank);
  EXPECT_EQ(all_but_the_poster_look(), 0u);
  EXPECT_FALSE(job.ranks[1]->ready());
  test::elapse_ns(RdmaBarrier::kTurnNs);
  EXPECT_TRUE(job.ranks[1]->ready());
  EXPECT_FALSE(job.ranks[2]->ready());  // two places behind
  EXPECT_EQ(all_but_the_poster_look(), 5u);
  EXPECT_TRUE(job.finish(0));
  const std::set<std::pair<Rank, uint32_t>> contacts = {{1, 1}, {3, 0}};
  EXPECT_EQ(job.network.contacts(), contacts);
  // Now that it has the connection it posts at once.
  for (int barrier = 0; barrier < 4; ++barrier) {
    for (Rank rank = 0; rank < 6; ++rank) job.start(rank);
    EXPECT_EQ(all_but_the_poster_look(), 5u);
    EXPECT_TRUE(job.finish(0));
  }
  EXPECT_EQ(job.network.contacts(), contacts);
}

// A poster that waits for its connection is not silent.
TEST(RdmaBarrier, NoRankStandsInForAPosterThatIsRefused) {
  BarrierJob job(4, 2);
  job.network.is_down = true;
  for (Rank rank = 0; rank < 4; ++rank) job.start(rank);
  for (int look = 0; look < 5; ++look) {
    for (const Rank rank : {0u, 2u, 1u, 3u}) EXPECT_FALSE(job.finish(rank));
    test::elapse_ns(RdmaBarrier::kTurnNs - 1);
  }
  EXPECT_EQ(job.network.contacts().size(), 2u);
  job.network.is_down = false;
  for (const Rank rank : {0u, 2u}) (void)job.finish(rank);
  job.deliver_all();
  for (Rank rank = 0; rank < 4; ++rank) EXPECT_TRUE(job.finish(rank));
  EXPECT_EQ(job.network.contacts().size(), 2u);
}

// The poster of the first node never gets a connection.
TEST(RdmaBarrier, NextRankStandsInForAPosterThatLacksMemory) {
  BarrierJob job(4, 2);
  job.network.poor = 0;
  const auto looks_until_over = [&] {
    std::set<Rank> over;
    for (int look = 0; look < 4; ++look) {
      job.deliver_all();
      for (Rank rank = 0; rank < 4; ++rank)
        if (!over.contains(rank) && job.finish(rank)) over.insert(rank);
    }
    return over.size();
  };
  for (Rank rank = 0; rank < 4; ++rank) job.start(rank);
  EXPECT_EQ(looks_until_over(), 0u);
  test::elapse_ns(RdmaBarrier::kTurnNs);
  EXPECT_EQ(looks_until_over(), 4u);
  for (Rank rank = 0; rank < 4; ++rank) job.start(rank);
  EXPECT_EQ(looks_until_over(), 4u) << "now at once";
}

class WokenRanks final : public Sleeping {
 public:
  void wake_peer(Rank peer) noexcept override { woken.push_back(peer); }
  std::vector<Rank> woken;
};

TEST(RdmaBarrier, LastArrivalWakesThePosterThatMaySleep) {
  WokenRanks sleeping;
  BarrierJob job(4, 2, 0, {.sleeping = &sleeping});
  job.start(0);
  EXPECT_EQ(sleeping.woken, std::vector<Rank>{});
  job.start(1);
  EXPECT_EQ(sleeping.woken, std::vector<Rank>{0});
  EXPECT_TRUE(job.ranks[0]->ready());
  EXPECT_FALSE(job.finish(0));
  job.start(2);
  job.start(3);
  EXPECT_EQ(sleeping.woken, (std::vector<Rank>{0, 2}));
}

// A rank that does not poll between notify and wait does not delay the others for longer than a turn, if
// another rank of its node polls.
TEST(RdmaBarrier, RankThatDoesNotPollDelaysOthersOnlyIfAloneOnItsNode) {
  BarrierJob job(8, 2);  // four nodes, two rounds
  for (uint32_t barrier = 0; barrier < 4; ++barrier) {
    for (Rank rank = 0; rank < 8; ++rank) job.start(rank);
    const Rank deaf = barrier * 2 % 8;
    std::set<Rank> over;
    for (int look = 0; look < 8; ++look) {
      job.deliver_all();
      for (Rank rank = 0; rank < 8; ++rank)
        if (rank != deaf && job.finish(rank)) over.insert(rank);
      test::elapse_ns(RdmaBarrier::kTurnNs);
    }
    EXPECT_EQ(over.size(), 7u) << "without " << deaf;
    EXPECT_TRUE(job.finish(deaf));
  }
  // If a rank is alone on its node, its neighbour's second round depends on it.
  BarrierJob alone(4, 1);
  for (Rank rank = 0; rank < 4; ++rank) alone.start(rank);
  for (int look = 0; look < 8; ++look) {
    alone.deliver_all();
    for (const Rank rank : {1u, 2u, 3u}) (void)alone.finish(rank);
  }
  EXPECT_FALSE(alone.finish(2));  // the message of round 1 comes from rank 0
  EXPECT_TRUE(alone.ranks[0]->needs_progress());
  EXPECT_GT(alone.ranks[0]->make_progress(), 0u);
  alone.deliver_all();
  for (const Rank rank : {0u, 1u, 2u, 3u}) EXPECT_TRUE(alone.finish(rank)) << rank;
}

TEST(RdmaBarrier, RefusedPostIsRepeatedByAnyRankOfTheNodeAfterItsTurn) {
  BarrierJob job(4, 2);
  job.network.is_down = true;
  for (Rank rank = 0; rank < 4; ++rank) job.start(rank);
  for (int look = 0; look < 3; ++look) {
    for (Rank rank = 0; rank < 4; ++rank) EXPECT_FALSE(job.finish(rank));
  }
  EXPECT_EQ(job.network.posted, 0u);
  EXPECT_FALSE(job.ranks[0]->ready());  // a true result would only keep the rank awake
  job.network.is_down = false;
  EXPECT_FALSE(job.finish(0));
  EXPECT_EQ(job.ranks[3]->make_progress(), 0u);
  test::elapse_ns(RdmaBarrier::kTurnNs);
  EXPECT_EQ(job.ranks[3]->make_progress(), 1u);
  job.deliver_all();
  for (Rank rank = 0; rank < 4; ++rank) EXPECT_TRUE(job.finish(rank));
  EXPECT_EQ(job.network.posted, 2u);
}

TEST(RdmaBarrier, OneWordPerNodeAndRound) {
  BarrierJob job(10, 2);  // five nodes, three rounds
  for (int barrier = 1; barrier <= 6; ++barrier) {
    for (Rank rank = 0; rank < 10; ++rank) job.start(rank);
    for (int look = 0; look < 12; ++look) {
      job.deliver_all();
      for (Rank rank = 0; rank < 10; ++rank) (void)job.finish(rank);
    }
    EXPECT_EQ(job.network.posted, 15u * static_cast<uint32_t>(barrier));
  }
}

TEST(RdmaBarrier, OneRankOfANodeWatchesTheAdapter) {
  BarrierJob job(6, 3);
  for (int barrier = 0; barrier < 3; ++barrier) {
    for (const Rank rank : {2u, 1u, 0u}) job.start(rank);
    EXPECT_EQ(job.ranks[1]->wait_target(), WaitTarget::kAdapter);
    EXPECT_NE(job.ranks[0]->wait_target(), WaitTarget::kAdapter);
    EXPECT_NE(job.ranks[2]->wait_target(), WaitTarget::kAdapter);
    EXPECT_EQ(job.ranks[1]->wait_target(), WaitTarget::kAdapter);
    MissingRanks missing;
    job.ranks[0]->find_missing(&missing);
    ASSERT_EQ(missing.count(), 1u);
    EXPECT_EQ(missing.listed()[0], 3u) << "the first rank of the missing node";
    for (const Rank rank : {5u, 4u, 3u}) job.start(rank);
    job.deliver_all();
    for (Rank rank = 0; rank < 6; ++rank) EXPECT_TRUE(job.finish(rank));
    EXPECT_EQ(job.ranks[1]->wait_target(), WaitTarget::kOtherProcessors);
  }
}

// A rank that finds the lock taken leaves, and the holder must see its arrival. Two ranks arrive nearly
// at the same time, and no rank polls afterwards.
TEST(RdmaBarrier, SimultaneousArrivalsAreAllCounted) {
  constexpr uint32_t kRanks = 2;
  constexpr uint32_t kBarriers = 200'000;
  constexpr auto kMax = std::chrono::seconds(20);
  BarrierJob job(kRanks, kRanks);  // one node: the last arrival publishes the result
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<uint32_t> come{0};
  std::atomic<uint32_t> missed{0};
  std::atomic<bool> ends{false};
  const auto await = [&](const std::atomic<uint32_t>& count, uint32_t value) {
    for (uint32_t looks = 1; count < value && !ends; ++looks) {
      if (looks % 256 == 0) std::this_thread::yield();
    }
  };
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (uint32_t barrier = 1; barrier <= kBarriers && !ends; ++barrier) {
        ++come;
        await(come, (2 * barrier - 1) * kRanks);
        job.start(rank);
        ++come;
        await(come, 2 * barrier * kRanks);
        if (!ends && !job.finish_without_help(rank)) ++missed;
        if (missed != 0 || std::chrono::steady_clock::now() - begin > kMax) ends = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(missed, 0u);
}

// Two threads of each rank drive, three ranks on two nodes: each word is posted once, and no step is lost.
TEST(RdmaBarrier, OneThreadDrivesAtATime) {
  constexpr uint32_t kRanks = 3;
  constexpr uint32_t kBarriers = 500;
  const auto longest = testing::patiently(std::chrono::seconds(60));
  BarrierJob job(kRanks, 2);
  const auto begin = std::chrono::steady_clock::now();
  std::atomic<bool> ends{false};
  std::atomic<uint32_t> over{0};
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (uint32_t barrier = 1; barrier <= kBarriers && !ends; ++barrier) {
        job.start(rank);
        while (!job.finish(rank) && !ends) {
          (void)job.network.deliver(0, rank);
          if (std::chrono::steady_clock::now() - begin > longest) ends = true;
          std::this_thread::yield();
        }
      }
      ++over;
    });
    threads.emplace_back([&, rank] {
      while (over < kRanks && !ends) {
        (void)job.ranks[rank]->make_progress();
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(ends) << "no progress";
  EXPECT_EQ(job.network.posted, 2u * kBarriers);
}

}  // namespace
}  // namespace hydrant
