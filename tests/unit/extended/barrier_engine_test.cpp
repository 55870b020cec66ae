// The barrier algorithms under random interleavings, with late messages and full rings, and with ranks
// as threads.
#include "tests/unit/extended/barrier_world.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace hydrant {
namespace {

using test::Algorithm;
using test::BarrierWorld;
using test::kAlgorithms;

class BarrierEngineTest : public ::testing::TestWithParam<Algorithm> {};

BarrierName random_name(std::mt19937& random) {
  switch (random() % 8) {
    case 0: return {.state = NameState::kMismatch, .id = 0};
    case 1:
    case 2: return {.state = NameState::kNamed, .id = static_cast<uint32_t>(random() % 2)};
    default: return {.state = NameState::kNamed, .id = 77};
  }
}

// Ranks that take steps in random order, and the invariants after each step.
class Simulation {
 public:
  Simulation(Algorithm algorithm, uint32_t size, uint32_t seed)
      : world_(algorithm, size, 1 + seed % 3),
        random_(seed),
        started_(size),
        finished_(size),
        names_(2, std::vector<BarrierName>(size)) {
    world_.bytewise = seed % 2 != 0;
  }

  void run(uint64_t barriers) {
    uint64_t steps = 0;
    for (uint64_t done = 0; done < barriers; ++steps) {
      ASSERT_LT(steps, barriers * world_.size() * 2000) << "no progress";
      step(barriers);
      if (::testing::Test::HasFatalFailure()) return;
      done = *std::min_element(finished_.begin(), finished_.end());
    }
    EXPECT_EQ(world_.refused, 0u);
  }

 private:
  void step(uint64_t barriers) {
    const auto rank = static_cast<Rank>(random_() % world_.size());
    switch (random_() % 4) {
      case 0: start(rank, barriers); break;
      case 1: finish(rank); break;
      case 2: world_.engine(rank).make_progress(); break;
      default:
        if (world_.has_messages())
          world_.deliver(static_cast<Rank>(random_() % world_.size()), rank);
    }
  }
  void start(Rank rank, uint64_t barriers) {
    if (started_[rank] != finished_[rank] || started_[rank] == barriers) return;
    const uint64_t epoch = ++started_[rank];
    names_[epoch & 1][rank] = random_name(random_);
    world_.engine(rank).start(names_[epoch & 1][rank], false);
  }
  void finish(Rank rank) {
    if (started_[rank] == finished_[rank]) return;
    MissingRanks missing;
    const bool ready = world_.engine(rank).ready();
    world_.engine(rank).find_missing(&missing);
    for (const Rank other : missing.listed()) ASSERT_LT(other, world_.size());
    BarrierName all;
    if (!world_.engine(rank).finish(&all)) {
      if (!world_.has_messages()) {
        ASSERT_FALSE(missing.empty() && !ready) << "waits without a missing rank";
      }
      return;
    }
    const uint64_t epoch = ++finished_[rank];
    BarrierName expected;
    for (Rank other = 0; other < world_.size(); ++other) {
      ASSERT_GE(started_[other], epoch) << "rank " << rank << " did not wait for " << other;
      expected = join(expected, names_[epoch & 1][other]);
    }
    ASSERT_EQ(all, expected) << "rank " << rank << " barrier " << epoch;
  }

