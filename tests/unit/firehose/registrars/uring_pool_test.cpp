// Many rings: growth, choice, concurrency, ranges over 1 GiB.
#include "firehose/registrars/uring/uring_pool.hpp"

#include "tests/support/threads.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <sys/resource.h>

namespace hydrant {
namespace {

using testing::HeldPin;
using testing::Key;
using testing::kPageBytes;
using testing::MappedPages;
using testing::TestFile;

// `len` bytes of address space, all of them the same `block` bytes of memory.
class RepeatedMapping {
 public:
  RepeatedMapping(size_t len, size_t block) : space_(len, PROT_NONE, MAP_NORESERVE) {
    if (ftruncate(block_.fd(), static_cast<off_t>(block)) != 0) std::abort();
    for (size_t at = 0; at < len; at += block) {
      if (mmap(space_.data() + at, block, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
               block_.fd(), 0) == MAP_FAILED) {
        std::abort();
      }
    }
  }
  std::byte* data() const { return space_.data(); }
  MemoryRange all() const { return space_.all(); }

 private:
  MappedPages space_;
  TestFile block_;
};

void unpin_all(UringRegistrar& uring, std::vector<HeldPin>& pins) {
  for (HeldPin& pin : pins) {
    EXPECT_NE(uring.unpin(pin.range, pin.key.data()), UnpinResult::kBroken) << last_error_text();
  }
  pins.clear();
}

TEST(UringPool, OpensRingsUpToTheLimitThenNotReady) {
  UringOptions options;
  options.ring_slots = 4;
  options.max_rings = 5;
  HYDRANT_URING_OR_SKIP(uring, options);
  EXPECT_EQ(uring->traits().max_regions, 20u);
  MappedPages memory(32 * kPageBytes);
  memory.fill('A');
  std::vector<HeldPin> pins(20);
  for (size_t i = 0; i < pins.size(); ++i) {
    pins[i].range = memory.pages(i, 1);
    ASSERT_EQ(uring->pin(pins[i].range, Access::kAll, pins[i].key.data()), Status::kOk) << i;
  }
  EXPECT_EQ(uring->rings(), 5u);
  Key key;
  EXPECT_EQ(uring->pin(memory.pages(20, 1), Access::kAll, key.data()), Status::kNotReady);
  EXPECT_NE(std::string(last_error_text()).find("full"), std::string::npos) << last_error_text();
  // Room anywhere is enough.
  EXPECT_NE(uring->unpin(pins[7].range, pins[7].key.data()), UnpinResult::kBroken);
  EXPECT_EQ(uring->pin(pins[7].range, Access::kAll, pins[7].key.data()), Status::kOk);
  unpin_all(*uring, pins);
}

TEST(UringPool, GrowsPastOneRingByItself) {
  HYDRANT_URING_OR_SKIP(uring);
  constexpr size_t kPins = 1200;
  MappedPages memory(kPins * kPageBytes);
  memory.fill('A');
  std::vector<HeldPin> pins(kPins);
  for (size_t i = 0; i < kPins; ++i) {
    pins[i].range = memory.pages(i, 1);
    ASSERT_EQ(uring->pin(pins[i].range, Access::kAll, pins[i].key.data()), Status::kOk);
  }
  EXPECT_GE(uring->rings(), 5u);  // 256 slots each
  unpin_all(*uring, pins);
}

TEST(UringPool, NoDescriptorForAnotherRingIsNotReady) {
  UringOptions options;
  options.ring_slots = 1;
  HYDRANT_URING_OR_SKIP(uring, options);
  MappedPages memory(2 * kPageBytes);
  memory.fill('A');
  Key first, second;
  ASSERT_EQ(uring->pin(memory.pages(0, 1), Access::kAll, first.data()), Status::kOk);
  rlimit old{};
  getrlimit(RLIMIT_NOFILE, &old);
  const rlimit none{0, old.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const Status status = uring->pin(memory.pages(1, 1), Access::kAll, second.data());
  setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_EQ(status, Status::kNotReady);
  EXPECT_NE(std::string(last_error_text()).find("ulimit -n"), std::string::npos);
  EXPECT_EQ(uring->pin(memory.pages(1, 1), Access::kAll, second.data()), Status::kOk);
  EXPECT_NE(uring->unpin(memory.pages(1, 1), second.data()), UnpinResult::kBroken);
  EXPECT_NE(uring->unpin(memory.pages(0, 1), first.data()), UnpinResult::kBroken);
}

TEST(UringPool, LargePinsKeepToRingsOfTheirOwn) {
  UringOptions options;
  options.large_bytes = 4 * kPageBytes;
  HYDRANT_URING_OR_SKIP(uring, options);
  MappedPages memory(16 * kPageBytes);
  memory.fill('A');
  Key small, large, small_again;
  ASSERT_EQ(uring->pin(memory.pages(0, 1), Access::kAll, small.data()), Status::kOk);
  EXPECT_EQ(uring->rings(), 1u);
  ASSERT_EQ(uring->pin(memory.pages(4, 8), Access::kAll, large.data()), Status::kOk);
  EXPECT_EQ(uring->rings(), 2u);
  ASSERT_EQ(uring->pin(memory.pages(1, 1), Access::kAll, small_again.data()), Status::kOk);
  EXPECT_EQ(uring->rings(), 2u);
  EXPECT_NE(uring->unpin(memory.pages(0, 1), small.data()), UnpinResult::kBroken);
  EXPECT_NE(uring->unpin(memory.pages(1, 1), small_again.data()), UnpinResult::kBroken);
  EXPECT_NE(uring->unpin(memory.pages(4, 8), large.data()), UnpinResult::kBroken);
}

TEST(UringPool, BusyRingsAreAvoided) {
  UringOptions options;
  options.ring_slots = 8;
  UringPool pool(options);
  UringFailure failure;
  std::unique_ptr<UringRing> first = UringRing::open(8, false, &failure);
  if (first == nullptr) GTEST_SKIP() << "no io_uring here, errno " << -failure.error;
  pool.adopt_first(std::move(first));
  uint32_t one = 9, two = 9;
  UringRing* a = pool.claim(kPageBytes, 0, &one, &failure);
  UringRing* b = pool.claim(kPageBytes, 0, &two, &failure);
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  EXPECT_NE(a, b);
  EXPECT_NE(one, two);
  // A claim ends with a registration, even one that fails.
  UringRun run;
  EXPECT_EQ(a->register_run({kPageBytes, kPageBytes}, 0, &run), -EFAULT);
  EXPECT_EQ(b->register_run({kPageBytes, kPageBytes}, 0, &run), -EFAULT);
  EXPECT_EQ(a->load().users, 0u);
  EXPECT_EQ(a->load().taken.slots, 0u);
  EXPECT_EQ(a->load().taken.bytes, 0u);
}

TEST(UringPool, NeighbouringSlotsAreSoughtInOtherRings) {
  UringOptions options;
  options.ring_slots = 4;
  options.max_rings = 2;
  HYDRANT_URING_OR_SKIP(uring, options);
  constexpr size_t kBlock = size_t{2} << 20, kLen = kUringPieceBytes + kBlock;
  if (uring->traits().max_charge_bytes < kLen) GTEST_SKIP() << "RLIMIT_MEMLOCK is under 1 GiB";
  RepeatedMapping memory(kLen, kBlock);
  MappedPages small(4 * kPageBytes);
  small.fill('A');
  std::vector<HeldPin> pins(4);
  for (size_t i = 0; i < 4; ++i) {
    pins[i].range = small.pages(i, 1);
    ASSERT_EQ(uring->pin(pins[i].range, Access::kAll, pins[i].key.data()), Status::kOk);
  }
  // Every other slot of the first ring is free: enough slots for two, but no two neighbours.
  EXPECT_NE(uring->unpin(pins[2].range, pins[2].key.data()), UnpinResult::kBroken);
  EXPECT_NE(uring->unpin(pins[0].range, pins[0].key.data()), UnpinResult::kBroken);
  ASSERT_EQ(uring->rings(), 1u);
  Key key;
  ASSERT_EQ(uring->pin(memory.all(), Access::kAll, key.data()), Status::kOk) << last_error_text();
  EXPECT_EQ(uring->rings(), 2u);
  EXPECT_NE(uring->unpin(memory.all(), key.data()), UnpinResult::kBroken);
  EXPECT_NE(uring->unpin(pins[1].range, pins[1].key.data()), UnpinResult::kBroken);
  EXPECT_NE(uring->unpin(pins[3].range, pins[3].key.data()), UnpinResult::kBroken);
}

TEST(UringPool, ThreadsPinMoveAndUnpinAtOnce) {
  UringOptions options;
  options.ring_slots = 16;
  HYDRANT_URING_OR_SKIP(uring, options);
  constexpr size_t kThreads = 4, kRounds = 400, kPins = 8;
  std::atomic<int> wrong{0};
  testing::Threads threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.start([&, t] {
      const char mark = static_cast<char>('a' + t);
      MappedPages memory(kPins * kPageBytes);
      memory.fill(mark);
      TestFile file;
      std::vector<HeldPin> pins(kPins);
      for (size_t round = 0; round < kRounds; ++round) {
        for (size_t i = 0; i < kPins; ++i) {
          pins[i].range = memory.pages(i, 1 + (round + i) % (kPins - i));
          if (uring->pin(pins[i].range, Access::kAll, pins[i].key.data()) != Status::kOk) ++wrong;
        }
        if (round % 50 == 0) {
          HeldPin& pin = pins[round % kPins];
          if (uring->move(pin.key.data(), pin.range, file.fd(), 0, true) != Status::kOk) ++wrong;
          if (file.read(kPageBytes) != std::string(kPageBytes, mark)) ++wrong;
        }
        for (HeldPin& pin : pins) {
          if (uring->unpin(pin.range, pin.key.data()) == UnpinResult::kBroken) ++wrong;
        }
        (void)uring->pending_charge();
      }
    });
  }
  threads.join();
  EXPECT_EQ(wrong.load(), 0) << last_error_text();
  EXPECT_GE(uring->traits().max_regions, 1024u);
}

TEST(UringPool, TaggedUnpinsOfManyThreadsAllComplete) {
  UringOptions options;
  options.assume_late_charges = true;
  HYDRANT_URING_OR_SKIP(uring, options);
  std::atomic<int> wrong{0};
  testing::Threads threads;
  for (size_t t = 0; t < 3; ++t) {
    threads.start([&] {
      MappedPages memory(kPageBytes);
      memory.fill('A');
      Key key;
      for (int i = 0; i < 500; ++i) {
        if (uring->pin(memory.all(), Access::kAll, key.data()) != Status::kOk) ++wrong;
        if (uring->unpin(memory.all(), key.data()) != UnpinResult::kPending) ++wrong;
        (void)uring->pending_charge();
      }
    });
  }
  threads.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_TRUE(testing::wait_until([&] { return uring->pending_charge() == 0; }));
}

TEST(UringPool, RangeOverOneGibibyteTakesSeveralSlots) {
  UringOptions options;
  options.ring_slots = 8;
  HYDRANT_URING_OR_SKIP(uring, options);
  constexpr size_t kBlock = size_t{2} << 20, kLen = kUringPieceBytes + kBlock;
  if (uring->traits().max_charge_bytes < kLen) GTEST_SKIP() << "RLIMIT_MEMLOCK is under 1 GiB";
  RepeatedMapping memory(kLen, kBlock);
  std::memset(memory.data(), 'G', kBlock);
  Key key;
  ASSERT_EQ(uring->pin(memory.all(), Access::kAll, key.data()), Status::kOk) << last_error_text();
  // Across the boundary of the two slots.
  const MemoryRange middle{memory.all().addr + kUringPieceBytes - 3000, 6000};
  TestFile file;
  ASSERT_EQ(uring->move(key.data(), middle, file.fd(), 0, true), Status::kOk) << last_error_text();
  EXPECT_EQ(file.read(7000), std::string(6000, 'G'));
  EXPECT_NE(uring->unpin(memory.all(), key.data()), UnpinResult::kBroken);
  EXPECT_EQ(
      uring->pin({memory.all().addr, 8 * kUringPieceBytes + kPageBytes}, Access::kAll, key.data()),
      Status::kResource);
}

}  // namespace
}  // namespace hydrant
