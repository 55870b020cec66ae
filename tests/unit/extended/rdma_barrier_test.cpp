// Properties of the RDMA barrier: its words, refused posts, which ranks must poll, one writer per word;
// and every interleaving of small jobs.
#include "tests/support/patience.hpp"
#include "tests/unit/extended/barrier_world.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>

namespace hydrant {
namespace {

using test::RdmaNetwork;

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

class BarrierJob {
 public:
  BarrierJob(uint32_t size, uint32_t per_node, uint32_t epoch = 0, size_t room = 8)
      : network(size, per_node, room) {
    for (uint32_t node = 0; node < network.nodes(); ++node)
      network.shared(node).progress_state.finished.store(epoch);
    for (Rank rank = 0; rank < size; ++rank)
      ranks.push_back(std::make_unique<RdmaBarrier>(network.config_of(rank, epoch)));
  }
  void start(Rank rank, BarrierName name = {}) { ranks[rank]->start(name, false); }
  bool finish(Rank rank) {
    BarrierName all;
    return ranks[rank]->finish(&all);
  }
  // Tests for the result without driving the barrier.
  bool finish_without_help(Rank rank) {
    const uint32_t epoch = ranks[rank]->epoch();
    const uint32_t node = network.node_of(rank);
    return barrier_word::is_of(network.shared(node).results[epoch & 1].word.load(), epoch);
  }
  void deliver_all() {
    for (Rank rank = 0; rank < ranks.size(); ++rank) {
      while (network.deliver(0, rank)) {
      }
    }
  }
  RdmaNetwork network;
  std::vector<std::unique_ptr<RdmaBarrier>> ranks;
};

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

// All ranks of two nodes have notified, and none of them calls the library before its wait.
TEST(RdmaBarrier, TwoNodesNeedNoPollsOnceAllHaveNotified) {
  for (const uint32_t per_node : {1u, 2u}) {
    BarrierJob job(2 * per_node, per_node);
    for (int barrier = 0; barrier < 5; ++barrier) {
      for (Rank rank = 0; rank < 2 * per_node; ++rank) job.start(rank);
      job.deliver_all();
      // A single check per rank, in any order, is enough: the last arrival has sent everything.
      for (Rank rank = 2 * per_node; rank-- != 0;) EXPECT_TRUE(job.finish(rank)) << rank;
    }
  }
}

// A rank that does not poll between notify and wait does not delay the others, if another rank of its
// node polls.
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

TEST(RdmaBarrier, RefusedPostIsRepeatedByAnyRankOfTheNode) {
  BarrierJob job(4, 2);
  job.network.is_down = true;
  for (Rank rank = 0; rank < 4; ++rank) job.start(rank);
  for (int look = 0; look < 3; ++look) {
    for (Rank rank = 0; rank < 4; ++rank) EXPECT_FALSE(job.finish(rank));
  }
  EXPECT_EQ(job.network.posted, 0u);
  EXPECT_FALSE(job.ranks[1]->ready());  // a true result would only keep the rank awake
  job.network.is_down = false;
  EXPECT_FALSE(job.finish(0));
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
    for (const Rank rank : {0u, 1u, 2u}) job.start(rank);
    EXPECT_EQ(job.ranks[1]->wait_target(), WaitTarget::kAdapter);
    EXPECT_NE(job.ranks[0]->wait_target(), WaitTarget::kAdapter);
    EXPECT_NE(job.ranks[2]->wait_target(), WaitTarget::kAdapter);
    EXPECT_EQ(job.ranks[1]->wait_target(), WaitTarget::kAdapter);
    MissingRanks missing;
    job.ranks[0]->find_missing(&missing);
    ASSERT_EQ(missing.count(), 1u);
    EXPECT_EQ(missing.listed()[0], 3u) << "the first rank of the missing node";
    for (const Rank rank : {3u, 4u, 5u}) job.start(rank);
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

// ---- every interleaving ----

// Steps: a rank arrives, checks or drives; a word, or a byte of it, arrives. Explores all states of a
// number of barriers.
class Explorer {
 public:
  Explorer(uint32_t size, uint32_t per_node, uint32_t barriers, uint32_t bytes)
      : size_(size), per_node_(per_node), barriers_(barriers), bytes_(bytes) {}

  // Returns the number of states.
  size_t run() {
    BarrierJob first(size_, per_node_);
    State begin = keep(first, std::vector<uint32_t>(size_), std::vector<uint32_t>(size_));
    std::deque<State> todo{begin};
    seen_.insert(begin.text());
    while (!todo.empty() && !::testing::Test::HasFailure()) {
      const State state = todo.front();
      todo.pop_front();
      size_t successors = 0;
      for (Rank rank = 0; rank < size_; ++rank) {
        for (uint32_t what = 0; what < 3; ++what) {
          State next;
          if (!step(state, rank, what, &next)) continue;
          if (next.text() == state.text()) continue;
          ++successors;
          if (seen_.insert(next.text()).second) todo.push_back(next);
        }
      }
      if (successors == 0) {
        ++ends_;
        for (Rank rank = 0; rank < size_; ++rank)
          EXPECT_EQ(state.finished[rank], barriers_) << "stuck: rank " << rank;
      }
      if (seen_.size() > 3'000'000) ADD_FAILURE() << "too many states";
    }
    EXPECT_EQ(ends_, 1u);
    return seen_.size();
  }

 private:
  struct State {
    std::vector<std::string> states;
    std::vector<std::deque<RdmaNetwork::Sent>> queues;  // addresses are stored as offsets
    std::vector<std::string> offsets;
    std::vector<uint32_t> started;
    std::vector<uint32_t> finished;
    std::string text() const {
      std::string all;
      for (const std::string& state : states) all += state;
      for (size_t i = 0; i < queues.size(); ++i) {
        all += '|' + offsets[i];
        for (const auto& sent : queues[i])
          all += std::to_string(sent.word) + ',' + std::to_string(sent.done) + ';';
      }
      for (Rank rank = 0; rank < started.size(); ++rank)
        all += ' ' + std::to_string(started[rank]) + '-' + std::to_string(finished[rank]);
      return all;
    }
  };

  // In odd barriers ranks have different names, in even ones the same name.
  static BarrierName name_of(Rank rank, uint32_t barrier) {
    return {NameState::kNamed, barrier % 2 != 0 ? rank % 2 + 1 : 5};
  }
  BarrierName all_of(uint32_t barrier) const {
    BarrierName all;
    for (Rank rank = 0; rank < size_; ++rank) all = join(all, name_of(rank, barrier));
    return all;
  }

  size_t state_bytes() const { return BarrierRdmaState::bytes(per_node_); }
  State keep(BarrierJob& job, std::vector<uint32_t> started, std::vector<uint32_t> finished) const {
    State state{{}, job.network.queues(), {}, std::move(started), std::move(finished)};
    for (uint32_t node = 0; node < job.network.nodes(); ++node) {
      for (uint32_t index = 0; index < per_node_; ++index) {
        // The processor of a rank is not part of the state.
        for (const uint32_t parity : {0u, 1u})
          job.network.shared(node).arrival(parity, index, per_node_).processor.store(0);
      }
      state.states.emplace_back(reinterpret_cast<const char*>(&job.network.shared(node)),
                                state_bytes());
    }
    // Replace an address by its offset from the shared state of its node.
    for (size_t i = 0; i < state.queues.size(); ++i) {
      BarrierRdmaState& shared = job.network.shared(static_cast<uint32_t>(i % job.network.nodes()));
      std::string offsets;
      for (auto& sent : state.queues[i]) {
        sent.first = static_cast<uint32_t>(sent.word % 8);
        const auto offset = sent.place - &shared.words[0][0];
        offsets += std::to_string(offset) + ':';
        sent.place = reinterpret_cast<std::atomic<uint64_t>*>(uintptr_t(offset));
      }
      state.offsets.push_back(offsets);
    }
    return state;
  }

  bool step(const State& from, Rank rank, uint32_t what, State* to) {
    if (what == 0 && (from.started[rank] != from.finished[rank] || from.started[rank] == barriers_))
      return false;
    if (what == 1 && from.started[rank] == from.finished[rank]) return false;
    BarrierJob job(size_, per_node_);
    for (uint32_t node = 0; node < job.network.nodes(); ++node)
      std::memcpy(static_cast<void*>(&job.network.shared(node)), from.states[node].data(),
                  state_bytes());
    job.network.queues() = from.queues;
    for (size_t i = 0; i < from.queues.size(); ++i) {
      BarrierRdmaState& shared = job.network.shared(static_cast<uint32_t>(i % job.network.nodes()));
      for (auto& sent : job.network.queues()[i])
        sent.place = &shared.words[0][0] + reinterpret_cast<uintptr_t>(sent.place);
    }
    RdmaBarrier engine(job.network.config_of(rank, from.started[rank]));
    std::vector<uint32_t> started = from.started;
    std::vector<uint32_t> finished = from.finished;
    if (what == 0) {
      ++started[rank];
      engine.start(name_of(rank, started[rank]), false);
    } else if (what == 1) {
      BarrierName all;
      if (engine.finish(&all)) {
        ++finished[rank];
        EXPECT_EQ(all, all_of(finished[rank]));
        for (Rank other = 0; other < size_; ++other) EXPECT_GE(started[other], finished[rank]);
      }
    } else {
      // A word from this rank to any node for which one is under way.
      bool any = false;
      for (uint32_t node = 0; node < job.network.nodes() && !any; ++node) {
        auto& queue = job.network.queues()[size_t{rank} * job.network.nodes() + node];
        if (queue.empty()) continue;
        any = job.network.deliver(rank, node * per_node_, bytes_);
      }
      if (!any) return false;
    }
    *to = keep(job, std::move(started), std::move(finished));
    return true;
  }

  const uint32_t size_;
  const uint32_t per_node_;
  const uint32_t barriers_;
  const uint32_t bytes_;
  std::set<std::string> seen_;
  size_t ends_ = 0;
};

TEST(RdmaBarrierExplorer, TwoNodesOfOne) { EXPECT_GT(Explorer(2, 1, 5, 8).run(), 50u); }
TEST(RdmaBarrierExplorer, TwoNodesOfOneWithPartialWords) {
  EXPECT_GT(Explorer(2, 1, 5, 3).run(), 50u);
}
TEST(RdmaBarrierExplorer, TwoNodesOfTwo) { EXPECT_GT(Explorer(4, 2, 3, 8).run(), 300u); }
TEST(RdmaBarrierExplorer, ThreeNodesOfOne) { EXPECT_GT(Explorer(3, 1, 3, 8).run(), 300u); }

}  // namespace
}  // namespace hydrant
