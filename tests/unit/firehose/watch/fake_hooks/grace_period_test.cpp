// The waits of quiet() and quiet_range(), and the work of sync_range(), while a change is always under way.
// This file replaces the hooks' records and the kernel's reply whether a change is under way: each query is a
// step of a simulation in which calls enter and leave. So a wait is bounded by steps and not by time. The
// reader and its reports are real.
#include <hydrant/monitor.h>

#include "firehose/watch/hooks_abi.h"
#include "tests/support/mapped_memory.hpp"
#include "tests/unit/firehose/watch/listener.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <linux/userfaultfd.h>
#include <memory>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace {

constexpr uint32_t kRecords = 3;
constexpr size_t kHeapWords = size_t{1} << (47 - HYDRANT_HOOKS_HEAP_SHIFT - 6);

alignas(64) std::array<hydrant_hooks_thread_t, kRecords> records{};
std::array<uint64_t, kHeapWords> no_heaps{};
std::array<uint64_t, kHeapWords> libc_blocks{};
uintptr_t no_main_heap = 0;

// The simulated reply to the calling thread whether a change is under way; empty: the kernel's reply.
thread_local std::function<bool()> change_under_way;

}  // namespace

extern "C" hydrant_hooks_t hydrant_hooks_1;
hydrant_hooks_t hydrant_hooks_1 = {sizeof(hydrant_hooks_t),
                                   HYDRANT_HOOKS_VERSION,
                                   HYDRANT_HOOKS_ALL,
                                   records.data(),
                                   kRecords,
                                   0,
                                   no_heaps.data(),
                                   nullptr,
                                   libc_blocks.data(),
                                   &no_main_heap,
                                   &no_main_heap,
                                   nullptr,
                                   0,
                                   0,
                                   0,
                                   0,
                                   nullptr};

extern "C" int ioctl(int descriptor, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == UFFDIO_WRITEPROTECT && change_under_way) {
    errno = change_under_way() ? EAGAIN : EINVAL;
    return -1;
  }
  return static_cast<int>(syscall(SYS_ioctl, descriptor, request, argument));
}

namespace hydrant::testing {
namespace {

// More than any wait should take, by far.
constexpr int kMaxSteps = 1000;
constexpr int kLong = 50;
// Numbers that no thread has.
constexpr uint32_t kNoThread = 0x7ffffff0;

class GracePeriod : public ::testing::Test {
 protected:
  void SetUp() override {
    HYDRANT_NEEDS_USERFAULTFD();
    ASSERT_EQ(the_monitor().start(), 0) << the_monitor().reason();
    clear_records();
    ASSERT_NE(page(), nullptr);
  }
  void TearDown() override {
    change_under_way = nullptr;
    clear_records();
    __atomic_store_n(&hydrant_hooks_1.overflowed, 0U, __ATOMIC_RELEASE);
  }

