#include "firehose/registrars/mlock_registrar.hpp"

#include "firehose/registrars/charge/memlock.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/registrars/error_text.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <fcntl.h>

namespace hydrant {
namespace {

using testing::kPageBytes;
using testing::MappedPages;
using testing::run_in_child;
using testing::says;
using testing::TestFile;

std::unique_ptr<Registrar> try_mlock() {
  auto status = Status::kOk;
  return make_mlock_registrar(&status);
}

uint64_t locked() { return read_process_bytes("VmLck"); }

#define HYDRANT_MLOCK_OR_SKIP(name)                    \
  const std::unique_ptr<Registrar> name = try_mlock(); \
  if (name == nullptr) GTEST_SKIP() << "no mlock here: " << last_error_text()

TEST(MlockRegistrar, OverlappingPinsNest) {
  HYDRANT_MLOCK_OR_SKIP(mlock);
  MappedPages memory(16 * kPageBytes);
  const uint64_t before = locked();
  ASSERT_EQ(mlock->pin(memory.pages(0, 8), Access::kLocalWrite, nullptr), Status::kOk);
  ASSERT_EQ(mlock->pin(memory.pages(4, 8), Access::kLocalWrite, nullptr), Status::kOk);
  EXPECT_EQ(locked(), before + 12 * kPageBytes);
  EXPECT_EQ(mlock->unpin(memory.pages(0, 8), nullptr), UnpinResult::kDone);
  EXPECT_EQ(locked(), before + 8 * kPageBytes);
  EXPECT_EQ(mlock->unpin(memory.pages(4, 8), nullptr), UnpinResult::kDone);
  EXPECT_EQ(locked(), before);
}

TEST(MlockRegistrar, PinsAreDivisible) {
  HYDRANT_MLOCK_OR_SKIP(mlock);
  EXPECT_TRUE(mlock->traits().divisible);
  EXPECT_EQ(mlock->traits().key_bytes, 0u);
  MappedPages memory(8 * kPageBytes);
  const uint64_t before = locked();
  ASSERT_EQ(mlock->pin(memory.all(), Access::kLocalRead, nullptr), Status::kOk);
  EXPECT_EQ(mlock->unpin(memory.pages(2, 3), nullptr), UnpinResult::kDone);
  EXPECT_EQ(locked(), before + 5 * kPageBytes);
  EXPECT_EQ(mlock->unpin(memory.pages(2, 1), nullptr), UnpinResult::kBroken);
  EXPECT_EQ(mlock->unpin(memory.all(), nullptr), UnpinResult::kBroken);
  EXPECT_EQ(locked(), before + 5 * kPageBytes);
  EXPECT_EQ(mlock->unpin(memory.pages(0, 2), nullptr), UnpinResult::kDone);
  EXPECT_EQ(mlock->unpin(memory.pages(5, 3), nullptr), UnpinResult::kDone);
  EXPECT_EQ(locked(), before);
}

TEST(MlockRegistrar, FailedPinsLeaveNothingLocked) {
  HYDRANT_MLOCK_OR_SKIP(mlock);
  MappedPages memory(8 * kPageBytes);
  munmap(memory.data() + 4 * kPageBytes, kPageBytes);
  const uint64_t before = locked();
  EXPECT_EQ(mlock->pin(memory.all(), Access::kLocalRead, nullptr), Status::kRefused);
  EXPECT_TRUE(says("mapped")) << last_error_text();
  EXPECT_EQ(locked(), before);
  MappedPages nothing(kPageBytes, PROT_NONE);
  EXPECT_EQ(mlock->pin(nothing.all(), Access::kLocalRead, nullptr), Status::kRefused);
  EXPECT_EQ(locked(), before);
}

TEST(MlockRegistrar, FailedPinKeepsEarlierPinsOnly) {
  HYDRANT_MLOCK_OR_SKIP(mlock);
  constexpr size_t kPages = 6;
  for (const bool hole : {true, false}) {
    for (size_t bad = 0; bad < kPages; ++bad) {
      MappedPages memory(kPages * kPageBytes);
      std::byte* page = memory.data() + bad * kPageBytes;
      ASSERT_EQ(hole ? munmap(page, kPageBytes) : mprotect(page, kPageBytes, PROT_NONE), 0);
      const MemoryRange good = memory.pages((bad + 1) % kPages, 1);
      ASSERT_EQ(mlock->pin(good, Access::kLocalWrite, nullptr), Status::kOk) << last_error_text();
      const uint64_t before = locked();
      for (const Access access : {Access::kLocalRead, Access::kLocalWrite}) {
        EXPECT_EQ(mlock->pin(memory.all(), access, nullptr), Status::kRefused) << last_error_text();
        EXPECT_EQ(locked(), before) << "bad page " << bad;
      }
      EXPECT_EQ(mlock->unpin(good, nullptr), UnpinResult::kDone);
      EXPECT_EQ(locked(), before - kPageBytes);
    }
  }
}

TEST(MlockRegistrar, PinnedMemoryIsResident) {
  HYDRANT_MLOCK_OR_SKIP(mlock);
  for (const Access access : {Access::kLocalRead, Access::kLocalWrite}) {
    TestFile file;
    constexpr size_t kPages = 32;
    ASSERT_EQ(ftruncate(file.fd(), kPages * kPageBytes), 0);
    MappedPages memory(kPages * kPageBytes);
    ASSERT_EQ(mmap(memory.data(), memory.size() / 2, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                   file.fd(), 0),
              memory.data());
    ASSERT_EQ(mlock->pin(memory.all(), access, nullptr), Status::kOk) << last_error_text();
    uint64_t entries[kPages] = {};
    const auto offset = static_cast<off_t>(memory.all().addr / kPageBytes * sizeof entries[0]);
    const int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    EXPECT_EQ(pread(pagemap, entries, sizeof entries, offset), ssize_t{sizeof entries});
    close(pagemap);
    for (size_t i = 0; i < kPages; ++i) EXPECT_TRUE(entries[i] >> 63 & 1) << "page " << i;
    EXPECT_EQ(mlock->unpin(memory.all(), nullptr), UnpinResult::kDone);
  }
}

TEST(MlockRegistrar, ReadOnlyMemoryCanBeASourceOnly) {
  HYDRANT_MLOCK_OR_SKIP(mlock);
  MappedPages memory(2 * kPageBytes);
  memory.fill('A');
  mprotect(memory.data(), memory.size(), PROT_READ);
  if (madvise(memory.data(), kPageBytes, 22 /* MADV_POPULATE_READ */) != 0) {
    GTEST_SKIP() << "this kernel (before 5.14) has no MADV_POPULATE_WRITE to check rights with";
  }
  const uint64_t before = locked();
  EXPECT_EQ(mlock->pin(memory.all(), Access::kRemoteWrite, nullptr), Status::kRefused);
  EXPECT_TRUE(says("writable")) << last_error_text();
  EXPECT_EQ(locked(), before);
  EXPECT_EQ(mlock->pin(memory.all(), Access::kRemoteRead, nullptr), Status::kOk);
  EXPECT_EQ(mlock->unpin(memory.all(), nullptr), UnpinResult::kDone);
}

TEST(MlockRegistrar, MemoryThatWentAwayCanBeUnpinned) {
  HYDRANT_MLOCK_OR_SKIP(mlock);
  MappedPages memory(8 * kPageBytes);
  const uint64_t before = locked();
  ASSERT_EQ(mlock->pin(memory.all(), Access::kLocalWrite, nullptr), Status::kOk);
  munmap(memory.data() + 2 * kPageBytes, 2 * kPageBytes);
  EXPECT_EQ(mlock->unpin(memory.all(), nullptr), UnpinResult::kDone);
  EXPECT_EQ(locked(), before);
}

TEST(MlockRegistrar, InvalidRangesAreRejected) {
  HYDRANT_MLOCK_OR_SKIP(mlock);
  EXPECT_EQ(mlock->pin({0x1000, 0}, Access::kLocalRead, nullptr), Status::kBadArg);
  EXPECT_EQ(mlock->pin({0x1001, kPageBytes}, Access::kLocalRead, nullptr), Status::kBadArg);
  EXPECT_EQ(mlock->pin({UINTPTR_MAX - 4095, 4096}, Access::kLocalRead, nullptr), Status::kBadArg);
  EXPECT_EQ(mlock->pin({UINTPTR_MAX - 4095, 8192}, Access::kLocalRead, nullptr), Status::kBadArg);
  EXPECT_EQ(mlock->unpin({0x1000, 0}, nullptr), UnpinResult::kBroken);
}

TEST(MlockRegistrar, DestructionUnlocks) {
  auto mlock = try_mlock();
  if (mlock == nullptr) GTEST_SKIP() << "no mlock here: " << last_error_text();
  MappedPages memory(4 * kPageBytes);
  const uint64_t before = locked();
  ASSERT_EQ(mlock->pin(memory.all(), Access::kLocalRead, nullptr), Status::kOk);
  mlock.reset();
  EXPECT_EQ(locked(), before);
}

TEST(MlockRegistrar, ThreadsDoNotUnlockEachOthersPages) {
  HYDRANT_MLOCK_OR_SKIP(mlock);
  MappedPages memory(16 * kPageBytes);
  memory.fill('A');
  const uint64_t before = locked();
  // Held throughout: these pages stay locked whatever the threads do.
  ASSERT_EQ(mlock->pin(memory.pages(6, 4), Access::kLocalWrite, nullptr), Status::kOk);
  std::atomic<int> wrong{0};
  testing::Threads threads;
  for (size_t t = 0; t < 3; ++t) {
    threads.start([&, t] {
      for (size_t i = 0; i < 300; ++i) {
        const MemoryRange range = memory.pages((i + t) % 8, 1 + (i * 3 + t) % 8);
        if (mlock->pin(range, Access::kLocalWrite, nullptr) != Status::kOk) ++wrong;
        if (mlock->unpin(range, nullptr) != UnpinResult::kDone) ++wrong;
      }
    });
  }
  threads.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(locked(), before + 4 * kPageBytes);
  EXPECT_EQ(mlock->unpin(memory.pages(6, 4), nullptr), UnpinResult::kDone);
  EXPECT_EQ(locked(), before);
}

TEST(MlockRegistrar, OrdinaryUserGetsTheLimitToRaise) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become a user of its own";
  EXPECT_EQ(run_in_child([]() -> std::string {
              constexpr uint64_t kLimit = uint64_t{8} << 20;
              std::string error = testing::become_ordinary_user(kLimit);
              if (!error.empty()) return error;
              const auto mlock = try_mlock();
              if (mlock == nullptr) return last_error_text();
              if (mlock->traits().max_charge_bytes != kLimit) return "the limit was not noticed";
              MappedPages memory(2 * kLimit);
              const MemoryRange half{memory.all().addr, kLimit / 2};
              const MemoryRange rest{half.end(), kLimit};
              if (mlock->pin(half, Access::kLocalWrite, nullptr) != Status::kOk) return "half";
              if (mlock->pin(rest, Access::kLocalWrite, nullptr) != Status::kNotReady) {
                return "exhaustion is not 'not now'";
              }
              if (!says("RLIMIT_MEMLOCK is 8388608 bytes") || !says("ulimit -l")) {
                return last_error_text();
              }
              if (mlock->pin(memory.all(), Access::kLocalWrite, nullptr) != Status::kResource) {
                return "more than the limit is not a matter of resources";
              }
              if (mlock->unpin(half, nullptr) != UnpinResult::kDone) return "unpin";
              return mlock->pin(rest, Access::kLocalWrite, nullptr) == Status::kOk ? "" : "again";
            }),
            "");
}

TEST(MlockRegistrar, ChildStartsEmpty) {
  HYDRANT_MLOCK_OR_SKIP(mlock);
  MappedPages memory(4 * kPageBytes);
  const uint64_t before = locked();
  ASSERT_EQ(mlock->pin(memory.all(), Access::kLocalRead, nullptr), Status::kOk);
  EXPECT_EQ(run_in_child([&]() -> std::string {
              mlock->forget_in_child();
              if (mlock->unpin(memory.all(), nullptr) != UnpinResult::kBroken) return "old pin";
              if (mlock->pin(memory.all(), Access::kLocalRead, nullptr) != Status::kOk)
                return "pin";
              if (locked() != memory.size()) return "not locked";
              return mlock->unpin(memory.all(), nullptr) == UnpinResult::kDone ? "" : "unpin";
            }),
            "");
  EXPECT_EQ(locked(), before + memory.size());
  EXPECT_EQ(mlock->unpin(memory.all(), nullptr), UnpinResult::kDone);
}

}  // namespace
}  // namespace hydrant
