// The mlock registrar over system calls that are played: which pages are locked, exactly, and what is left
// when any one call fails.
#include "firehose/registrars/mlock_registrar.hpp"
#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <random>

namespace hydrant {
namespace {

using testing::kPageBytes;
using testing::MappedPages;

constexpr size_t kFaultyPages = 48;
constexpr int kForEver = 1 << 30;

enum Call { kLock, kUnlock, kPopulate, kCalls };

// State of the pages of `memory` in the simulated kernel; other pages, such as the probe's, always work.
struct FaultyKernel {
  MappedPages memory{kFaultyPages * kPageBytes};
  bool locked[kFaultyPages] = {};
  int calls[kCalls] = {};
  // After `fail_after` more calls of this kind, the next `fail_times` fail with `error`.
  Call fail_call = kLock;
  int fail_after = 0, fail_times = 0, error = 0;
  bool probe_fails[kCalls] = {};
  bool plain_locks = false;  // a lock that was not on fault has been seen
  size_t populated = 0;      // pages, each as often as it was populated
  bool needless = false;     // a page was unlocked that was not locked

  MemoryRange pages(size_t first, size_t n) const { return memory.pages(first, n); }
  void fail(Call call, int after, int times, int with) {
    fail_call = call, fail_after = after, fail_times = times, error = with;
  }
  // The errno of this call.
  int count(Call call) {
    ++calls[call];
    if (call != fail_call || fail_times == 0) return 0;
    if (fail_after > 0) return --fail_after, 0;
    return --fail_times, error;
  }
  bool mine(MemoryRange range) const {
    return range.addr >= memory.all().addr && range.end() <= memory.all().end();
  }
  size_t first(MemoryRange range) const { return (range.addr - memory.all().addr) / kPageBytes; }
};
FaultyKernel* g_faulty_kernel = nullptr;

int faulty_lock(MemoryRange range, bool on_fault) noexcept {
  FaultyKernel& kernel = *g_faulty_kernel;
  if (!kernel.mine(range)) return on_fault && kernel.probe_fails[kLock] ? ENOSYS : 0;
  kernel.plain_locks |= !on_fault;
  const int error = kernel.count(kLock);
  // A failing mlock leaves a part locked.
  const size_t pages = range.len / kPageBytes, done = error == 0 ? pages : pages / 2;
  for (size_t i = 0; i < done; ++i) kernel.locked[kernel.first(range) + i] = true;
  return error;
}

int faulty_unlock(MemoryRange range) noexcept {
  FaultyKernel& kernel = *g_faulty_kernel;
  const int error = kernel.count(kUnlock);
  if (error != 0) return error;
  for (size_t i = 0; i < range.len / kPageBytes; ++i) {
    bool& locked = kernel.locked[kernel.first(range) + i];
    kernel.needless |= !locked;
    locked = false;
  }
  return 0;
}

int faulty_populate(MemoryRange range, bool /*writing*/) noexcept {
  FaultyKernel& kernel = *g_faulty_kernel;
  if (!kernel.mine(range)) return kernel.probe_fails[kPopulate] ? EINVAL : 0;
  kernel.populated += range.len / kPageBytes;
  return kernel.count(kPopulate);
}

// As before Linux 6.11.
int faulty_mapping(uintptr_t /*addr*/, MemoryRange* /*out*/) noexcept { return ENOTTY; }

int faulty_mapped(MemoryRange range, MappedRun each, void* context) noexcept {
  each(context, range);
  return 0;
}

int faulty_find_lock(MemoryRange range) noexcept {
  FaultyKernel& kernel = *g_faulty_kernel;
  if (!kernel.mine(range)) return 0;
  const bool* first = kernel.locked + kernel.first(range);
  return std::any_of(first, first + range.len / kPageBytes, [](bool locked) { return locked; })
             ? EBUSY
             : 0;
}

class MlockFaults : public ::testing::Test {
 protected:
  MlockFaults() { g_faulty_kernel = &kernel_; }
  ~MlockFaults() override {
    mlock_.reset();
    g_faulty_kernel = nullptr;
  }
  void SetUp() override { make(); }
  void make() {
    auto status = Status::kOk;
    mlock_ = make_mlock_registrar(&status, {&faulty_lock, &faulty_unlock, &faulty_populate,
                                            &faulty_mapped, &faulty_find_lock, &faulty_mapping});
    ASSERT_NE(mlock_, nullptr) << last_error_text();
  }
  Status pin(MemoryRange range, Access access = Access::kLocalWrite) {
    return mlock_->pin(range, access, nullptr);
  }
  void expect_locked(const int* counts) {
    for (size_t i = 0; i < kFaultyPages; ++i) {
      ASSERT_EQ(kernel_.locked[i], counts[i] > 0) << "page " << i;
    }
  }

