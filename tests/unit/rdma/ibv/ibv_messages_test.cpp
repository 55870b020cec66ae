// Messages between ranks over verbs: their contents, their order, and that the receiver always has a buffer.
// Runs over the fake on any machine, and over a real device in the guest.
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace hydrant {
namespace {

using ::testing::HasSubstr;
using testing::IbvWorld;

class IbvMessages : public testing::VerbsTest {};

constexpr Lane kLanes[] = {Lane::kRequest, Lane::kReply};

std::string word(uint64_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }
uint64_t value_of(const Incoming& message) {
  uint64_t value = 0;
  std::memcpy(&value, message.head, sizeof value);
  return value;
}

TEST_F(IbvMessages, FirstMessageConnectsAndArrives) {
  IbvWorld world(2);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 7, "abcd"), Status::kNotReady) << "first contact";
  ASSERT_EQ(world.send(0, 1, Lane::kRequest, 0xabcdef, "abcdefgh"), Status::kOk)
      << last_error_text();
  ASSERT_TRUE(world.arrived(1, 1));
  const auto& letter = world[1].inbox.letters.at(0);
  EXPECT_EQ(letter.from, 0U);
  EXPECT_EQ(letter.lane, Lane::kRequest);
  EXPECT_EQ(letter.tag, 0xabcdefU);
  EXPECT_EQ(letter.head, "abcdefgh");
  EXPECT_EQ(letter.payload, "");
  EXPECT_EQ(world[0].transport->counts().connected, 1U);
  EXPECT_EQ(world[1].transport->counts().connected, 1U);
}

TEST_F(IbvMessages, SimultaneousConnectsSucceed) {
  IbvWorld world(2);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "aaaa"), Status::kNotReady);
  EXPECT_EQ(world[1].try_send(0, Lane::kRequest, 1, "bbbb"), Status::kNotReady);
  ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, "aaaa"), Status::kOk) << last_error_text();
  ASSERT_EQ(world.send(1, 0, Lane::kRequest, 1, "bbbb"), Status::kOk) << last_error_text();
  ASSERT_TRUE(world.arrived(1, 1) && world.arrived(0, 1));
  EXPECT_EQ(world[0].transport->counts().connected, 1U);
  EXPECT_EQ(world[1].transport->counts().connected, 1U);
}

TEST_F(IbvMessages, EveryLengthArrivesIntact) {
  IbvWorld world(2);
  world.connect(0, 1);
  const uint32_t most = world[0].transport->messages(1).inline_bytes();
  for (uint32_t bytes = 0; bytes <= most; bytes += bytes < 40 ? 1 : 37) {
    std::string head(bytes, '\0');
    for (uint32_t i = 0; i < bytes; ++i) head[i] = static_cast<char>(i * 7 + bytes);
    world[1].inbox.letters.clear();
    ASSERT_EQ(world.send(0, 1, Lane::kReply, bytes, head), Status::kOk);
    ASSERT_TRUE(world.until([&] { return !world[1].inbox.letters.empty(); }));
    EXPECT_EQ(world[1].inbox.letters[0].head, head) << bytes;
  }
  Outgoing room;
  EXPECT_EQ(world[0].transport->messages(1).reserve(1, Lane::kRequest, most + 1, &room),
            Status::kBadArg);
}

TEST_F(IbvMessages, HeadsAreAligned) {
  IbvWorld world(2);
  world.connect(0, 1);
  bool aligned = false;
  world[1].inbox.then = [&](const Incoming& message) {
    aligned = reinterpret_cast<uintptr_t>(message.head) % 8 == 0 &&
              reinterpret_cast<uintptr_t>(message.payload) % 64 == 0;
  };
  ASSERT_EQ(world.send_cell(0, 1, Lane::kRequest, 1, "head", "payload"), Status::kOk);
  ASSERT_TRUE(world.arrived(1, 1));
  EXPECT_TRUE(aligned);
  Outgoing room;
  ASSERT_EQ(world[0].transport->messages(1).reserve(1, Lane::kRequest, 8, &room), Status::kOk);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(room.head) % 8, 0U);
  world[0].transport->messages(1).commit(room, 0);
}

