// The mlock registrar where memory has holes, and beside other threads: how many calls it makes, what stays
// locked, and which pins wait.
#include "firehose/registrars/mlock_registrar.hpp"
#include "tests/support/test_seed.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <random>
#include <sched.h>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

using testing::kPageBytes;
using testing::MappedPages;
using testing::Threads;
using testing::wait_until;

constexpr size_t kPagesWithHoles = 48;

// A simulated kernel: as on Linux, mlock and munlock work up to the first hole and fail with ENOMEM.
struct KernelWithHoles {
  MappedPages memory{kPagesWithHoles * kPageBytes};
  bool hole[kPagesWithHoles] = {};
  bool locked[kPagesWithHoles] = {};
  int unlocks = 0;
  bool knows_mappings = true;
  bool populate_fails = false;
  bool all_is_locked = false;

  MemoryRange pages(size_t first, size_t n) const { return memory.pages(first, n); }
  bool mine(MemoryRange range) const { return memory.all().covers(range); }
  size_t first(MemoryRange range) const { return (range.addr - memory.all().addr) / kPageBytes; }
  int set(MemoryRange range, bool to) {
    for (size_t i = first(range); i < first(range) + range.len / kPageBytes; ++i) {
      if (hole[i]) return ENOMEM;
      locked[i] = to;
    }
    return 0;
  }
  // The pages are really unmapped, too: the registrar queries the kernel for the cause of a failure.
  void unmap(size_t page) {
    hole[page] = true;
    locked[page] = false;
    munmap(memory.data() + page * kPageBytes, kPageBytes);
  }
  void map(size_t page) {
    hole[page] = false;
    if (mmap(memory.data() + page * kPageBytes, kPageBytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
      std::abort();
    }
  }
};
KernelWithHoles* g_kernel_with_holes = nullptr;

int lock_with_holes(MemoryRange range, bool /*on_fault*/) noexcept {
  return g_kernel_with_holes->mine(range) ? g_kernel_with_holes->set(range, true) : 0;
}
int unlock_with_holes(MemoryRange range) noexcept {
  ++g_kernel_with_holes->unlocks;
  return g_kernel_with_holes->set(range, false);
}
int populate_with_holes(MemoryRange range, bool /*writing*/) noexcept {
  return g_kernel_with_holes->mine(range) && g_kernel_with_holes->populate_fails ? EFAULT : 0;
}
int mapped_with_holes(MemoryRange range, MappedRun each, void* context) noexcept {
  const KernelWithHoles& kernel = *g_kernel_with_holes;
  if (!kernel.knows_mappings) return ENOENT;
  const size_t end = kernel.first(range) + range.len / kPageBytes;
  for (size_t i = kernel.first(range); i < end; ++i) {
    if (kernel.hole[i]) continue;
    const size_t begin = i;
    while (i < end && !kernel.hole[i]) ++i;
    each(context, kernel.pages(begin, i - begin));
  }
  return 0;
}

int find_lock_with_holes(MemoryRange range) noexcept {
  const KernelWithHoles& kernel = *g_kernel_with_holes;
  if (!kernel.mine(range)) return kernel.all_is_locked ? EBUSY : 0;
  const bool* first = kernel.locked + kernel.first(range);
  return std::any_of(first, first + range.len / kPageBytes, [](bool locked) { return locked; })
             ? EBUSY
             : 0;
}

// A mapping for each run of pages that are locked, or not locked.
int mapping_with_holes(uintptr_t addr, MemoryRange* out) noexcept {
  const KernelWithHoles& kernel = *g_kernel_with_holes;
  if (!kernel.knows_mappings) return ENOTTY;
  const size_t page = kernel.first({addr, kPageBytes});
  if (kernel.hole[page]) return ENOENT;
  const auto same = [&](size_t other) {
    return !kernel.hole[other] && kernel.locked[other] == kernel.locked[page];
  };
  size_t begin = page, end = page + 1;
  while (begin > 0 && same(begin - 1)) --begin;
  while (end < kPagesWithHoles && same(end)) ++end;
  *out = kernel.pages(begin, end - begin);
  return 0;
}

constexpr MlockCalls kCallsWithHoles = {&lock_with_holes,      &unlock_with_holes,
                                        &populate_with_holes,  &mapped_with_holes,
                                        &find_lock_with_holes, &mapping_with_holes};

// The expected state of each page.
struct Model {
  int counts[kPagesWithHoles] = {};
  int unmapped[kPagesWithHoles] = {};  // pins of memory whose end was reported
  bool locked[kPagesWithHoles] = {};
  bool kept[kPagesWithHoles] = {};  // the program locked it: before its first pin, as of late
  bool left[kPagesWithHoles] = {};  // the last unpin left it as it was

