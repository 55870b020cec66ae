// Messages on the injected network: late, in order within a pair and lane, none lost, none twice.
#include "tests/unit/rdma/injected/injected_world.hpp"

#include <numeric>
#include <random>

namespace hydrant::testing {
namespace {

using Words = std::vector<uint64_t>;

Words counted(uint64_t count) {
  Words words(count);
  std::iota(words.begin(), words.end(), 0);
  return words;
}

TEST(InjectedMessages, ArriveAfterTheDelayAndNotBefore) {
  InjectedNode node({.delay_ns = 5000});
  ASSERT_EQ(node.send(1, Lane::kRequest, 1, 77), Status::kOk);
  node.after(4999);
  EXPECT_EQ(node.arrived(), Words{});
  node.after(1);
  EXPECT_EQ(node.arrived(), Words{77});
  node.after(100'000);
  EXPECT_EQ(node.arrived(), Words{});
}

TEST(InjectedMessages, KeepHeadTagLaneAndPayload) {
  InjectedNode node({.delay_ns = 5000});
  const uint32_t most = node.net->messages(1).inline_bytes();
  std::string text(most, 'x');
  text.back() = 'y';
  Outgoing room;
  ASSERT_EQ(node.net->messages(1).reserve(1, Lane::kReply, most, &room), Status::kOk);
  EXPECT_EQ(at(room.head) % 8, 0u);
  std::memcpy(room.head, text.data(), most);
  node.net->messages(1).commit(room, 0xabcdef);
  ASSERT_EQ(node.send_cell(1, Lane::kRequest, "sixteen letters."), Status::kOk);
  node.after(5000);
  Inbox there;
  while (node.all[1]->transport->poll(there, 10, false) != 0) {
  }
  ASSERT_EQ(there.letters.size(), 2u);
  EXPECT_EQ(there.letters[0].tag, 0xabcdefu);
  EXPECT_EQ(there.letters[0].lane, Lane::kReply);
  EXPECT_EQ(there.letters[0].head.substr(0, most), text);
  EXPECT_EQ(there.letters[1].payload, "sixteen letters.");
  EXPECT_EQ(node.net->messages(1).reserve(1, Lane::kReply, most + 1, &room), Status::kBadArg);
}

TEST(InjectedMessages, ReserveMovesThemToo) {
  InjectedNode node({.delay_ns = 5000});
  ASSERT_EQ(node.send(1, Lane::kRequest, 1, 1), Status::kOk);
  test_clock_ns += 5000;
  ASSERT_EQ(node.send(1, Lane::kRequest, 1, 2), Status::kOk);
  EXPECT_EQ(node.arrived(), Words{1});
}

TEST(InjectedMessages, BandwidthSpacesThem) {
  InjectedNode node({.delay_ns = 1000, .bytes_per_second = 8'000'000});  // 8 bytes: 1 us
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(node.send(1, Lane::kRequest, 1, i), Status::kOk);
  for (uint64_t i = 0; i < 3; ++i) {
    node.after(i == 0 ? 2000 : 1000);
    EXPECT_EQ(node.arrived(), Words{i});
  }
}

TEST(InjectedMessages, CreditsReturnARoundTripLater) {
  InjectedNode node({.delay_ns = 1000, .credits = 2});
  ASSERT_EQ(node.send(1, Lane::kRequest, 1, 0), Status::kOk);
  ASSERT_EQ(node.send(1, Lane::kRequest, 1, 1), Status::kOk);
  EXPECT_EQ(node.send(1, Lane::kRequest, 1, 2), Status::kNotReady);
  // Replies have their own.
  EXPECT_EQ(node.send(1, Lane::kReply, 1, 9), Status::kOk);
  node.after(1000);
  EXPECT_EQ(node.arrived().size(), 3u);
  EXPECT_EQ(node.send(1, Lane::kRequest, 1, 2), Status::kNotReady);
  node.after(999);
  EXPECT_EQ(node.send(1, Lane::kRequest, 1, 2), Status::kNotReady);
  node.after(1);
  EXPECT_EQ(node.send(1, Lane::kRequest, 1, 2), Status::kOk);
  EXPECT_EQ(node.send(1, Lane::kRequest, 1, 3), Status::kOk);
  EXPECT_EQ(node.send(1, Lane::kRequest, 1, 4), Status::kNotReady);
}

TEST(InjectedMessages, WindowLimitsBytes) {
  InjectedNode node({.delay_ns = 1000, .window_bytes = 100});
  const std::string large(4000, 'x');
  ASSERT_EQ(node.send_cell(1, Lane::kRequest, large), Status::kOk);  // alone, any length
  EXPECT_EQ(node.send(1, Lane::kRequest, 1, 0), Status::kNotReady);
  node.after(1000);
  node.after(1000);
  for (int i = 0; i < 12; ++i) ASSERT_EQ(node.send(1, Lane::kRequest, 1, 0), Status::kOk);
  EXPECT_EQ(node.send(1, Lane::kRequest, 1, 0), Status::kNotReady);
}

TEST(InjectedMessages, CellsAreCounted) {
  InjectedNode node({.delay_ns = 1000, .cells = 2});
  Cell first;
  Cell second;
  Cell third;
  ASSERT_EQ(node.net->messages(1).take_cell(1, Lane::kRequest, 10, &first), Status::kOk);
  ASSERT_EQ(node.net->messages(1).take_cell(1, Lane::kRequest, 10, &second), Status::kOk);
  EXPECT_EQ(node.net->messages(1).take_cell(1, Lane::kRequest, 10, &third), Status::kNotReady);
  ASSERT_EQ(node.net->messages(1).take_cell(1, Lane::kReply, 10, &third), Status::kOk);
  node.net->messages(1).drop_cell(1, Lane::kReply, third);
  node.net->messages(1).drop_cell(1, Lane::kRequest, first);
  ASSERT_EQ(node.send_cell(1, Lane::kRequest, "0123456789abcdef"), Status::kOk);
  EXPECT_EQ(node.net->messages(1).take_cell(1, Lane::kRequest, 10, &first), Status::kNotReady);
  test_clock_ns += 1000;  // it is sent: the next try finds that out
  EXPECT_EQ(node.net->messages(1).take_cell(1, Lane::kRequest, 10, &first), Status::kOk);
}

TEST(InjectedMessages, WaitWhileTheInnerTransportIsFull) {
  InjectedNode node({.delay_ns = 10, .credits = 4096});
  constexpr uint64_t kCount = 2000;  // the ring has 256 lines
  for (uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(node.send(1, Lane::kRequest, 1, i), Status::kOk);
  Words all;
  for (int round = 0; round < 100 && all.size() < kCount; ++round) {
    node.after(10);
    const Words now = node.arrived();
    all.insert(all.end(), now.begin(), now.end());
  }
  EXPECT_EQ(all, counted(kCount));
}

// Ranks at random, with cells and both lanes: order within a pair and lane, not across.
TEST(InjectedMessages, AreOutOfOrderAcrossPairsOnly) {
  constexpr uint32_t kRanks = 4;
  uint64_t mixed = 0;
  Words arrivals[2];
  for (const int run : {0, 1}) {
    InjectedNode node({.delay_ns = 1000, .reorder_ns = 20'000, .seed = 3}, kRanks);
    std::mt19937_64 random(11);
    uint64_t sent[kRanks][kLaneCount] = {};
    uint64_t got[kRanks][kLaneCount] = {};
    uint64_t last = 0;
    Inbox there;
    there.then = [&](const Incoming& message) {
      const uint64_t word = word_of(message);
      const auto to = static_cast<uint32_t>(word >> 56);
      const auto lane = static_cast<uint32_t>(message.lane);
      const uint64_t index = word >> 32 & 0xffff;
      EXPECT_EQ(index, got[to][lane]);
      ++got[to][lane];
      const uint64_t stamp = word & 0xffffffff;
      mixed += stamp < last ? 1 : 0;
      last = stamp;
      arrivals[run].push_back(word);
    };
    const auto drain = [&] {
      for (Rank to = 1; to < kRanks; ++to) {
        while (node.all[to]->transport->poll(there, 100, false) != 0) {
        }
      }
    };
    for (uint64_t stamp = 0; stamp < 3000; ++stamp) {
      const auto to = static_cast<Rank>(1 + random() % (kRanks - 1));
      const auto lane = static_cast<uint32_t>(random() % kLaneCount);
      const uint64_t word = uint64_t{to} << 56 | sent[to][lane] << 32 | stamp;
      while (node.send(to, static_cast<Lane>(lane), 1, word) == Status::kNotReady) {
        node.after(100);
        drain();
      }
      ++sent[to][lane];
      node.after(random() % 500);
      drain();
    }
    for (int i = 0; i < 100; ++i) {
      node.after(1000);
      drain();
    }
    for (Rank to = 1; to < kRanks; ++to) {
      EXPECT_EQ(got[to][0], sent[to][0]);
      EXPECT_EQ(got[to][1], sent[to][1]);
    }
  }
  EXPECT_GT(mixed, 100u);
  EXPECT_EQ(arrivals[0], arrivals[1]);
}

TEST(InjectedMessages, DisconnectedPeersGetNothingAndTheirCellsReturn) {
  InjectedNode node({.delay_ns = 1000, .cells = 1});
  ASSERT_EQ(node.send_cell(1, Lane::kRequest, "0123456789abcdef"), Status::kOk);
  Outgoing room;  // begun before, committed after
  ASSERT_EQ(node.net->messages(1).reserve(1, Lane::kReply, 8, &room), Status::kOk);
  Cell cell;
  ASSERT_EQ(node.net->messages(1).take_cell(1, Lane::kReply, 8, &cell), Status::kOk);
  node.net->disconnect(1);
  node.net->messages(1).commit_with_cell(room, 1, cell, 8);
  EXPECT_EQ(node.send(1, Lane::kRequest, 1, 1), Status::kBroken);
  EXPECT_EQ(node.net->messages(1).take_cell(1, Lane::kRequest, 8, &cell), Status::kOk);
  EXPECT_EQ(node.net->messages(1).take_cell(1, Lane::kReply, 8, &cell), Status::kOk);
  node.after(10'000);
  EXPECT_EQ(node.arrived(), Words{});
}

TEST(InjectedMessages, FailureOfTheInnerTransportFailsThePeer) {
  InjectedNode node({.delay_ns = 1000});
  ASSERT_EQ(node.send(1, Lane::kRequest, 1, 1), Status::kOk);
  node.after(1000);
  // More was read than sent: the inner transport disconnects the peer when it runs out of room.
  node.all[1]->memory.control(0, 1, Lane::kRequest).taken.store(shm::kRingLines[0] + 10);
  Status status = Status::kOk;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 1000 && status != Status::kBroken; ++i) {
    status = node.send(1, Lane::kRequest, 1, 1);
    node.after(1000);
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("corrupted"), std::string::npos);
  EXPECT_EQ(status, Status::kBroken);
}

TEST(InjectedMessages, UnreachablePeerAndOwnRank) {
  InjectedNode node({});
  EXPECT_EQ(node.send(0, Lane::kRequest, 1, 1), Status::kBadArg);
  EXPECT_EQ(node.send(2, Lane::kRequest, 1, 1), Status::kBadArg);
  node.net->disconnect(2);
  node.net->sleeping().wake_peer(1);
  EXPECT_EQ(node.net->memory().shared_block(1), nullptr);
  EXPECT_STREQ(node.net->name(), "injected");
}

// With the machine's clock and without a polling thread.
TEST(InjectedMessages, ArriveAlthoughTheSenderDoesSomethingElse) {
  InjectedNode node({.delay_ns = 100'000}, 2, true);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(node.send(1, Lane::kRequest, 1, 5), Status::kOk);
    Words words;
    const uint64_t deadline = in_seconds(20);
    while (words.empty() && now_ns() < deadline) words = node.arrived();
    ASSERT_EQ(words, Words{5});
    const timespec rest{0, 30'000'000};  // long enough for the thread to rest
    nanosleep(&rest, nullptr);
  }
}

TEST(InjectedMessages, SleepEndsWhenSomethingIsDue) {
  InjectedNode node({.delay_ns = 1'000'000}, 2, true);
  ASSERT_EQ(node.send(1, Lane::kRequest, 1, 5), Status::kOk);
  const uint64_t deadline = in_seconds(30);
  Words words;
  while (words.empty() && now_ns() < deadline) {
    node.net->sleeping().sleep(deadline);
    node.net->poll(node.inbox, 10, false);
    words = node.arrived();
  }
  EXPECT_EQ(words, Words{5});
}

}  // namespace
}  // namespace hydrant::testing