TEST_F(IbvMessages, FloodKeepsItsOrderInEachLaneAndItsCredits) {
  IbvWorld world(2);
  world.connect(0, 1);
  constexpr uint64_t kCount = 2000;
  uint64_t next[2] = {};
  uint64_t wrong = 0;
  world[1].inbox.then = [&](const Incoming& message) {
    if (value_of(message) != next[static_cast<uint32_t>(message.lane)]++) ++wrong;
  };
  for (uint64_t i = 0; i < kCount; ++i) {
    for (const Lane lane : kLanes) {
      ASSERT_EQ(world.send(0, 1, lane, 1, word(i)), Status::kOk) << i << last_error_text();
    }
  }
  ASSERT_TRUE(world.arrived(1, 2 * kCount));
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(world[1].transport->counts().control, 0U) << "no other message returned credits";
}

TEST_F(IbvMessages, CellsArriveWholeAndInOrderWithTheirLane) {
  IbvWorld world(2);
  world.connect(0, 1);
  constexpr uint64_t kCount = 300;
  uint64_t next = 0;
  uint64_t wrong = 0;
  world[1].inbox.then = [&](const Incoming& message) {
    const uint64_t i = next++;
    if (value_of(message) != i || (message.payload != nullptr) != (i % 3 != 0)) ++wrong;
    if (message.payload == nullptr) return;
    const std::string expected(1 + i * 50, static_cast<char>('a' + i % 26));
    if (message.payload_room < expected.size() ||
        std::memcmp(message.payload, expected.data(), expected.size()) != 0)
      ++wrong;
  };
  for (uint64_t i = 0; i < kCount; ++i) {
    const std::string payload(1 + i * 50, static_cast<char>('a' + i % 26));
    const Status status = i % 3 == 0 ? world.send(0, 1, Lane::kRequest, 1, word(i))
                                     : world.send_cell(0, 1, Lane::kRequest, 1, word(i), payload);
    ASSERT_EQ(status, Status::kOk) << i;
  }
  ASSERT_TRUE(world.arrived(1, kCount));
  EXPECT_EQ(wrong, 0U);
}

TEST_F(IbvMessages, CellWaitsForAReceiveSlotAndBlocksItsLane) {
  IbvWorld world(2);
  world.connect(0, 1);
  const uint32_t receive_slots = IbvTransport::Options().receive_slots;
  for (uint32_t i = 0; i <= receive_slots; ++i) {
    ASSERT_EQ(world[0].try_send_cell(1, Lane::kRequest, i, word(i), "payload"), Status::kOk);
  }
  EXPECT_EQ(world[0].transport->counts().stalls, 1U);
  // Its lane waits, the other lane continues.
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 99, word(99)), Status::kNotReady);
  EXPECT_EQ(world[0].try_send(1, Lane::kReply, 98, word(98)), Status::kOk);
  ASSERT_TRUE(world.arrived(1, receive_slots + 2));
  ASSERT_EQ(world.send(0, 1, Lane::kRequest, 99, word(99)), Status::kOk);
  ASSERT_TRUE(world.arrived(1, receive_slots + 3));
  std::vector<uint32_t> tags;
  for (const auto& letter : world[1].inbox.letters) {
    if (letter.lane == Lane::kRequest) tags.push_back(letter.tag);
  }
  ASSERT_EQ(tags.size(), receive_slots + 2);
  EXPECT_TRUE(std::is_sorted(tags.begin(), tags.end()));
}

