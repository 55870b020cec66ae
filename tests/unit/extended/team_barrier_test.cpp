// Barriers of teams: any number outstanding, complete in order, on no rank before all ranks have begun
// them.
#include "extended/barrier/team_barrier.hpp"

#include "tests/unit/extended/barrier_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace hydrant {
namespace {

using test::Algorithm;
using test::BarrierWorld;
using test::SharedLines;

// Both kinds of barriers for all ranks of a job.
class Teams {
 public:
  Teams(bool counted, Algorithm algorithm, uint32_t size, bool threaded = false)
      : lines_(size), world_(algorithm, size), tables_(new ProgressTable[size]) {
    for (Rank rank = 0; rank < size; ++rank) {
      if (counted) {
        barriers_.push_back(std::make_unique<CountedBarrier>(
            rank, size == 1 ? std::vector<BarrierLines>{} : lines_.all(), nullptr, threaded));
      } else {
        barriers_.push_back(std::make_unique<QueuedBarrier>(world_.release(rank), tables_[rank]));
      }
    }
    counted_ = counted;
  }
  TeamBarrier& of(Rank rank) { return *barriers_[rank]; }
  void poll(Rank rank) {
    if (!counted_) world_.deliver_all_to(rank);
    tables_[rank].run();
  }
  uint64_t refused() const { return world_.refused; }
  ProgressTable& table(Rank rank) { return tables_[rank]; }

 private:
  SharedLines lines_;
  BarrierWorld world_;
  std::unique_ptr<ProgressTable[]> tables_;
  std::vector<std::unique_ptr<TeamBarrier>> barriers_;
  bool counted_ = false;
};

struct Kind {
  const char* name;
  bool counted;
  Algorithm algorithm;
};
constexpr Kind kKinds[] = {{"Counted", true, {Algorithm::kShm, 0}},
                           {"QueuedShm", false, {Algorithm::kShm, 2}},
                           {"QueuedDissemination", false, {Algorithm::kDissemination, 0}},
                           {"QueuedCentral", false, {Algorithm::kCentral, 0}},
                           {"QueuedRdma1", false, {Algorithm::kRdma, 1}},
                           {"QueuedRdma2", false, {Algorithm::kRdma, 2}}};

class TeamBarrierTest : public ::testing::TestWithParam<Kind> {};

TEST_P(TeamBarrierTest, ManyOutstandingCompleteInOrder) {
  for (const uint32_t size : {1u, 2u, 3u, 5u, 9u}) {
    SCOPED_TRACE(testing::Message() << size << " ranks");
    Teams teams(GetParam().counted, GetParam().algorithm, size);
    std::mt19937 random(size);
    std::vector<uint64_t> begun(size);
    std::vector<uint64_t> known(size);  // highest barrier known to be complete
    for (int step = 0; step < 20000; ++step) {
      const auto rank = static_cast<Rank>(random() % size);
      if (random() % 3 == 0) {
        if (begun[rank] < 8 + *std::min_element(begun.begin(), begun.end())) {
          ASSERT_EQ(teams.of(rank).begin(), ++begun[rank]);
        }
        continue;
      }
      teams.poll(rank);
      if (begun[rank] == 0) continue;
      const uint64_t number = 1 + random() % begun[rank];
      const uint64_t all = *std::min_element(begun.begin(), begun.end());
      if (teams.of(rank).is_done(number)) {
        ASSERT_LE(number, all);
        known[rank] = std::max(known[rank], number);
      } else {
        ASSERT_GT(number, known[rank]) << "a complete barrier became incomplete";
        MissingRanks missing;
        teams.of(rank).find_missing(number, &missing);
        if (GetParam().counted) {
          ASSERT_FALSE(missing.empty());
        }
      }
    }
    EXPECT_GT(*std::min_element(known.begin(), known.end()), 100u);
    // All ranks reach the end.
    const uint64_t last = *std::max_element(begun.begin(), begun.end());
    for (Rank rank = 0; rank < size; ++rank) {
      while (begun[rank] < last) begun[rank] = teams.of(rank).begin();
    }
    // A barrier takes a few polls, and thousands may be outstanding.
    for (int look = 0; look < 50000; ++look) {
      for (Rank rank = 0; rank < size; ++rank) teams.poll(rank);
    }
    for (Rank rank = 0; rank < size; ++rank) {
      EXPECT_TRUE(teams.of(rank).is_done(last));
      EXPECT_TRUE(teams.of(rank).ready(last));
      EXPECT_EQ(teams.table(rank).run(), 0u);
    }
    EXPECT_EQ(teams.refused(), 0u);
  }
}

TEST_P(TeamBarrierTest, WordsOfAdaptersAreSilentWork) {
  Teams teams(GetParam().counted, GetParam().algorithm, 4);
  const uint64_t number = teams.of(0).begin();
  const bool is_rdma = !GetParam().counted && GetParam().algorithm.kind == Algorithm::kRdma;
  EXPECT_EQ(teams.table(0).silent_work().is_there, is_rdma);
  for (Rank rank = 1; rank < 4; ++rank) teams.of(rank).begin();
  for (int look = 0; look < 100; ++look) {
    for (Rank rank = 0; rank < 4; ++rank) teams.poll(rank);
  }
  EXPECT_TRUE(teams.of(0).is_done(number));
  EXPECT_FALSE(teams.table(0).silent_work().is_there);
}

TEST_P(TeamBarrierTest, ThreadsBeginAndWaitTogether) {
  constexpr uint32_t kRanks = 2;
  constexpr uint32_t kThreads = 2;  // per rank
  constexpr uint32_t kEach = 1500;
  Teams teams(GetParam().counted, GetParam().algorithm, kRanks, true);
  std::atomic<uint64_t> begun[kRanks] = {};
  std::atomic<uint64_t> early{0};
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, rank] {
        for (uint32_t i = 0; i < kEach; ++i) {
          ++begun[rank];  // incremented first, so that it is an upper bound
          const uint64_t number = teams.of(rank).begin();
          while (!teams.of(rank).is_done(number)) {
            teams.poll(rank);
            std::this_thread::yield();
          }
          for (const auto& count : begun) early += count >= number ? 0 : 1;
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(early, 0u);
  for (Rank rank = 0; rank < kRanks; ++rank)
    EXPECT_TRUE(teams.of(rank).is_done(uint64_t{kThreads} * kEach));
}

INSTANTIATE_TEST_SUITE_P(All, TeamBarrierTest, ::testing::ValuesIn(kKinds),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST(MissingRanks, AreCountedAndTheFirstAreListed) {
  MissingRanks missing;
  EXPECT_TRUE(missing.empty());
  for (Rank rank = 5; rank < 5 + MissingRanks::kMaxListed + 3; ++rank) missing.add(rank);
  EXPECT_EQ(missing.count(), MissingRanks::kMaxListed + 3);
  ASSERT_EQ(missing.listed().size(), MissingRanks::kMaxListed);
  EXPECT_EQ(missing.listed().front(), 5u);
  EXPECT_EQ(missing.listed().back(), 5 + MissingRanks::kMaxListed - 1);
}

}  // namespace
}  // namespace hydrant
