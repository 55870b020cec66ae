// The mlock registrar beside locks that the program takes itself, over the real kernel.
#include "firehose/base/pending_ranges.hpp"
#include "firehose/registrars/mlock_registrar.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace hydrant {
namespace {

using testing::kPageBytes;
using testing::MappedPages;

// Direct calls: a sanitizer's mlock() locks nothing.
bool lock(MemoryRange range) { return syscall(SYS_mlock, range.addr, range.len) == 0; }
bool unlock(MemoryRange range) { return syscall(SYS_munlock, range.addr, range.len) == 0; }

class MlockOwn : public ::testing::Test {
 protected:
  void SetUp() override {
    auto status = Status::kOk;
    mlock_ = make_mlock_registrar(&status);
    if (mlock_ == nullptr || !lock(memory_.pages(0, 1)))
      GTEST_SKIP() << "no mlock here: " << (mlock_ == nullptr ? last_error_text() : "limit");
    ASSERT_TRUE(unlock(memory_.pages(0, 1)));
  }
  bool pin(size_t first, size_t n) {
    return mlock_->pin(memory_.pages(first, n), Access::kLocalWrite, nullptr) == Status::kOk;
  }
  bool unpin(size_t first, size_t n) {
    return mlock_->unpin(memory_.pages(first, n), nullptr) == UnpinResult::kDone;
  }
  bool locked(size_t page) const { return kMlockCalls.find_lock(memory_.pages(page, 1)) == EBUSY; }
  size_t count_locked() const {
    size_t n = 0;
    for (size_t i = 0; i < kPages; ++i) n += locked(i) ? 1 : 0;
    return n;
  }