// The minimum of all resources, both ways, both lanes, one side polling far less than the other: all messages
// arrive, and no sender waits for ever.
TEST_F(IbvMessages, MessagesFlowWithMinimalResources) {
  IbvTransport::Options options = IbvWorld::single();
  options.credits = 4;
  options.receive_slots = 2;
  options.cells = 3;
  options.send_depth = 16;
  IbvWorld world(2, options);
  world.connect(0, 1);
  constexpr uint64_t kCount = 1500;
  uint64_t sent[2][2] = {};
  uint64_t next[2][2] = {};
  uint64_t wrong = 0;
  for (Rank rank = 0; rank < 2; ++rank) {
    world[rank].inbox.then = [&, rank](const Incoming& message) {
      const uint64_t value = value_of(message);
      if (value != next[rank][static_cast<uint32_t>(message.lane)]++) ++wrong;
      if (message.payload != nullptr &&
          std::memcmp(message.payload, message.head, sizeof value) != 0)
        ++wrong;
    };
  }
  uint32_t round = 0;
  const bool ended = world.until([&] {
    ++round;
    for (Rank rank = 0; rank < 2; ++rank) {
      for (const Lane lane : kLanes) {
        uint64_t& i = sent[rank][static_cast<uint32_t>(lane)];
        // A single direction for a while, then the other, then both; as many messages as are accepted.
        Status status = (round / 64) % 3 == rank ? Status::kNotReady : Status::kOk;
        for (uint32_t tries = 0; tries < 8 && i < kCount && status == Status::kOk; ++tries) {
          status = i % 3 != 0 ? world[rank].try_send_cell(1 - rank, lane, 1, word(i), word(i))
                              : world[rank].try_send(1 - rank, lane, 1, word(i));
          if (status == Status::kOk) ++i;
        }
      }
    }
    if (round % 5 != 0) world[1].poll(1);
    return next[0][0] + next[0][1] + next[1][0] + next[1][1] == 4 * kCount;
  });
  EXPECT_TRUE(ended) << sent[0][0] << " " << sent[0][1] << " " << sent[1][0] << " " << sent[1][1];
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(world[0].transport->counts().stalls, 0U);
}

TEST_F(IbvMessages, CellsAreLimitedAndReturned) {
  IbvWorld world(2);
  world.connect(0, 1);
  const uint32_t cells = IbvTransport::Options().cells;
  std::vector<Cell> taken(cells);
  for (Cell& cell : taken)
    ASSERT_EQ(world[0].transport->messages(1).take_cell(1, Lane::kRequest, 100, &cell),
              Status::kOk);
  Cell more;
  EXPECT_EQ(world[0].transport->messages(1).take_cell(1, Lane::kRequest, 100, &more),
            Status::kNotReady);
  EXPECT_EQ(world[0].transport->messages(1).take_cell(1, Lane::kReply, 100, &more), Status::kOk)
      << "each lane has its own";
  world[0].transport->messages(1).drop_cell(1, Lane::kReply, more);
  for (const Cell& cell : taken) world[0].transport->messages(1).drop_cell(1, Lane::kRequest, cell);
  for (uint32_t i = 0; i < 5 * cells; ++i)
    ASSERT_EQ(world.send_cell(0, 1, Lane::kRequest, 1, "head", "payload"), Status::kOk) << i;
  EXPECT_EQ(world[0].transport->messages(1).take_cell(1, Lane::kRequest, 1 << 20, &more),
            Status::kBadArg);
}

TEST_F(IbvMessages, PollingRepliesOnlyStillReturnsReplyCredits) {
  IbvWorld world(2);
  world.connect(0, 1);
  // All requests that there are credits for arrive, and are not polled.
  uint32_t requests = 0;
  while (world[0].try_send(1, Lane::kRequest, 1, word(requests)) == Status::kOk) ++requests;
  EXPECT_GE(requests, IbvTransport::Options().credits / 2);
  constexpr uint32_t kReplies = 500;
  uint32_t sent = 0;
  const uint64_t deadline = testing::in_seconds(10);
  while (world[1].inbox.count < kReplies && now_ns() < deadline) {
    if (sent < kReplies && world[0].try_send(1, Lane::kReply, 2, word(sent)) == Status::kOk) ++sent;
    world[0].poll();
    world[1].poll(100, true);
  }
  EXPECT_EQ(world[1].inbox.count, kReplies);
  for (const auto& letter : world[1].inbox.letters) EXPECT_EQ(letter.lane, Lane::kReply);
  ASSERT_TRUE(world.arrived(1, kReplies + requests));
}

