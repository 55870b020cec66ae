// Barriers by messages among up to 1024 simulated ranks: messages, rounds, and the time that a simulated
// network needs, in which each message costs its sender and its receiver some time, one after the other.
#include "extended/barrier/barrier_messages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <queue>
#include <vector>

namespace hydrant {
namespace {

constexpr double kOverheadUs = 0.3;  // of the processor, per message sent or received
constexpr double kLatencyUs = 2;

class ScaleWorld {
 public:
  ScaleWorld(bool is_central, Rank size) : size_(size) {
    for (Rank rank = 0; rank < size; ++rank) {
      senders_.push_back(std::make_unique<Sender>(*this, rank));
      if (is_central)
        engines_.push_back(std::make_unique<CentralBarrier>(rank, size, *senders_[rank]));
      else
        engines_.push_back(std::make_unique<DisseminationBarrier>(rank, size, *senders_[rank]));
    }
    ranks_.resize(size);
  }

  struct Result {
    uint64_t messages = 0;      // of all ranks
    uint64_t most_handled = 0;  // sent and received by one rank
    uint64_t depth = 0;  // the longest chain of messages, each sent after the one before arrived
    double us = 0;
  };
  // All ranks enter at once.
  Result run() {
    for (Rank rank = 0; rank < size_; ++rank) engines_[rank]->start({}, true);
    for (Rank rank = 0; rank < size_; ++rank) engines_[rank]->make_progress();
    while (!under_way_.empty()) {
      const Sent sent = under_way_.top();
      under_way_.pop();
      RankState& to = ranks_[sent.to];
      to.clock_us = std::max(to.clock_us, sent.arrival_us) + kOverheadUs;
      to.depth = std::max(to.depth, sent.depth);
      ++to.handled;
      EXPECT_TRUE(engines_[sent.to]->receive(sent.from, sent.message));
      engines_[sent.to]->make_progress();
    }
    for (Rank rank = 0; rank < size_; ++rank) {
      BarrierName all;
      EXPECT_TRUE(engines_[rank]->finish(&all)) << "rank " << rank;
      result_.most_handled = std::max(result_.most_handled, ranks_[rank].handled);
      result_.depth = std::max(result_.depth, ranks_[rank].depth);
      result_.us = std::max(result_.us, ranks_[rank].clock_us);
    }
    return result_;
  }

 private:
  struct Sent {
    double arrival_us = 0;
    uint64_t depth = 0;
    Rank from = 0;
    Rank to = 0;
    BarrierMessage message;
    bool operator<(const Sent& other) const { return arrival_us > other.arrival_us; }
  };
  struct RankState {
    double clock_us = 0;
    uint64_t handled = 0;
    uint64_t depth = 0;  // of the messages that have arrived
  };
  struct Sender final : BarrierMessageSender {
    Sender(ScaleWorld& of, Rank from) : world(of), rank(from) {}
    bool send(Rank peer, const BarrierMessage& message) noexcept override {
      RankState& from = world.ranks_[rank];
      from.clock_us += kOverheadUs;
      ++from.handled;
      ++world.result_.messages;
      world.under_way_.push({from.clock_us + kLatencyUs, from.depth + 1, rank, peer, message});
      return true;
    }
    ScaleWorld& world;
    Rank rank;
  };

  const Rank size_;
  std::vector<std::unique_ptr<Sender>> senders_;
  std::vector<std::unique_ptr<MessageBarrier>> engines_;
  std::vector<RankState> ranks_;
  std::priority_queue<Sent> under_way_;
  Result result_;
};

constexpr Rank kSizes[] = {2, 3, 4, 8, 16, 17, 64, 100, 256, 1000, 1024};

TEST(BarrierScale, DisseminationTakesTheLogarithmInMessagesOfEachRankAndInRounds) {
  for (const Rank size : kSizes) {
    const auto rounds = static_cast<uint64_t>(std::bit_width(size - 1));
    const auto result = ScaleWorld(false, size).run();
    EXPECT_EQ(result.messages, size * rounds);
    EXPECT_EQ(result.most_handled, 2 * rounds);
    EXPECT_EQ(result.depth, rounds);
    RecordProperty("dissemination_us_" + std::to_string(size), std::to_string(result.us));
  }
}

TEST(BarrierScale, CentralTakesTwoRoundsAndAllMessagesOfOneRank) {
  for (const Rank size : kSizes) {
    const auto result = ScaleWorld(true, size).run();
    EXPECT_EQ(result.messages, 2 * (uint64_t{size} - 1));
    EXPECT_EQ(result.most_handled, 2 * (uint64_t{size} - 1));
    EXPECT_EQ(result.depth, 2u);
    RecordProperty("central_us_" + std::to_string(size), std::to_string(result.us));
  }
}

// The simulated time is a function of the messages alone.
TEST(BarrierScale, DisseminationScalesAndCentralDoesNot) {
  for (const Rank size : kSizes) {
    const double dissemination = ScaleWorld(false, size).run().us;
    const double central = ScaleWorld(true, size).run().us;
    const double rounds = std::bit_width(size - 1);
    EXPECT_NEAR(dissemination, rounds * (2 * kOverheadUs + kLatencyUs), 1e-6);
    EXPECT_GE(central, (2 * size - 2) * kOverheadUs);
    if (size >= 64) {
      EXPECT_GT(central, 2 * dissemination) << size;
    }
  }
}

}  // namespace
}  // namespace hydrant