  void pin(const KernelWithHoles& kernel, size_t first, size_t n, bool populate_fails) {
    size_t i = first;
    for (; i < first + n; ++i) kept[i] = locked[i] && (counts[i] == 0 || kept[i]);
    for (i = first; i < first + n && !kernel.hole[i]; ++i) locked[i] = true;
    const bool pinned = i == first + n && !populate_fails;
    for (i = first; i < first + n; ++i) ++counts[i];
    for (i = first; !pinned && i < first + n; ++i) {
      if (--counts[i] == 0) end(i);
    }
  }
  void unpin(size_t first, size_t n) {
    for (size_t i = first; i < first + n; ++i) {
      if (unmapped[i] != 0) {
        --unmapped[i];
        left[i] = true;
      } else if (--counts[i] == 0) {
        end(i);
      }
    }
  }
  void unmap(size_t first, size_t n) {
    for (size_t i = first; i < first + n; ++i) {
      unmapped[i] += std::exchange(counts[i], 0);
      locked[i] = kept[i] = false;
    }
  }
  void end(size_t i) {
    if (!kept[i]) locked[i] = false;
    left[i] = kept[i];
    kept[i] = false;
  }
  bool all_counted(size_t first, size_t n) const {
    for (size_t i = first; i < first + n; ++i) {
      if (counts[i] + unmapped[i] == 0) return false;
    }
    return true;
  }
};

class MlockHoles : public ::testing::Test {
 protected:
  MlockHoles() {
    g_kernel_with_holes = &kernel_;
    auto status = Status::kOk;
    mlock_ = make_mlock_registrar(&status, kCallsWithHoles);
  }
  ~MlockHoles() override {
    mlock_.reset();
    g_kernel_with_holes = nullptr;
  }
  Status pin(size_t first, size_t n) {
    return mlock_->pin(kernel_.pages(first, n), Access::kLocalWrite, nullptr);
  }
  UnpinResult unpin(size_t first, size_t n) {
    return mlock_->unpin(kernel_.pages(first, n), nullptr);
  }
  // At most one call for each run of pages whose last pin ends and that were not left locked, and one for
  // each mapped part of such a run that has a hole.
  int max_unlocks(const Model& model, size_t first, size_t n) const {
    int most = 0;
    for (size_t i = first; i < first + n; ++i) {
      if (model.counts[i] != 0 || model.left[i]) continue;
      const bool starts = i == first || model.counts[i - 1] != 0 || model.left[i - 1];
      const bool run_starts = !kernel_.hole[i] && (starts || kernel_.hole[i - 1]);
      most += (starts ? 1 : 0) + (run_starts ? 1 : 0);
    }
    return most;
  }