  FaultyKernel kernel_;
  std::unique_ptr<Registrar> mlock_;
};

// The number of runs in `range` whose pages have no pin left.
int gone_runs(const int* counts, size_t first, size_t n) {
  int runs = 0;
  for (size_t i = first; i < first + n; ++i) {
    if (counts[i] == 0 && (i == first || counts[i - 1] != 0)) ++runs;
  }
  return runs;
}

TEST_F(MlockFaults, RandomPinsAndPiecesAgreeWithACounterPerPage) {
  const auto seed = static_cast<unsigned>(testing::test_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr int kErrors[] = {ENOMEM, EAGAIN, EINVAL, EFAULT};
  int counts[kFaultyPages] = {};
  for (int step = 0; step < 30000; ++step) {
    const size_t first = random() % kFaultyPages,
                 n = 1 + random() % std::min<size_t>(kFaultyPages - first, 12);
    const MemoryRange range = kernel_.pages(first, n);
    if (random() % 2 == 0) {
      const bool fails = random() % 4 == 0;
      kernel_.fail(random() % 2 == 0 ? kLock : kPopulate, 0, fails ? kForEver : 0,
                   kErrors[random() % std::size(kErrors)]);
      ASSERT_EQ(pin(range) == Status::kOk, !fails);
      kernel_.fail_times = 0;
      for (size_t i = first; !fails && i < first + n; ++i) ++counts[i];
    } else {
      const bool pinned =
          std::all_of(counts + first, counts + first + n, [](int c) { return c > 0; });
      kernel_.needless = false;
      const int unlocks = kernel_.calls[kUnlock];
      ASSERT_EQ(mlock_->unpin(range, nullptr), pinned ? UnpinResult::kDone : UnpinResult::kBroken);
      for (size_t i = first; pinned && i < first + n; ++i) --counts[i];
      ASSERT_EQ(kernel_.calls[kUnlock] - unlocks, pinned ? gone_runs(counts, first, n) : 0);
      ASSERT_FALSE(kernel_.needless);
    }
    ASSERT_NO_FATAL_FAILURE(expect_locked(counts)) << "step " << step;
  }
}

TEST_F(MlockFaults, WhicheverCallFailsOnlyItsPinIsMissing) {
  struct Fault {
    Call call;
    int error;
    Status status;
  };
  constexpr Fault kFaults[] = {
      {kLock, EAGAIN, Status::kNotReady},    {kLock, EIO, Status::kBroken},
      {kPopulate, EINVAL, Status::kRefused}, {kPopulate, ENOMEM, Status::kNotReady},
      {kPopulate, EFAULT, Status::kRefused}, {kPopulate, EAGAIN, Status::kNotReady}};
  constexpr size_t kPins[][2] = {{0, 8}, {4, 8}, {20, 4}, {2, 20}, {0, 8}, {30, 1}, {6, 1}};
  for (const Fault& fault : kFaults) {
    for (size_t bad = 0; bad < std::size(kPins); ++bad) {
      SCOPED_TRACE("error " + std::to_string(fault.error) + " at pin " + std::to_string(bad));
      int counts[kFaultyPages] = {};
      for (size_t k = 0; k < std::size(kPins); ++k) {
        const auto [first, n] = kPins[k];
        kernel_.fail(fault.call, 0, k == bad ? kForEver : 0, fault.error);
        ASSERT_EQ(pin(kernel_.pages(first, n)), k == bad ? fault.status : Status::kOk)
            << last_error_text();
        for (size_t i = first; k != bad && i < first + n; ++i) ++counts[i];
        ASSERT_NO_FATAL_FAILURE(expect_locked(counts));
      }
      for (size_t k = 0; k < std::size(kPins); ++k) {
        const auto [first, n] = kPins[k];
        if (k == bad) continue;
        ASSERT_EQ(mlock_->unpin(kernel_.pages(first, n), nullptr), UnpinResult::kDone);
        for (size_t i = first; i < first + n; ++i) --counts[i];
        ASSERT_NO_FATAL_FAILURE(expect_locked(counts));
      }
    }
  }
}

TEST_F(MlockFaults, TransientErrorsAreRetried) {
  for (const Call call : {kLock, kPopulate}) {
    kernel_.fail(call, 0, 3, EAGAIN);
    ASSERT_EQ(pin(kernel_.pages(0, 4)), Status::kOk) << last_error_text();
    EXPECT_EQ(kernel_.fail_times, 0);
    EXPECT_EQ(mlock_->unpin(kernel_.pages(0, 4), nullptr), UnpinResult::kDone);
  }
}

TEST_F(MlockFaults, FailedUnlockIsReported) {
  ASSERT_EQ(pin(kernel_.pages(0, 4)), Status::kOk);
  kernel_.fail(kUnlock, 0, 1, EPERM);
  EXPECT_EQ(mlock_->unpin(kernel_.pages(0, 4), nullptr), UnpinResult::kBroken);
  EXPECT_NE(std::string(last_error_text()).find("not permitted"), std::string::npos)
      << last_error_text();
  EXPECT_EQ(mlock_->unpin(kernel_.pages(0, 4), nullptr), UnpinResult::kBroken)
      << "already unpinned";
}

TEST_F(MlockFaults, PinPopulatesEachPageOnceAndAWritersEndsTwice) {
  for (const Access access : {Access::kLocalRead, Access::kAll}) {
    const size_t before = kernel_.populated;
    ASSERT_EQ(pin(kernel_.pages(0, 8), access), Status::kOk);
    EXPECT_EQ(kernel_.populated, before + 8 + (access == Access::kAll ? 2 : 0));
  }
  EXPECT_FALSE(kernel_.plain_locks) << "locking that makes resident, and populating, too";
}

// A pin beyond the lock limit populates only its first and last page.
TEST_F(MlockFaults, UnlockablePinPopulatesItsEndsOnly) {
  kernel_.fail(kLock, 0, kForEver, ENOMEM);
  EXPECT_NE(pin(kernel_.pages(0, 32)), Status::kOk);
  EXPECT_EQ(kernel_.populated, 2u);
}

TEST_F(MlockFaults, WithoutLockingOnFaultReadersPopulateOnlyWhereThePinDoesNotLock) {
  kernel_.probe_fails[kLock] = true;
  make();
  ASSERT_EQ(pin(kernel_.pages(0, 8), Access::kLocalRead), Status::kOk);
  EXPECT_EQ(kernel_.calls[kPopulate], 0);
  ASSERT_EQ(pin(kernel_.pages(0, 8), Access::kLocalWrite), Status::kOk);
  EXPECT_EQ(kernel_.populated, 8u + 2u);
  EXPECT_TRUE(kernel_.plain_locks);
  // Locked by the program, but perhaps on fault.
  kernel_.locked[20] = true;
  ASSERT_EQ(pin(kernel_.pages(20, 1), Access::kLocalRead), Status::kOk);
  EXPECT_EQ(kernel_.populated, 8u + 2u + 1u);
}

TEST_F(MlockFaults, OldKernelOnlyLocks) {
  kernel_.probe_fails[kPopulate] = true;
  make();
  ASSERT_EQ(pin(kernel_.pages(0, 8), Access::kAll), Status::kOk);
  EXPECT_EQ(kernel_.calls[kPopulate], 0);
  EXPECT_TRUE(kernel_.plain_locks);
  EXPECT_EQ(mlock_->unpin(kernel_.pages(0, 8), nullptr), UnpinResult::kDone);
}

}  // namespace
}  // namespace hydrant