  // The reader may be between a report and its records.
  static void clear_records() {
    the_monitor().settle();
    for (hydrant_hooks_thread_t& record : records) {
      __atomic_store_n(&record.entered, uint64_t{0}, __ATOMIC_RELEASE);
      __atomic_store_n(&record.len, uint64_t{0}, __ATOMIC_RELEASE);
      __atomic_store_n(&record.inner_len, uint64_t{0}, __ATOMIC_RELEASE);
      __atomic_store_n(&record.loading, uint32_t{0}, __ATOMIC_RELEASE);
      __atomic_store_n(&record.ending, uint32_t{0}, __ATOMIC_RELEASE);
      __atomic_store_n(&record.tid, uint32_t{0}, __ATOMIC_RELEASE);
    }
  }
  // Watched, and never unmapped: no record would explain that.
  static std::byte* page() {
    static std::byte* const watched = [] {
      static MappedMemory& memory = *new MappedMemory(1);
      memory.replace(0, 1);
      return cover(memory, 0, 1) != HYDRANT_COVER_NONE ? memory.page() : nullptr;
    }();
    return watched;
  }
  // Marks a thread as a hook does. The record names the memory that the simulated call releases.
  static void enter(uint32_t i, uint32_t tid) {
    hydrant_hooks_thread_t& record = records[i];
    __atomic_store_n(&record.tid, tid, __ATOMIC_RELEASE);
    __atomic_store_n(&record.addr, reinterpret_cast<uintptr_t>(page()), __ATOMIC_RELEASE);
    __atomic_store_n(&record.len, uint64_t{kPage}, __ATOMIC_RELEASE);
    __atomic_store_n(&record.entered, shown(the_monitor().removals), __ATOMIC_RELEASE);
  }
  static void enter(uint32_t i) { enter(i, kNoThread + i); }
  // Enters a call whose record names the given memory.
  static void enter_elsewhere(uint32_t i, uint64_t addr, uint64_t len) {
    enter(i);
    __atomic_store_n(&records[i].addr, addr, __ATOMIC_RELEASE);
    __atomic_store_n(&records[i].len, len, __ATOMIC_RELEASE);
  }
  static void leave(uint32_t i) {
    __atomic_store_n(&records[i].entered, uint64_t{0}, __ATOMIC_RELEASE);
  }
  // A change that the reader reads: it has a caller if a record is entered. The reader looks at the records
  // one by one after it has read, and must not meet each while the other one is entered.
  static void report() {
    ASSERT_EQ(madvise(page(), kPage, MADV_DONTNEED), 0);
    the_monitor().settle();
  }

  // Two records take turns: each enters before the other leaves.
  void overlap() {
    const uint32_t next = static_cast<uint32_t>(steps_ % 2);
    enter(next);
    leave(1 - next);
    // Not in the first step, which precedes the number of the wait: reports raise that number, too.
    if (steps_ > 1) report();
  }

  // Waits in a simulation in which a change is under way at all times; `step` is what else happens. After too
  // many steps the simulation reports that no change is under way.
  int steps_until_quiet(const std::function<void()>& step) {
    return steps_until([] { return the_monitor().quiet(UINT64_MAX); }, step);
  }
  int steps_until_range_is_quiet(uintptr_t addr, size_t len, const std::function<void()>& step) {
    return steps_until([=] { return the_monitor().quiet_range(addr, len, UINT64_MAX); }, step);
  }
  // Whether a wait for this range is one for the call in record 2.
  bool is_waited_for(uintptr_t addr, size_t len) {
    enter(1);
    steps_ = 0;
    const int steps = steps_until_range_is_quiet(addr, len, [this] {
      overlap();
      if (steps_ == kLong) leave(2);
    });
    EXPECT_LT(steps, kMaxSteps);
    return steps >= kLong;
  }
  int steps_until(const std::function<int()>& wait, const std::function<void()>& step) {
    change_under_way = [this, step] {
      if (++steps_ >= kMaxSteps) return false;
      step();
      return true;
    };
    EXPECT_EQ(wait(), 0);
    change_under_way = nullptr;
    return steps_;
  }