  KernelWithHoles kernel_;
  std::unique_ptr<Registrar> mlock_;
};

TEST_F(MlockHoles, RandomPinsUnpinsFailuresAndHolesAgreeWithTheModel) {
  const auto seed = static_cast<unsigned>(testing::test_seed());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Model model;
  for (int step = 0; step < 30000; ++step) {
    const size_t first = random() % kPagesWithHoles,
                 n = 1 + random() % std::min<size_t>(kPagesWithHoles - first, 20);
    kernel_.unlocks = 0;
    std::fill(std::begin(model.left), std::end(model.left), false);
    kernel_.knows_mappings = random() % 16 != 0;
    switch (random() % 11) {
      case 0:
        if (!kernel_.hole[first]) kernel_.unmap(first);
        model.locked[first] = false;
        break;
      // Reported, and often mapped again at once.
      case 10: {
        const bool again = random() % 4 != 0;
        for (size_t i = first; i < first + n; ++i) {
          if (!kernel_.hole[i]) kernel_.unmap(i);
          if (again) kernel_.map(i);
        }
        mlock_->unmapped(kernel_.pages(first, n));
        model.unmap(first, n);
        break;
      }
      // The program's own calls, on pages that are not pinned, and unlocking what it has locked.
      case 8:
      case 9: {
        const bool lock = random() % 2 == 0;
        for (size_t i = first; i < first + n; ++i) {
          const bool is_programs = model.counts[i] == 0 || (!lock && model.kept[i]);
          if (is_programs && !kernel_.hole[i]) kernel_.locked[i] = model.locked[i] = lock;
        }
        break;
      }
      case 1:
        if (kernel_.hole[first]) kernel_.map(first);
        break;
      case 2:
      case 3:
      case 4: {
        kernel_.populate_fails = random() % 4 == 0;
        const bool holes = std::any_of(kernel_.hole + first, kernel_.hole + first + n,
                                       [](bool hole) { return hole; });
        ASSERT_EQ(pin(first, n) == Status::kOk, !holes && !kernel_.populate_fails);
        model.pin(kernel_, first, n, kernel_.populate_fails);
        break;
      }
      default:
        if (!model.all_counted(first, n)) continue;
        ASSERT_EQ(unpin(first, n), UnpinResult::kDone);
        model.unpin(first, n);
        break;
    }
    if (kernel_.knows_mappings) {
      ASSERT_LE(kernel_.unlocks, max_unlocks(model, first, n)) << "step " << step;
    }
    for (size_t i = 0; i < kPagesWithHoles; ++i) {
      ASSERT_EQ(kernel_.locked[i], model.locked[i]) << "page " << i << ", step " << step;
    }
  }
}

TEST_F(MlockHoles, NothingIsUnlockedWhileAllMemoryIsLocked) {
  ASSERT_EQ(pin(0, 8), Status::kOk);
  kernel_.all_is_locked = true;
  kernel_.unlocks = 0;
  EXPECT_EQ(unpin(0, 4), UnpinResult::kDone);
  EXPECT_EQ(kernel_.unlocks, 0);
  kernel_.all_is_locked = false;
  EXPECT_EQ(unpin(4, 4), UnpinResult::kDone);
  EXPECT_TRUE(kernel_.locked[3]);
  EXPECT_FALSE(kernel_.locked[4]);
}

// ---- the real kernel, counted ----

std::atomic<uint64_t> g_unlocks{0};

int count_unlock(MemoryRange range) noexcept {
  g_unlocks.fetch_add(1, std::memory_order_relaxed);
  return kMlockCalls.unlock(range);
}

std::unique_ptr<Registrar> make_counting() {
  auto status = Status::kOk;
  MlockCalls calls = kMlockCalls;
  calls.unlock = &count_unlock;
  return make_mlock_registrar(&status, calls);
}

constexpr size_t kLong = size_t{4} << 30;

TEST(MlockHolesLong, RefusedPinOverALongHoleMakesFewCalls) {
  const auto mlock = make_counting();
  if (mlock == nullptr) GTEST_SKIP() << "no mlock here: " << last_error_text();
  const MappedPages memory(kLong, PROT_NONE, MAP_NORESERVE);
  const size_t pages = kLong / kPageBytes;
  // A page at either end, and two in the middle, which are runs of their own.
  ASSERT_EQ(munmap(memory.data() + kPageBytes, kLong - 2 * kPageBytes), 0);
  for (const size_t page : {size_t{0}, pages / 2, pages / 2 + 2, pages - 1}) {
    ASSERT_NE(mmap(memory.data() + page * kPageBytes, kPageBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              MAP_FAILED);
  }
  g_unlocks = 0;
  EXPECT_EQ(mlock->pin(memory.all(), Access::kLocalWrite, nullptr), Status::kRefused);
  EXPECT_LE(g_unlocks.load(), 5u);
}

TEST(MlockHolesLong, MemoryThatWasUnmappedIsUnpinnedInOneCall) {
  const auto mlock = make_counting();
  if (mlock == nullptr) GTEST_SKIP() << "no mlock here: " << last_error_text();
  constexpr size_t kBytes = size_t{4} << 20;
  const MappedPages memory(kBytes);
  ASSERT_EQ(mlock->pin(memory.all(), Access::kLocalWrite, nullptr), Status::kOk)
      << last_error_text();
  ASSERT_EQ(munmap(memory.data(), kBytes), 0);
  g_unlocks = 0;
  EXPECT_EQ(mlock->unpin(memory.all(), nullptr), UnpinResult::kDone);
  EXPECT_EQ(g_unlocks.load(), 1u);
}

// ---- beside other threads ----

std::atomic<bool> g_gate_shut{false};
std::atomic<int> g_inside{0};
constexpr uint64_t kVeryPatientNs = UINT64_MAX / 2;

int slow_unlock(MemoryRange range) noexcept {
  ++g_inside;
  (void)wait_until([] { return !g_gate_shut; });
  --g_inside;
  return unlock_with_holes(range);
}

TEST_F(MlockHoles, OnlyPinsOfTheSamePagesWaitForALongUnlock) {
  auto status = Status::kOk;
  MlockCalls calls = kCallsWithHoles;
  calls.unlock = &slow_unlock;
  const auto mlock = make_mlock_registrar(&status, calls);
  ASSERT_NE(mlock, nullptr) << last_error_text();
  const auto pin_on = [&](size_t first, size_t n) {
    return mlock->pin(kernel_.pages(first, n), Access::kLocalWrite, nullptr) == Status::kOk;
  };
  ASSERT_TRUE(pin_on(0, 8));
  g_gate_shut = true;
  std::atomic<bool> other{false};
  std::atomic<bool> same{false};
  Threads threads;
  threads.start([&] { (void)mlock->unpin(kernel_.pages(0, 8), nullptr); });
  EXPECT_TRUE(wait_until([] { return g_inside == 1; }));
  threads.start([&] { other = pin_on(20, 8); });
  threads.start([&] { same = pin_on(4, 8); });
  EXPECT_TRUE(wait_until([&] { return other.load(); })) << "pages apart wait";
  EXPECT_FALSE(same);
  g_gate_shut = false;
  threads.join();
  EXPECT_TRUE(same);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(kernel_.locked[i], i >= 4) << "page " << i;
  EXPECT_EQ(mlock->unpin(kernel_.pages(4, 8), nullptr), UnpinResult::kDone);
  EXPECT_EQ(mlock->unpin(kernel_.pages(20, 8), nullptr), UnpinResult::kDone);
}

TEST_F(MlockHoles, OnlyAReportOfTheSamePagesWaitsForALongUnlock) {
  auto status = Status::kOk;
  MlockCalls calls = kCallsWithHoles;
  calls.unlock = &slow_unlock;
  const auto mlock = make_mlock_registrar(&status, calls, kVeryPatientNs);
  ASSERT_NE(mlock, nullptr) << last_error_text();
  ASSERT_EQ(mlock->pin(kernel_.pages(0, 8), Access::kLocalWrite, nullptr), Status::kOk);
  g_gate_shut = true;
  std::atomic<bool> told{false};
  Threads threads;
  threads.start([&] { (void)mlock->unpin(kernel_.pages(0, 8), nullptr); });
  EXPECT_TRUE(wait_until([] { return g_inside == 1; }));
  threads.start([&] {
    mlock->unmapped(kernel_.pages(4, 1));
    told = true;
  });
  mlock->unmapped(kernel_.pages(20, 8));
  for (int i = 0; i < 100 && !told; ++i) sched_yield();
  EXPECT_FALSE(told);
  g_gate_shut = false;
  threads.join();
  EXPECT_TRUE(told);
}

// The unlocking thread may be stopped: the report does not wait for ever, and pages that are not yet unlocked
// stay locked.
TEST_F(MlockHoles, AbandonedReportLeavesTheRestLocked) {
  auto status = Status::kOk;
  MlockCalls calls = kCallsWithHoles;
  calls.unlock = &slow_unlock;
  const auto mlock = make_mlock_registrar(&status, calls, kReportPatienceNs / 10);
  ASSERT_NE(mlock, nullptr) << last_error_text();
  ASSERT_EQ(mlock->pin(kernel_.pages(0, 12), Access::kLocalWrite, nullptr), Status::kOk);
  ASSERT_EQ(mlock->pin(kernel_.pages(4, 4), Access::kLocalWrite, nullptr), Status::kOk);
  ASSERT_EQ(mlock->pin(kernel_.pages(20, 4), Access::kLocalWrite, nullptr), Status::kOk);
  g_gate_shut = true;
  std::atomic<bool> told{false};
  std::atomic<UnpinResult> result{UnpinResult::kDone};
  Threads threads;
  threads.start([&] { result = mlock->unpin(kernel_.pages(0, 12), nullptr); });
  EXPECT_TRUE(wait_until([] { return g_inside == 1; }));
  threads.start([&] {
    mlock->unmapped(kernel_.pages(9, 1));
    told = true;
  });
  EXPECT_TRUE(wait_until([&] { return told.load(); })) << "it waits for the unlocking";
  EXPECT_EQ(g_inside, 1);
  g_gate_shut = false;
  threads.join();
  EXPECT_EQ(result, UnpinResult::kBroken) << "which the cache counts";
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(kernel_.locked[i], i >= 4) << "page " << i;
  EXPECT_EQ(mlock->unpin(kernel_.pages(4, 4), nullptr), UnpinResult::kDone);
  EXPECT_EQ(mlock->unpin(kernel_.pages(20, 4), nullptr), UnpinResult::kDone) << "later ones";
  EXPECT_FALSE(kernel_.locked[4] || kernel_.locked[20]);
}

// Overlapping pins of real pages from several threads: every holder of a pin finds its pages locked.
TEST(MlockHolesLong, HeldPinStaysLockedWhileOthersUnpin) {
  auto status = Status::kOk;
  const auto mlock = make_mlock_registrar(&status);
  if (mlock == nullptr) GTEST_SKIP() << "no mlock here: " << last_error_text();
  constexpr size_t kShared = 64;
  const MappedPages memory(kShared * kPageBytes);
  std::atomic<int> wrong{0};
  Threads threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.start([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 2000; ++i) {
        const size_t first = random() % kShared, n = 1 + random() % (kShared - first);
        if (mlock->pin(memory.pages(first, n), Access::kLocalWrite, nullptr) != Status::kOk) {
          ++wrong;
          continue;
        }
        // The kernel refuses to drop pages that are locked.
        const auto* page = memory.data() + first * kPageBytes;
        if (madvise(const_cast<std::byte*>(page), n * kPageBytes, MADV_DONTNEED) == 0) ++wrong;
        if (mlock->unpin(memory.pages(first, n), nullptr) != UnpinResult::kDone) ++wrong;
      }
    });
  }
  threads.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace hydrant
