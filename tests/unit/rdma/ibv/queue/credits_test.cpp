// Flow control of two peers against a model: random sends, deliveries and reports, single-threaded.
#include "rdma/ibv/queue/credits.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

namespace hydrant::ibv {
namespace {

constexpr uint32_t kCredits = 8;
constexpr uint32_t kSlots = 3;

struct Message {
  uint32_t counter = 0;
  bool has_slot = false;
  uint32_t slot = 0;
  Credits::WireCounts counts = {};
};

// A side of the connection: its counters, the messages on the way to it, and the model's state.
struct Side {
  Side() { EXPECT_EQ(credits.open(kCredits, kSlots), Status::kOk); }
  Credits credits;
  std::deque<Message> arriving;
  std::deque<Message> delivered;                // not counted as taken yet
  std::set<uint32_t> slots;                     // of this side that hold a payload of the peer
  uint32_t under_way[Credits::kCounters] = {};  // sent by this side, not taken by the peer
};

void send(Side& from, Side& to, uint32_t counter, bool with_slot) {
  Message message;
  message.counter = counter;
  from.credits.count_sent(counter);
  ++from.under_way[counter];
  if (with_slot) {
    message.has_slot = true;
    message.slot = from.credits.take_slot(static_cast<Lane>(counter));
    EXPECT_TRUE(to.slots.insert(message.slot).second) << "slot " << message.slot << " is in use";
  }
  from.credits.report(message.counts);
  to.arriving.push_back(message);
}

void step(Side& from, Side& to, std::mt19937& random) {
  const uint32_t lane = random() % kLaneCount;
  switch (random() % 4) {
    case 0:
      if (from.credits.has_credit(static_cast<Lane>(lane))) {
        EXPECT_LT(from.under_way[lane], kCredits);
        send(from, to, lane, random() % 2 == 0 && from.credits.has_slot(static_cast<Lane>(lane)));
      }
      break;
    case 1:
      if (!to.arriving.empty()) {
        const Message message = to.arriving.front();
        to.arriving.pop_front();
        to.credits.apply(message.counts);
        to.delivered.push_back(message);
      }
      break;
    case 2:
      if (!to.delivered.empty()) {
        const Message message = to.delivered.front();
        to.delivered.pop_front();
        --from.under_way[message.counter];
        to.credits.add_taken(message.counter, 1);
        if (!message.has_slot) break;
        to.slots.erase(message.slot);
        to.credits.add_freed_slots(static_cast<Lane>(message.counter), 1);
      }
      break;
    default:
      if (to.credits.is_report_due() && to.credits.has_control_credit()) {
        EXPECT_LT(to.under_way[Credits::kControl], kControlCredits);
        send(to, from, Credits::kControl, false);
      }
  }
}

TEST(Credits, NeitherSideSendsWithoutABufferOrWritesToASlotInUse) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Side one;
    Side other;
    for (int i = 0; i < 20'000; ++i) {
      if (random() % 2 == 0) {
        step(one, other, random);
      } else {
        step(other, one, random);
      }
    }
    EXPECT_GT(one.credits.messages_sent(), 1000U);
    EXPECT_GT(other.credits.messages_sent(), 1000U);
  }
}

TEST(Credits, OldHeadersChangeNothing) {
  Credits credits;
  ASSERT_EQ(credits.open(kCredits, kSlots), Status::kOk);
  for (uint32_t i = 0; i < kCredits; ++i) credits.count_sent(Lane::kRequest);
  EXPECT_FALSE(credits.has_credit(Lane::kRequest));
  credits.apply({3, 0, 0});
  EXPECT_TRUE(credits.has_credit(Lane::kRequest));
  for (uint32_t i = 0; i < 3; ++i) credits.count_sent(Lane::kRequest);
  credits.apply({1, 0, 0});
  EXPECT_FALSE(credits.has_credit(Lane::kRequest));
}

TEST(Credits, CountersWrapOnTheWire) {
  Credits credits;
  ASSERT_EQ(credits.open(kCredits, kSlots), Status::kOk);
  for (uint32_t sent = 0; sent < 3 * 65536; sent += kCredits) {
    for (uint32_t i = 0; i < kCredits; ++i) {
      ASSERT_TRUE(credits.has_credit(Lane::kReply)) << sent + i;
      credits.count_sent(Lane::kReply);
    }
    ASSERT_FALSE(credits.has_credit(Lane::kReply));
    credits.apply({0, static_cast<uint16_t>(sent + kCredits), 0});
  }
}

TEST(Credits, SlotIsFreeWhenItsMessageIsAcknowledged) {
  Credits credits;
  ASSERT_EQ(credits.open(kCredits, 2), Status::kOk);
  credits.count_sent(Lane::kReply);
  EXPECT_EQ(credits.take_slot(Lane::kReply), 2U);
  credits.count_sent(Lane::kReply);
  EXPECT_EQ(credits.take_slot(Lane::kReply), 3U);
  EXPECT_FALSE(credits.has_slot(Lane::kReply));
  EXPECT_TRUE(credits.has_slot(Lane::kRequest));
  credits.apply({0, 1, 0});
  EXPECT_TRUE(credits.has_slot(Lane::kReply));
  credits.count_sent(Lane::kReply);
  EXPECT_EQ(credits.take_slot(Lane::kReply), 2U);
}

TEST(Credits, LastControlCreditsAreForReplies) {
  Credits credits;
  ASSERT_EQ(credits.open(kCredits, kSlots), Status::kOk);
  for (uint32_t i = 0; i < kControlCredits - 2; ++i) {
    EXPECT_TRUE(credits.has_control_credit());
    credits.count_sent(Credits::kControl);
  }
  EXPECT_FALSE(credits.has_control_credit());
  credits.add_taken(Credits::kControl, kControlCredits / 2);
  EXPECT_TRUE(credits.is_report_due());
  EXPECT_TRUE(credits.has_control_credit());
}

}  // namespace
}  // namespace hydrant::ibv