  static constexpr size_t kPages = 16;
  MappedPages memory_{kPages * kPageBytes};
  std::unique_ptr<Registrar> mlock_;
};

TEST_F(MlockOwn, LockedPageStaysLockedAndItsNeighboursDoNot) {
  ASSERT_TRUE(lock(memory_.pages(5, 1)));
  ASSERT_TRUE(pin(0, kPages));
  ASSERT_TRUE(pin(4, 4));
  EXPECT_EQ(count_locked(), kPages);
  ASSERT_TRUE(unpin(0, kPages));
  EXPECT_EQ(count_locked(), 4u);
  ASSERT_TRUE(unpin(4, 4));
  EXPECT_TRUE(locked(5));
  EXPECT_EQ(count_locked(), 1u);
}

TEST_F(MlockOwn, RefusedPinKeepsTheProgramsLock) {
  ASSERT_TRUE(lock(memory_.pages(1, 2)));
  ASSERT_EQ(munmap(memory_.data() + 8 * kPageBytes, kPageBytes), 0);
  EXPECT_FALSE(pin(0, kPages));
  EXPECT_TRUE(locked(1) && locked(2));
  EXPECT_EQ(count_locked(), 2u);
  EXPECT_EQ(mlock_->left_locked_bytes(), 0u) << "no unpin left it";
  ASSERT_TRUE(pin(0, 4));
  ASSERT_TRUE(unpin(0, 4));
  EXPECT_EQ(mlock_->left_locked_bytes(), 2 * kPageBytes);
}

TEST_F(MlockOwn, RegistrarsEndKeepsTheProgramsLock) {
  ASSERT_TRUE(lock(memory_.pages(3, 1)));
  ASSERT_TRUE(pin(2, 4));
  mlock_.reset();
  EXPECT_TRUE(locked(3));
  EXPECT_EQ(count_locked(), 1u);
}

TEST_F(MlockOwn, PinAfterTheProgramsUnlockOwnsTheLock) {
  ASSERT_TRUE(lock(memory_.pages(3, 1)));
  ASSERT_TRUE(pin(2, 4));
  ASSERT_TRUE(unpin(2, 4));
  ASSERT_TRUE(unlock(memory_.pages(3, 1)));
  ASSERT_TRUE(pin(2, 4));
  ASSERT_TRUE(unpin(2, 4));
  EXPECT_EQ(count_locked(), 0u);
}

TEST_F(MlockOwn, PagesThatTheProgramUnlockedWhilePinnedAreUnlockedAtTheirLastUnpin) {
  ASSERT_TRUE(lock(memory_.pages(0, 6)));
  ASSERT_TRUE(pin(0, 6));
  ASSERT_TRUE(unlock(memory_.pages(0, 4)));
  ASSERT_TRUE(pin(2, 8));
  EXPECT_EQ(count_locked(), 8u);
  ASSERT_TRUE(unpin(0, 6));
  ASSERT_TRUE(unpin(2, 8));
  EXPECT_TRUE(locked(4) && locked(5)) << "the program's locks";
  EXPECT_EQ(count_locked(), 2u);
}

// More alternations than are distinguished: the pages between stay locked, and no lock is lost.
TEST_F(MlockOwn, ManyLockedPagesAmongOthersAllStayLocked) {
  constexpr size_t kMany = 1024;
  const MappedPages memory(kMany * kPageBytes);
  for (size_t i = 0; i < kMany; i += 2) {
    if (!lock(memory.pages(i, 1))) GTEST_SKIP() << "the memlock limit is less than 4 MiB";
  }
  ASSERT_EQ(mlock_->pin(memory.all(), Access::kLocalWrite, nullptr), Status::kOk)
      << last_error_text();
  for (size_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(kMlockCalls.find_lock(memory.pages(i, 1)), EBUSY) << "pinned page " << i;
  }
  ASSERT_EQ(mlock_->unpin(memory.all(), nullptr), UnpinResult::kDone);
  for (size_t i = 0; i < kMany; i += 2) {
    ASSERT_EQ(kMlockCalls.find_lock(memory.pages(i, 1)), EBUSY) << "page " << i;
  }
}

// ---- memory that is released while it is pinned ----

void map_anew(MemoryRange range) {
  ASSERT_NE(mmap(reinterpret_cast<void*>(range.addr), range.len, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
}

TEST_F(MlockOwn, LockOfNewMemoryAtAPinnedAddressStays) {
  ASSERT_TRUE(pin(2, 8));
  map_anew(memory_.pages(4, 3));
  mlock_->unmapped(memory_.pages(4, 3));
  ASSERT_TRUE(lock(memory_.pages(5, 1)));
  ASSERT_TRUE(unpin(2, 8));
  EXPECT_TRUE(locked(5));
  EXPECT_EQ(count_locked(), 1u) << "what is still there is unlocked";
}

// The report of a call in another thread may be late.
TEST_F(MlockOwn, LateReportKeepsTheLockOfNewMemory) {
  ASSERT_TRUE(pin(0, 4));
  map_anew(memory_.pages(0, 4));
  ASSERT_TRUE(lock(memory_.pages(1, 2)));
  mlock_->unmapped(memory_.pages(0, 4));
  ASSERT_TRUE(unpin(0, 4));
  EXPECT_EQ(count_locked(), 2u);
}

TEST_F(MlockOwn, PinsOfOldAndNewMemoryAtAnAddressAreCountedApart) {
  for (const bool old_first : {true, false}) {
    ASSERT_TRUE(pin(0, 8));
    ASSERT_TRUE(pin(0, 8));
    map_anew(memory_.pages(0, 8));
    mlock_->unmapped(memory_.pages(0, 8));
    EXPECT_EQ(count_locked(), 0u);
    ASSERT_TRUE(pin(2, 4));
    EXPECT_EQ(count_locked(), 4u);
    if (old_first) {
      ASSERT_TRUE(unpin(0, 8) && unpin(0, 8));
      EXPECT_EQ(count_locked(), 4u) << "the new memory is pinned";
      ASSERT_TRUE(unpin(2, 4));
    } else {
      ASSERT_TRUE(unpin(2, 4));
      ASSERT_TRUE(unpin(0, 8) && unpin(0, 8));
    }
    EXPECT_EQ(count_locked(), 0u);
    EXPECT_FALSE(unpin(2, 1)) << "all is counted down";
  }
}

TEST_F(MlockOwn, RegistrarsEndKeepsTheLockOfNewMemory) {
  ASSERT_TRUE(pin(0, 8));
  map_anew(memory_.pages(2, 2));
  mlock_->unmapped(memory_.pages(2, 2));
  ASSERT_TRUE(lock(memory_.pages(2, 2)));
  mlock_.reset();
  EXPECT_EQ(count_locked(), 2u);
}

// More pieces than a report can divide without an allocation: they wait for the next unpin.
TEST_F(MlockOwn, ManyReportsForOnePinLeaveEachLockOfNewMemory) {
  constexpr size_t kMany = 128;
  const MappedPages memory(kMany * kPageBytes);
  ASSERT_EQ(mlock_->pin(memory.all(), Access::kLocalWrite, nullptr), Status::kOk)
      << last_error_text();
  for (size_t i = 0; i < kMany; i += 2) {
    map_anew(memory.pages(i, 1));
    mlock_->unmapped(memory.pages(i, 1));
    ASSERT_TRUE(lock(memory.pages(i, 1)));
  }
  ASSERT_EQ(mlock_->unpin(memory.all(), nullptr), UnpinResult::kDone);
  for (size_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(kMlockCalls.find_lock(memory.pages(i, 1)), i % 2 == 0 ? EBUSY : 0) << "page " << i;
  }
}

// Reports unmapped memory while the registrar's mutex is held, as a signal handler may.
struct Interruption {
  Registrar* registrar = nullptr;
  MemoryRange range;
  size_t reports = 0;
} g_interruption;

int find_lock_interrupted(MemoryRange range) noexcept {
  const Interruption interruption = std::exchange(g_interruption, {});
  for (size_t i = 0; i < interruption.reports; ++i)
    interruption.registrar->unmapped(interruption.range);
  return kMlockCalls.find_lock(range);
}

class MlockOwnInterrupted : public MlockOwn, public ::testing::WithParamInterface<size_t> {};

TEST_P(MlockOwnInterrupted, ReportWhileTheMutexIsHeldIsCounted) {
  auto status = Status::kOk;
  MlockCalls calls = kMlockCalls;
  calls.find_lock = &find_lock_interrupted;
  mlock_ = make_mlock_registrar(&status, calls);
  ASSERT_NE(mlock_, nullptr) << last_error_text();
  ASSERT_TRUE(pin(0, 4));
  map_anew(memory_.pages(1, 2));
  g_interruption = {mlock_.get(), memory_.pages(1, 2), GetParam()};
  ASSERT_TRUE(pin(8, 4));
  EXPECT_EQ(g_interruption.registrar, nullptr) << "no report";
  ASSERT_TRUE(lock(memory_.pages(1, 2)));
  ASSERT_TRUE(unpin(0, 4));
  EXPECT_TRUE(locked(1) && locked(2));
  // With more reports than are kept apart, all pinned pages stay locked.
  const bool all = GetParam() > PendingRanges::kMax;
  EXPECT_EQ(locked(0), all);
  ASSERT_TRUE(unpin(8, 4));
  EXPECT_EQ(count_locked(), all ? 8u : 2u);
}

INSTANTIATE_TEST_SUITE_P(Reports, MlockOwnInterrupted,
                         ::testing::Values(size_t{1}, PendingRanges::kMax + 1));

// In a child, whose locks end with it.
TEST_F(MlockOwn, MlockallAfterThePinKeepsAllLocked) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto status = Status::kOk;
    auto mlock = make_mlock_registrar(&status);
    const MemoryRange range = memory_.all();
    if (mlock == nullptr || mlock->pin(range, Access::kLocalWrite, nullptr) != Status::kOk)
      _exit(1);
    if (syscall(SYS_mlockall, MCL_CURRENT | MCL_ONFAULT) != 0) _exit(77);
    if (mlock->unpin(range, nullptr) != UnpinResult::kDone) _exit(2);
    if (kMlockCalls.find_lock(memory_.pages(3, 1)) != EBUSY) _exit(3);
    if (syscall(SYS_munlockall) != 0) _exit(4);
    if (mlock->pin(range, Access::kLocalWrite, nullptr) != Status::kOk) _exit(5);
    if (mlock->unpin(range, nullptr) != UnpinResult::kDone) _exit(6);
    _exit(kMlockCalls.find_lock(range) == EBUSY ? 7 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "mlockall is not allowed here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace hydrant