  int steps_ = 0;
};

TEST_F(GracePeriod, CallsThatOverlapForEverDoNotHoldUp) {
  enter(1);
  EXPECT_LT(steps_until_quiet([this] { overlap(); }), kMaxSteps);
}

TEST_F(GracePeriod, CallInsideIsAwaited) {
  enter(1);
  enter(2);
  const int steps = steps_until_quiet([this] {
    overlap();
    if (steps_ == kLong) leave(2);
  });
  EXPECT_GE(steps, kLong);
  EXPECT_LT(steps, kMaxSteps);
}

TEST_F(GracePeriod, LaterCallIsNotAwaited) {
  enter(1);
  EXPECT_LT(steps_until_quiet([this] {
              if (steps_ == 2) enter(2);
              overlap();
            }),
            kMaxSteps);
  EXPECT_NE(records[2].entered, 0u);
}

// The calling thread may be in a signal handler that interrupted a hooked call.
TEST_F(GracePeriod, CallersOwnCallIsNotAwaited) {
  enter(1);
  enter(2, static_cast<uint32_t>(syscall(SYS_gettid)));
  EXPECT_LT(steps_until_quiet([this] { overlap(); }), kMaxSteps);
}

TEST_F(GracePeriod, ThreadThatExitedInsideIsNotAwaited) {
  enter(1);
  enter(2);
  __atomic_store_n(&records[2].ending, static_cast<uint32_t>(1), __ATOMIC_RELEASE);
  EXPECT_LT(steps_until_quiet([this] { overlap(); }), kMaxSteps);
}

TEST_F(GracePeriod, LoaderIsAwaited) {
  enter(1);
  __atomic_store_n(&records[2].tid, static_cast<uint32_t>(kNoThread + 2), __ATOMIC_RELEASE);
  __atomic_store_n(&records[2].loading, static_cast<uint32_t>(1), __ATOMIC_RELEASE);
  const int steps = steps_until_quiet([this] {
    overlap();
    if (steps_ == kLong) __atomic_store_n(&records[2].loading, uint32_t{0}, __ATOMIC_RELEASE);
  });
  EXPECT_GE(steps, kLong);
  EXPECT_LT(steps, kMaxSteps);
}

// A change under way while no call is inside was made past the hooks: the reader has to read it.
TEST_F(GracePeriod, ChangeWithoutACallIsAwaitedUntilItIsRead) {
  const int steps = steps_until_quiet([this] {
    if (steps_ <= kLong) return;
    enter(1);
    report();
  });
  EXPECT_GT(steps, kLong);
  EXPECT_LT(steps, kMaxSteps);
}

// With more threads than records, some calls are not recorded.
TEST_F(GracePeriod, WithoutARecordForEachThreadTheWaitIsForAMomentWithoutChanges) {
  __atomic_store_n(&hydrant_hooks_1.overflowed, 1U, __ATOMIC_RELEASE);
  enter(1);
  EXPECT_EQ(steps_until_quiet([this] { overlap(); }), kMaxSteps);
}

class RangeWait : public GracePeriod {
 protected:
  void TearDown() override {
    note_heap(0);
    GracePeriod::TearDown();
  }
  static constexpr uintptr_t kPlace = uintptr_t{1} << 40;
  static constexpr size_t kLen = 16 * kPage;
  // Whether the block of 64 MiB at the place was ever one of libc's heaps.
  static void note_heap(uint64_t is_heap) {
    constexpr uintptr_t kBlock = kPlace >> HYDRANT_HOOKS_HEAP_SHIFT;
    __atomic_store_n(&libc_blocks[kBlock / 64], is_heap << kBlock % 64, __ATOMIC_RELEASE);
  }
};

TEST_F(RangeWait, CallOnOtherMemoryIsNotAwaited) {
  enter_elsewhere(2, kPlace + kLen, kPage);
  EXPECT_FALSE(is_waited_for(kPlace, kLen));
  enter_elsewhere(2, kPlace - kPage, kPage);
  EXPECT_FALSE(is_waited_for(kPlace, kLen));
  enter_elsewhere(2, 0, 0);
  EXPECT_FALSE(is_waited_for(kPlace, kLen));
}

TEST_F(RangeWait, CallThatTouchesTheRangeIsAwaited) {
  enter_elsewhere(2, kPlace + kLen - kPage, 64 * kPage);
  EXPECT_TRUE(is_waited_for(kPlace, kLen));
  // The kernel rounds out to pages.
  enter_elsewhere(2, kPlace - kPage, kPage + 1);
  EXPECT_TRUE(is_waited_for(kPlace + 100, kLen));
  enter_elsewhere(2, kPlace - 64 * kPage, 1024 * kPage);
  EXPECT_TRUE(is_waited_for(kPlace, kLen));
}

TEST_F(RangeWait, CallWithoutAValidRangeIsAwaited) {
  enter_elsewhere(2, 0, HYDRANT_HOOKS_ANYTHING);
  EXPECT_TRUE(is_waited_for(kPlace, kLen));
  enter_elsewhere(2, UINT64_MAX - 100, 200);
  EXPECT_TRUE(is_waited_for(kPlace, kLen));
}

TEST_F(RangeWait, NestedCallIsAwaited) {
  enter_elsewhere(2, 0, 0);
  __atomic_store_n(&records[2].inner_addr, uint64_t{kPlace}, __ATOMIC_RELEASE);
  __atomic_store_n(&records[2].inner_len, uint64_t{kPage}, __ATOMIC_RELEASE);
  EXPECT_TRUE(is_waited_for(kPlace, kLen));
  __atomic_store_n(&records[2].inner_len, uint64_t{HYDRANT_HOOKS_ANYTHING}, __ATOMIC_RELEASE);
  enter_elsewhere(2, 0, 0);
  EXPECT_TRUE(is_waited_for(kPlace + kPage, kLen));
}

// libc trims its heaps inside any call, without a note.
TEST_F(RangeWait, InAHeapOfLibcsAnyCallIsWaitedFor) {
  note_heap(1);
  enter_elsewhere(2, 0, 0);
  EXPECT_TRUE(is_waited_for(kPlace, kLen));
  enter_elsewhere(2, 0, 0);
  EXPECT_TRUE(is_waited_for(kPlace - kPage, 2 * kPage));
  enter_elsewhere(2, 0, 0);
  EXPECT_FALSE(is_waited_for(kPlace - kPage, kPage));
}

TEST_F(RangeWait, EndingThreadIsAwaited) {
  enter_elsewhere(2, 0, 0);
  __atomic_store_n(&records[2].tid, static_cast<uint32_t>(getpid()), __ATOMIC_RELEASE);
  __atomic_store_n(&records[2].ending, uint32_t{1}, __ATOMIC_RELEASE);
  std::thread([this] { EXPECT_TRUE(is_waited_for(kPlace, kLen)); }).join();
}

class RangeSync : public GracePeriod {
 protected:
  // A change is under way at all times, and a call is inside whose record names the page.
  int steps_of_sync(uintptr_t addr, size_t len) {
    enter(2);
    return steps_until(
        [=] {
          the_monitor().sync_range(addr, len);
          return 0;
        },
        [] {});
  }
};

TEST_F(RangeSync, DoesNotWaitAndHasTheRangeForgotten) {
  MappedMemory memory(4);
  memory.replace(0, 4);
  const Listener listener;
  EXPECT_LE(steps_of_sync(memory.addr(1), kPage + 1), 2);
  EXPECT_TRUE(listener.told_of(memory, 1, 1));
  EXPECT_TRUE(listener.told_of(memory, 2, 1)) << "the rest of its page";
  EXPECT_FALSE(listener.told_of(memory, 0, 1));
  EXPECT_FALSE(listener.told_of(memory, 3, 1));
}

// A heap grows by less than a page: the earlier contents of its last page are still there.
TEST_F(RangeSync, PartialPageIsInvalidatedButNotReportedAsUnmapped) {
  MappedMemory memory(4);
  memory.replace(0, 4);
  const Listener listener;
  ASSERT_EQ(listener.listen_to_unmapped(), 0);
  EXPECT_LE(steps_of_sync(memory.addr(1) + 16, kPage), 2);
  EXPECT_TRUE(listener.told_of(memory, 1, 1));
  EXPECT_FALSE(listener.told_of_unmapped(memory, 1, 1));
  EXPECT_TRUE(listener.told_of_unmapped(memory, 2, 1));
  EXPECT_FALSE(listener.told_of(memory, 3, 1));
  EXPECT_LE(steps_of_sync(memory.addr(3) + 16, 16), 2);
  EXPECT_TRUE(listener.told_of(memory, 3, 1));
  EXPECT_FALSE(listener.told_of_unmapped(memory, 3, 1));
}

TEST_F(RangeSync, ForgetsNothingWithoutAChange) {
  MappedMemory memory(1);
  memory.replace(0, 1);
  const Listener listener;
  the_monitor().settle();
  the_monitor().sync_range(memory.addr(0), kPage);
  EXPECT_FALSE(listener.told_of(memory, 0, 1));
}

// A client that keeps the reader inside forget() of one range.
class SlowClient {
 public:
  explicit SlowClient(uintptr_t addr) : addr_(addr) { number_ = the_monitor().subscribe(&client_); }
  ~SlowClient() {
    let_go();
    the_monitor().unsubscribe(number_);
  }
  SlowClient(const SlowClient&) = delete;
  SlowClient& operator=(const SlowClient&) = delete;
  void let_go() { holds_ = false; }
  bool holding() const { return holding_; }

