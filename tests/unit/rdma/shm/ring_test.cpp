// Rings by themselves, through two transports in one thread.
#include "tests/unit/rdma/shm/node_world.hpp"

#include <random>

namespace hydrant::testing {
namespace {

using shm::kRingLines;

TEST(ShmMessageWord, HoldsItsFieldsAtTheirLimits) {
  using shm::MessageWord;
  const uint64_t word = MessageWord::make(0x12345678, 18, 0xffffff, 80);
  EXPECT_TRUE(MessageWord::is_at(word, 0x12345678));
  EXPECT_FALSE(MessageWord::is_at(word, 0x12345678 + kRingLines[0]));
  EXPECT_EQ(MessageWord::lines(word), 18u);
  EXPECT_EQ(MessageWord::tag(word), 0xffffffu);
  EXPECT_EQ(MessageWord::cell_plus_1(word), 80u);
  EXPECT_EQ(word & (MessageWord::kSkip | MessageWord::kReserved), 0u);
}

TEST(ShmRing, CarriesEveryLengthInBothLanes) {
  Pair pair;
  for (const Lane lane : {Lane::kRequest, Lane::kReply}) {
    for (uint32_t bytes = 8; bytes <= pair.a.transport->messages(1).inline_bytes(); bytes += 8) {
      std::string sent(bytes, static_cast<char>('a' + bytes % 26));
      ASSERT_EQ(pair.a.try_send(1, lane, bytes, sent.data(), bytes), Status::kOk);
      ASSERT_EQ(pair.poll_b(), 1u);
      const auto& got = pair.inbox.letters.back();
      EXPECT_EQ(got.from, 0u);
      EXPECT_EQ(got.lane, lane);
      EXPECT_EQ(got.tag, bytes);
      ASSERT_GE(got.head.size(), bytes);
      EXPECT_EQ(got.head.substr(0, bytes), sent);
    }
  }
}

TEST(ShmRing, InvalidReservationsAreRejected) {
  Pair pair;
  Outgoing room;
  EXPECT_EQ(pair.a.transport->messages(1).reserve(
                1, Lane::kRequest, pair.a.transport->messages(1).inline_bytes() + 1, &room),
            Status::kBadArg);
  EXPECT_EQ(pair.a.transport->messages(7).reserve(7, Lane::kRequest, 8, &room), Status::kBadArg);
  EXPECT_EQ(pair.a.transport->messages(0).reserve(0, Lane::kRequest, 8, &room), Status::kBadArg);
}

TEST(ShmRing, FullRingIsNotReadyUntilRead) {
  Pair pair;
  for (const Lane lane : {Lane::kRequest, Lane::kReply}) {
    uint64_t sent = 0;
    while (pair.a.try_send(1, lane, 1, sent) == Status::kOk) ++sent;
    EXPECT_EQ(sent, kRingLines[static_cast<uint32_t>(lane)]);
    EXPECT_EQ(pair.a.try_send(1, lane, 1, 0), Status::kNotReady);
    // The reader acknowledges every quarter of the ring to the writer.
    for (uint64_t read = 0; read < sent / 4;) read += pair.poll_b(16);
    EXPECT_EQ(pair.a.try_send(1, lane, 1, 0), Status::kOk);
    while (pair.poll_b() != 0) {
    }
    EXPECT_EQ(pair.a.try_send(1, lane, 1, 0), Status::kOk);
    while (pair.poll_b() != 0) {
    }
  }
}

// For all lengths, and however far the writer runs ahead, all messages arrive, in order, whole. Payload words
// imitate messages of later laps; without the zeroing some of them would be read as messages.
void exchange_at_random(bool imitate, uint32_t seed) {
  SCOPED_TRACE(seed);
  Pair pair;
  std::mt19937 engine(seed);
  const auto random = [&engine] { return static_cast<uint32_t>(engine()); };
  uint64_t sent = 0;
  uint64_t received = 0;
  uint32_t wrong = 0;
  pair.inbox.then = [&](const Incoming& message) {
    if (word_of(message) != received || message.tag != (received & 0xffffff)) ++wrong;
    ++received;
  };
  const std::byte* ring = pair.a.memory.lines(0, 1, Lane::kRequest);
  uint32_t lap = 0;
  uint32_t last_slot = 0;
  while (sent < 20000) {
    const uint32_t bytes = 8 + random() % (pair.a.transport->messages(1).inline_bytes() - 8);
    Outgoing room;
    if (pair.a.transport->messages(1).reserve(1, Lane::kRequest, bytes, &room) == Status::kOk) {
      std::memcpy(room.head, &sent, sizeof sent);
      const auto slot = static_cast<uint32_t>(room.head - ring) / 64;
      if (slot < last_slot) ++lap;
      last_slot = slot;
      // head + 56 is the next line's message word.
      for (uint32_t line = 1; imitate && line * 64 <= bytes; ++line) {
        const uint32_t position = slot + line + (lap + 1 + random() % 2) * kRingLines[0];
        const uint64_t fake = shm::MessageWord::make(position, 1, 0xbad, 0);
        std::memcpy(room.head + line * 64 - 8, &fake, sizeof fake);
      }
      pair.a.transport->messages(1).commit(room, static_cast<uint32_t>(sent) & 0xffffff);
      ++sent;
    } else {
      ASSERT_NE(pair.poll_b(1 + random() % 8), 0u);
    }
    if (random() % 8 == 0) pair.poll_b(1 + random() % 4);
    ASSERT_EQ(wrong, 0u) << "after " << received;
  }
  while (pair.poll_b() != 0) {
  }
  EXPECT_EQ(received, sent);
  EXPECT_EQ(pair.b.transport->counts().disconnected, 0u);
}

TEST(ShmRing, RandomLengthsArriveInOrder) {
  for (uint32_t seed = 1; seed <= 3; ++seed) exchange_at_random(false, seed);
}

TEST(ShmRing, PayloadsThatImitateMessageWordsAreNotRead) {
  for (uint32_t seed = 1; seed <= 3; ++seed) exchange_at_random(true, seed);
}

// Exactly: a payload line that is a perfect message of the next lap, at the place where the reader waits.
TEST(ShmRing, PayloadOfTheLastLapIsNotReadAsAMessage) {
  Pair pair;
  // Two lines at 0; the second holds what a message at position 1 + 256 would begin with.
  std::byte two[120] = {};
  const uint64_t fake = shm::MessageWord::make(kRingLines[0] + 1, 1, 0xbad, 0);
  std::memcpy(two + 56, &fake, sizeof fake);
  ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, two, sizeof two), Status::kOk);
  ASSERT_EQ(pair.poll_b(), 1u);
  // Messages of one line each up to the end, and another at position 256: the reader waits at 257.
  for (uint32_t i = 2; i <= kRingLines[0]; ++i) {
    ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 2, i), Status::kOk);
    ASSERT_EQ(pair.poll_b(), 1u);
  }
  EXPECT_EQ(pair.poll_b(), 0u);
  EXPECT_EQ(pair.inbox.count, kRingLines[0]);
}