  BarrierWorld world_;
  std::mt19937 random_;
  std::vector<uint64_t> started_;
  std::vector<uint64_t> finished_;
  std::vector<std::vector<BarrierName>> names_;
};

TEST_P(BarrierEngineTest, NoRankPassesBeforeAllHaveArrived) {
  for (const uint32_t size : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 9u, 16u, 27u, 33u}) {
    for (uint32_t seed = 0; seed < 3; ++seed) {
      SCOPED_TRACE(::testing::Message() << size << " ranks, seed " << seed);
      Simulation simulation(GetParam(), size, seed * 97 + size);
      simulation.run(size < 10 ? 300 : 40);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(BarrierEngineTest, ListsMissingRanks) {
  BarrierWorld world(GetParam(), 4);
  MissingRanks missing;
  for (const Rank rank : {0u, 2u}) world.engine(rank).start({}, false);
  for (int look = 0; look < 10; ++look) {
    for (const Rank rank : {0u, 2u}) {
      world.deliver_all_to(rank);
      world.engine(rank).make_progress();
    }
  }
  BarrierName all;
  EXPECT_FALSE(world.engine(0).finish(&all));
  world.engine(0).find_missing(&missing);
  ASSERT_FALSE(missing.empty());
  for (const Rank rank : missing.listed()) EXPECT_TRUE(rank == 1 || rank == 3) << rank;
  if (GetParam().kind == Algorithm::kShm || GetParam().kind == Algorithm::kCentral) {
    EXPECT_EQ(missing.count(), 2u);
  }
}

// Ranks as threads, each with a second thread that calls make_progress().
TEST_P(BarrierEngineTest, EarlierStoresAreVisibleAfterTheBarrier) {
  constexpr uint32_t kRanks = 3;
  constexpr uint64_t kBarriers = HYDRANT_DEBUG != 0 ? 2000 : 10000;
  BarrierWorld world(GetParam(), kRanks);
  // Plain memory: the barrier must order the accesses.
  struct alignas(64) Cell {
    uint64_t value = 0;
  };
  Cell cells[kRanks];
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0};
  const auto pass = [&](Rank rank) {
    world.engine(rank).start({}, true);
    BarrierName all;
    while (!world.engine(rank).finish(&all)) {
      world.deliver_all_to(rank);
      std::this_thread::yield();
    }
  };
  std::vector<std::thread> drivers;
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (uint64_t i = 1; i <= kBarriers; ++i) {
        cells[rank].value = i;
        pass(rank);
        for (const Cell& cell : cells) wrong += cell.value == i ? 0 : 1;
        pass(rank);
      }
    });
    drivers.emplace_back([&, rank] {
      while (!stop) {
        world.deliver_all_to(rank);
        world.engine(rank).make_progress();
        (void)world.engine(rank).ready();
        std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  stop = true;
  for (std::thread& driver : drivers) driver.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(world.refused, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, BarrierEngineTest, ::testing::ValuesIn(kAlgorithms),
                         [](const auto& kind) { return kind.param.name(); });

// ---- single algorithms ----

TEST(ShmBarrier, EpochsMayWrapAround) {
  // An epoch's word never equals that of the previous epoch in the same line.
  for (const uint32_t epoch : {1u, 2u, 0x3fffffffu, 0x40000000u, 0xffffffffu, 0u}) {
    const uint64_t now = ShmBarrier::make_word(epoch, {});
    const uint64_t before = ShmBarrier::make_word(epoch - 2, {});
    EXPECT_NE(now & 0xffff'fffc, before & 0xffff'fffc) << epoch;
  }
}

TEST(ShmBarrier, RadixFitsALine) {
  for (uint32_t ranks = 1; ranks <= 1024; ++ranks) {
    for (const bool crowded : {false, true}) {
      const uint32_t radix = choose_barrier_radix(ranks, crowded);
      ASSERT_GE(radix, 2u);
      ASSERT_EQ(radix, limit_barrier_radix(ranks, radix));
      uint64_t reach = 1;
      uint32_t rounds = 0;
      for (; reach < ranks; ++rounds) reach *= radix;
      ASSERT_LE(rounds, BarrierLines::kRounds) << ranks;
      if (crowded) {
        ASSERT_LE(rounds, 1u);
      }
    }
    for (const uint32_t asked : {0u, 1u, 2u, 5u, 5000u}) {
      const uint32_t radix = limit_barrier_radix(ranks, asked);
      uint32_t rounds = 0;
      for (uint64_t reach = 1; reach < ranks; reach *= radix) ++rounds;
      ASSERT_LE(rounds, BarrierLines::kRounds);
      ASSERT_GE(radix, 2u);
    }
  }
}

TEST(MessageBarrier, RefusesUnexpectedMessages) {
  BarrierWorld world({Algorithm::kDissemination, 0}, 4);
  BarrierWorld central({Algorithm::kCentral, 0}, 4);
  auto& dissemination = static_cast<MessageBarrier&>(world.engine(0));
  auto& centre = static_cast<MessageBarrier&>(central.engine(0));
  auto& other = static_cast<MessageBarrier&>(central.engine(2));
  EXPECT_FALSE(dissemination.receive(3, {.parity = 0, .round = 2, .name = {}}));  // no such round
  EXPECT_FALSE(dissemination.receive(2, {.parity = 0, .round = 0, .name = {}}));  // wrong sender
  EXPECT_TRUE(dissemination.receive(3, {.parity = 0, .round = 0, .name = {}}));
  EXPECT_FALSE(dissemination.receive(3, {.parity = 0, .round = 0, .name = {}}));  // duplicate
  EXPECT_FALSE(centre.receive(0, {.parity = 0, .round = 0, .name = {}}));
  EXPECT_FALSE(centre.receive(4, {.parity = 0, .round = 0, .name = {}}));
  EXPECT_FALSE(centre.receive(1, {.parity = 0, .round = 1, .name = {}}));
  EXPECT_TRUE(centre.receive(1, {.parity = 0, .round = 0, .name = {}}));
  EXPECT_FALSE(centre.receive(1, {.parity = 0, .round = 0, .name = {}}));
  EXPECT_FALSE(other.receive(1, {.parity = 0, .round = 0, .name = {}}));
  EXPECT_TRUE(other.receive(0, {.parity = 0, .round = 0, .name = {}}));
}

TEST(MessageBarrier, MessagesSurviveEncodingAndDecoding) {
  for (const uint32_t parity : {0u, 1u}) {
    for (const uint32_t round : {0u, 1u, 31u}) {
      for (const BarrierName name :
           {BarrierName{}, BarrierName{NameState::kNamed, 0xffffffff}, {NameState::kMismatch, 0}}) {
        const BarrierMessage message{.parity = parity, .round = round, .name = name};
        EXPECT_EQ(message.bits() >> 31, 0u);
        const auto back = BarrierMessage::from(message.bits(), name.id);
        EXPECT_EQ(back.parity, parity);
        EXPECT_EQ(back.round, round);
        EXPECT_EQ(back.name, name);
      }
    }
  }
}

}  // namespace
}  // namespace hydrant