TEST_F(IbvMessages, HandlerMaySendAndPollForReplies) {
  IbvWorld world(2);
  world.connect(0, 1);
  uint64_t answers = 0;
  world[0].inbox.then = [&](const Incoming& message) {
    if (message.lane == Lane::kReply) ++answers;
  };
  world[1].inbox.then = [&](const Incoming& message) {
    if (message.lane != Lane::kRequest) return;
    // A handler retries its reply, and takes replies meanwhile. The other end runs in this thread too.
    const uint64_t deadline = testing::in_seconds(10);
    while (world[1].try_send(0, Lane::kReply, 2, word(value_of(message))) == Status::kNotReady &&
           now_ns() < deadline) {
      world[1].poll(10, true);
      world[0].poll(10, true);
    }
  };
  constexpr uint64_t kCount = 1000;
  for (uint64_t i = 0; i < kCount; ++i)
    ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, word(i)), Status::kOk);
  ASSERT_TRUE(world.until([&] { return answers == kCount; })) << answers;
}

TEST_F(IbvMessages, PollInsideAHandlerKeepsTheOrderOfItsLane) {
  IbvWorld world(2);
  world.connect(0, 1);
  uint64_t next = 0;
  uint64_t wrong = 0;
  uint32_t depth = 0;
  world[1].inbox.then = [&](const Incoming& message) {
    if (value_of(message) != next++ || depth != 0) ++wrong;
    ++depth;
    world[0].poll();  // more of them move
    world[1].poll(10, true);
    --depth;
  };
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_EQ(world.send(0, 1, Lane::kReply, 1, word(i)), Status::kOk);
  }
  ASSERT_TRUE(world.arrived(1, 200));
  EXPECT_EQ(wrong, 0U);
}

TEST_F(IbvMessages, BudgetIsKept) {
  IbvWorld world(2);
  world.connect(0, 1);
  for (uint32_t i = 0; i < 10; ++i)
    ASSERT_EQ(world.send(0, 1, Lane::kRequest, i, word(i)), Status::kOk);
  const uint64_t before = world[1].inbox.count;
  const uint64_t deadline = testing::in_seconds(10);
  while (world[1].inbox.count < 10 && now_ns() < deadline) {
    const uint64_t had = world[1].inbox.count;
    (void)world[1].poll(3);
    EXPECT_LE(world[1].inbox.count - had, 3U);
    world[0].poll();
  }
  EXPECT_EQ(world[1].inbox.count, 10U) << before;
}

TEST_F(IbvMessages, FourRanksTalkAllToAll) {
  constexpr Rank kRanks = 4;
  IbvWorld world(kRanks);
  for (uint32_t round = 0; round < 20; ++round) {
    for (Rank from = 0; from < kRanks; ++from) {
      for (Rank to = 0; to < kRanks; ++to) {
        if (from != to) {
          ASSERT_EQ(world.send(from, to, Lane::kRequest, round, word(from)), Status::kOk)
              << last_error_text();
        }
      }
    }
  }
  for (Rank rank = 0; rank < kRanks; ++rank) ASSERT_TRUE(world.arrived(rank, 20 * (kRanks - 1)));
}

TEST_F(IbvMessages, BadRanksAreRefused) {
  IbvWorld world(2);
  Outgoing room;
  EXPECT_EQ(world[0].transport->messages(0).reserve(0, Lane::kRequest, 8, &room), Status::kBadArg);
  EXPECT_EQ(world[0].transport->messages(2).reserve(2, Lane::kRequest, 8, &room), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("rank 2 does not exist"));
}

