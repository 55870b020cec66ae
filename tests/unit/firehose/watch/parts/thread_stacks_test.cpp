// Thread stacks in watched memory: what is noted, and which changes are explained by a thread's end.
#include "firehose/watch/thread_stacks.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/fake_hooks.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <thread>

namespace hydrant::testing {
namespace {

using Kind = MemoryChange::Kind;

constexpr size_t kMemoryPages = 256;

// Memory with descriptors: words that hold their own address, as libc's do.
class ThreadStacksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    calls.set_hooks(&fake.hooks);
    const RangesLock lock(mutex);
    ASSERT_TRUE(stacks.map(lock));
  }
  uintptr_t at(size_t page) const {
    return reinterpret_cast<uintptr_t>(memory.data() + page * kPage);
  }
  MemoryRange part(size_t page, size_t n) const { return {at(page), n * kPage}; }
  void put_descriptor(uint32_t record, size_t page) {
    *reinterpret_cast<uintptr_t*>(at(page)) = at(page);
    fake.records[record].stack = at(page);
  }

  alignas(kPage) std::array<unsigned char, kMemoryPages * kPage> memory{};
  FakeHooks fake;
  HookedCallsUnderWay calls;
  Mutex mutex;
  ThreadStacks stacks;
};

TEST_F(ThreadStacksTest, ChangesAgreeWithASetOfDescriptors) {
  std::array<size_t, FakeHooks::kRecords> pages_of{};
  for (uint32_t i = 0; i < FakeHooks::kRecords; ++i) {
    pages_of[i] = 15 + 16 * i;
    put_descriptor(i, pages_of[i]);
  }
  std::set<size_t> noted;
  const auto any_noted = [&noted](size_t from, size_t end) {
    const auto first = noted.lower_bound(from);
    return first != noted.end() && *first < end;
  };
  const RangesLock lock(mutex);
  EXPECT_FALSE(stacks.any());
  Random random(test_seed());
  for (int step = 0; step < 4000; ++step) {
    const size_t page = random.below(kMemoryPages - 40);
    const size_t n = 1 + random.below(40);
    if (random.below(4) == 0) {
      stacks.note(lock, part(page, n), calls);
      for (const size_t each : pages_of) {
        if (each >= page && each < page + n) noted.insert(each);
      }
    } else if (random.below(3) == 0) {
      stacks.remove(lock, part(page, n));
      noted.erase(noted.lower_bound(page), noted.lower_bound(page + n));
    }
    ASSERT_EQ(stacks.are_changed(lock, {Kind::kUnmapped, part(page, n), {}}),
              any_noted(page, page + n))
        << step;
    // A stack is emptied up to 64 KiB below its end.
    ASSERT_EQ(stacks.are_changed(lock, {Kind::kRemoved, part(page, n), {}}),
              any_noted(page + n, page + n + 16))
        << step;
    ASSERT_FALSE(stacks.are_changed(lock, {Kind::kMoved, part(page, n), {}}));
  }
  EXPECT_TRUE(stacks.any());
  stacks.reset_in_child();
  EXPECT_FALSE(stacks.are_changed(lock, {Kind::kUnmapped, part(0, kMemoryPages), {}}));
}

TEST_F(ThreadStacksTest, OnlyDescriptorsAreNoted) {
  fake.records[0].stack = at(3);  // other memory by now
  const RangesLock lock(mutex);
  stacks.note(lock, part(0, kMemoryPages), calls);
#ifdef __x86_64__
  EXPECT_FALSE(stacks.any());
#endif
  put_descriptor(1, 5);
  const HookedCallsUnderWay without;
  stacks.note(lock, part(5, 1), without);
  EXPECT_FALSE(stacks.are_changed(lock, {Kind::kUnmapped, part(5, 1), {}}));
  stacks.note(lock, part(5, 1), calls);
  EXPECT_TRUE(stacks.are_changed(lock, {Kind::kUnmapped, part(5, 1), {}}));
}

TEST_F(ThreadStacksTest, EndsAreNotedWhereTheKernelMayReport) {
  const auto ends_noted = [this](size_t page) {
    const RangesLock lock(mutex);
    stacks.note_ending(lock, at(page));
    return stacks.are_changed(lock, {Kind::kUnmapped, part(page, 1), {}});
  };
  EXPECT_FALSE(ends_noted(5));
  EXPECT_FALSE(stacks.any());
  stacks.expect(mutex, part(4, 4));
  EXPECT_TRUE(ends_noted(5));
  EXPECT_FALSE(ends_noted(8));
  stacks.drop(mutex, part(5, 1));
  EXPECT_FALSE(ends_noted(5));
  EXPECT_TRUE(ends_noted(6));
}

TEST_F(ThreadStacksTest, WithoutTheMutexAllEndsAreNotedAndNotesAreLost) {
  stacks.expect(mutex, part(4, 4));
  {
    const RangesLock lock(mutex);
    stacks.note_ending(lock, at(5));
    std::thread([this] { stacks.drop(mutex, part(6, 1)); }).join();
    stacks.note_ending(lock, at(6));
    EXPECT_FALSE(stacks.are_changed(lock, {Kind::kUnmapped, part(5, 1), {}}));
    EXPECT_TRUE(stacks.are_changed(lock, {Kind::kUnmapped, part(6, 1), {}}));
    std::thread([this] { stacks.expect(mutex, part(9, 1)); }).join();
    stacks.note_ending(lock, at(20));
    EXPECT_TRUE(stacks.are_changed(lock, {Kind::kUnmapped, part(20, 1), {}}));
  }
}

TEST_F(ThreadStacksTest, HooksAreCompleteWithAllFamiliesAndARecordForEachThread) {
  EXPECT_TRUE(calls.have_hooks());
  EXPECT_TRUE(calls.are_complete());
  EXPECT_FALSE(calls.is_in_libc_heap(part(0, kMemoryPages)));
  fake.hooks.heap_blocks = nullptr;
  EXPECT_TRUE(calls.is_in_libc_heap(part(0, kMemoryPages))) << "in doubt";
  fake.hooks.overflowed = 1;
  EXPECT_FALSE(calls.are_complete());
  fake.hooks.overflowed = 0;
  fake.hooks.families = HYDRANT_HOOKS_MAP;
  EXPECT_FALSE(calls.are_complete());
  const HookedCallsUnderWay without;
  EXPECT_FALSE(without.have_hooks());
  EXPECT_FALSE(without.are_complete());
}

}  // namespace
}  // namespace hydrant::testing