 private:
  void forget(uintptr_t addr) {
    if (addr != addr_) return;
    holding_ = true;
    EXPECT_TRUE(wait_until([this] { return !holds_; }));
  }
  uintptr_t addr_;
  std::atomic<bool> holds_{true}, holding_{false};
  hydrant_monitor_client_t client_{
      this,
      [](void* self, uintptr_t addr, size_t) { static_cast<SlowClient*>(self)->forget(addr); },
      [](void*) {}, [](void*, uintptr_t, size_t) { return 0; }};
  int number_ = -1;
};

// Memory that is mapped again before the report of its release is read.
class MappedAgain : public RangeSync {
 protected:
  void SetUp() override {
    RangeSync::SetUp();
    enter_elsewhere(2, 0, HYDRANT_HOOKS_ANYTHING);  // explains all that follows
    memory_.replace(0, 1);
    other_.replace(0, 1);
    ASSERT_NE(cover(memory_, 0, 1), HYDRANT_COVER_NONE);
    ASSERT_NE(cover(other_, 0, 1), HYDRANT_COVER_NONE);
    slow_ = std::make_unique<SlowClient>(other_.addr());
    first_ = std::thread([this] { other_.unmap(0, 1); });
    ASSERT_TRUE(wait_until([this] { return slow_->holding(); }));
    second_ = std::thread([this] { memory_.unmap(0, 1); });
    ASSERT_TRUE(wait_until([this] { return memory_.map(0, 1); }));
    the_monitor().sync_range(memory_.addr(), kPage);
  }
  void TearDown() override {
    report_old_life();
    RangeSync::TearDown();
  }
  void report_old_life() {
    if (slow_ != nullptr) slow_->let_go();
    if (first_.joinable()) first_.join();
    if (second_.joinable()) second_.join();
    the_monitor().settle();
  }