TEST_F(IbvMessages, ReportsItsCapabilities) {
  IbvWorld world(2);
  IbvTransport& transport = *world[0].transport;
  EXPECT_STREQ(transport.name(), "ibv");
  const ibv_atomic_cap atomics = transport.port().atomics;
  uint32_t expected = Transport::kPinned | Transport::kPutsBeforeMessages;
  if (atomics != IBV_ATOMIC_NONE) expected |= Transport::kAtomics;
  if (atomics == IBV_ATOMIC_GLOB) expected |= Transport::kAtomicWithProcessors;
  EXPECT_EQ(transport.capabilities(), expected);
  EXPECT_EQ(transport.memory().shared_block(1), nullptr);
  EXPECT_EQ(transport.memory().mapped(1, 0x1000, 8), nullptr);
  EXPECT_EQ(transport.memory().add_segment(1, 0x1000, 0x1000, nullptr), Status::kOk);
  EXPECT_EQ(transport.memory().write(1, 0x1000, "x", 1), Status::kUnsupported);
  EXPECT_GE(transport.messages(1).inline_bytes(), MessageChannel::kMaxHeadBytes);
}

TEST_F(IbvMessages, FlushWaitsUntilAllHasArrived) {
  IbvWorld world(2);
  world.connect(0, 1);
  for (uint32_t i = 0; i < 5; ++i)
    ASSERT_EQ(world[0].try_send(1, Lane::kRequest, i, word(i)), Status::kOk);
  world[0].transport->flush(testing::in_seconds(10));
  // The rank has exited; its messages are still delivered.
  world.ranks[0].reset();
  const uint64_t deadline = testing::in_seconds(10);
  while (world[1].inbox.count < 5 && now_ns() < deadline) world[1].poll();
  EXPECT_EQ(world[1].inbox.count, 5U);
}

// Every thread sends, every thread polls; each lane of a rank has one sender, so that the order can be
// checked.
TEST_F(IbvMessages, ThreadsSendAndPollAtOnce) {
  IbvTransport::Options options = IbvWorld::single();
  options.single_threaded = false;
  IbvWorld world(2, options);
  constexpr uint64_t kCount = 3000;
  std::atomic<uint64_t> got[2][2] = {};
  std::atomic<uint64_t> wrong{0};
  const uint64_t deadline = testing::in_seconds(60);
  struct Counter final : Receiver {
    void deliver(const Incoming& message) noexcept override {
      std::atomic<uint64_t>& next = (*got)[static_cast<uint32_t>(message.lane)];
      if (value_of(message) != next.load(std::memory_order_relaxed))
        wrong->fetch_add(1, std::memory_order_relaxed);
      next.fetch_add(1, std::memory_order_relaxed);
    }
    std::atomic<uint64_t> (*got)[2];
    std::atomic<uint64_t>* wrong;
  };
  Counter counters[2];
  for (uint32_t i = 0; i < 2; ++i) {
    counters[i].got = &got[i];
    counters[i].wrong = &wrong;
  }
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < 2; ++rank) {
    for (const Lane lane : kLanes) {
      threads.emplace_back([&, rank, lane] {
        for (uint64_t i = 0; i < kCount && now_ns() < deadline;) {
          const bool has_cell = i % 7 == 0;
          const Status status = has_cell
                                    ? world[rank].try_send_cell(1 - rank, lane, 1, word(i), "cell")
                                    : world[rank].try_send(1 - rank, lane, 1, word(i));
          if (status == Status::kOk) {
            ++i;
            continue;
          }
          if (status != Status::kNotReady) wrong.fetch_add(1000);
          if (world[rank].transport->poll(counters[rank], 10, false) == 0) sched_yield();
        }
        while (now_ns() < deadline && (got[rank][0] < kCount || got[rank][1] < kCount ||
                                       got[1 - rank][0] < kCount || got[1 - rank][1] < kCount)) {
          if (world[rank].transport->poll(counters[rank], 10, false) == 0) sched_yield();
        }
      });
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& of_rank : got) {
    for (auto& count : of_rank) EXPECT_EQ(count, kCount);
  }
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace hydrant
