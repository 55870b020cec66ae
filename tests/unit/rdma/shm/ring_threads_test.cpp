// The two ends of a ring in two threads and in a single mapping: elsewhere each rank has a mapping of its
// own, and ThreadSanitizer, which tracks addresses, sees no sharing.
#include "rdma/shm/ring.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <sched.h>
#include <thread>

namespace hydrant::shm {
namespace {

struct SharedRing {
  explicit SharedRing(Lane lane)
      : lines(static_cast<std::byte*>(std::aligned_alloc(
            kLineBytes, size_t{kRingLines[static_cast<uint32_t>(lane)]} * kLineBytes))) {
    std::memset(lines.get(), 0, size_t{kRingLines[static_cast<uint32_t>(lane)]} * kLineBytes);
    out.name(1, lane);
    out.open(lines.get(), control, true);
    in.open(lines.get(), control, lane);
  }
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> lines;
  RingControl control = {};
  OutRing out;
  InRing in;
};

uint32_t words_of(uint32_t lines) { return lines * (kLineBytes / 8) - 1; }

void write(OutRing& ring, uint32_t lines, uint64_t number) {
  auto* word = static_cast<uint64_t*>(static_cast<void*>(ring.head()));
  for (uint32_t i = 0; i < words_of(lines); ++i) word[i] = number + i;
  (void)ring.publish(lines, 1, 0, 0);
}

// The number of words that differ from those written.
uint32_t wrong_words(InRing& ring, uint32_t lines, uint64_t number) {
  const auto* word = static_cast<const uint64_t*>(static_cast<const void*>(ring.line())) + 1;
  uint32_t wrong = 0;
  for (uint32_t i = 0; i < words_of(lines); ++i) wrong += word[i] != number + i ? 1 : 0;
  return wrong;
}

TEST(ShmRingThreads, MessagesAreWholeWhenSeenAndLinesFreeWhenWritten) {
  constexpr uint64_t kMessages = 20000;
  for (const Lane lane : {Lane::kRequest, Lane::kReply}) {
    SharedRing shared(lane);
    std::thread writer([&] {
      std::minstd_rand random(3);
      for (uint64_t number = 0; number < kMessages; ++number) {
        const auto lines = static_cast<uint32_t>(1 + random() % kMaxMessageLines);
        while (!shared.out.has_room(lines) && shared.out.make_room(lines) != OutRing::Room::kYes) {
          sched_yield();
        }
        write(shared.out, lines, number);
      }
    });
    uint64_t wrong = 0;
    for (uint64_t number = 0; number < kMessages;) {
      const uint64_t word = shared.in.peek();
      if (word == 0) {
        sched_yield();
        continue;
      }
      ASSERT_TRUE(shared.in.is_sane(word)) << std::hex << word;
      const uint32_t lines = MessageWord::lines(word);
      if ((word & MessageWord::kSkip) != 0) {
        shared.in.skip(lines);
        continue;
      }
      wrong += wrong_words(shared.in, lines, number++);
      shared.in.take(lines);
    }
    writer.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(shared.in.peek(), 0u);
  }
}

}  // namespace
}  // namespace hydrant::shm