  MappedMemory memory_{1}, other_{1};
  std::unique_ptr<SlowClient> slow_;
  std::thread first_, second_;
};

TEST_F(MappedAgain, IsWatchedAnew) {
  ASSERT_NE(cover(memory_, 0, 1), HYDRANT_COVER_NONE);
  report_old_life();
  const Listener listener;
  ASSERT_EQ(munmap(memory_.page(), kPage), 0);
  the_monitor().settle();
  EXPECT_TRUE(listener.told_of(memory_, 0, 1));
  memory_.disown(0, 1);
}

// The unmap report may be of the earlier memory: a removal in the new memory continues.
TEST_F(GracePeriod, RemovalEndsWithItsCallNotWithAnUnmapReport) {
  MappedMemory memory(1);
  memory.replace(0, 1);
  ASSERT_NE(cover(memory, 0, 1), HYDRANT_COVER_NONE);
  enter_elsewhere(2, 0, HYDRANT_HOOKS_ANYTHING);
  ASSERT_EQ(madvise(memory.page(), kPage, MADV_DONTNEED), 0);
  memory.unmap(0, 1);
  ASSERT_TRUE(memory.map(0, 1));
  EXPECT_EQ(cover(memory, 0, 1), HYDRANT_COVER_NONE);
  leave(2);
  EXPECT_NE(cover(memory, 0, 1), HYDRANT_COVER_NONE);
  enter_elsewhere(2, 0, HYDRANT_HOOKS_ANYTHING);  // explains the end of the memory
}

}  // namespace
}  // namespace hydrant::testing