// The same for remains of old messages in lines that the writer skips for so long that 16 bits of position
// wrap around.
TEST(ShmRing, SkippedLinesHoldNoOldMessages) {
  Pair pair;
  const uint32_t size = kRingLines[0];
  // Lap 0: one line each, so that every line holds a message once.
  for (uint32_t i = 0; i < size; ++i)
    ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 1, i), Status::kOk);
  while (pair.poll_b() != 0) {
  }
  // 255 laps that skip the last 4 lines: 14 messages of 18 lines each.
  const std::string longest(pair.a.transport->messages(1).inline_bytes(), 'x');
  for (uint32_t lap = 1; lap < 256; ++lap) {
    for (uint32_t i = 0; i < size / 18; ++i) {
      ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 2, longest.data(),
                                static_cast<uint32_t>(longest.size())),
                Status::kOk);
      ASSERT_EQ(pair.poll_b(), 1u);
    }
  }
  // The lap in which position 65536 + 252 .. 255 stand where 252 .. 255 stood.
  for (uint32_t i = 0; i < size / 18; ++i) {
    ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 2, longest.data(),
                              static_cast<uint32_t>(longest.size())),
              Status::kOk);
    ASSERT_EQ(pair.poll_b(), 1u);
  }
  // Line 252 held a marker in every lap; the reader comes to 253.
  ASSERT_EQ(pair.a.try_send(1, Lane::kRequest, 3, 1), Status::kOk);
  EXPECT_EQ(pair.poll_b(), 1u);
  EXPECT_EQ(pair.poll_b(), 0u);
}

}  // namespace
}  // namespace hydrant::testing
