// Mappings of the real kernel after pins of the mlock registrar: the program's locks are of the kind that it
// chose, and there are no more mappings than before.
#include "firehose/registrars/mlock_registrar.hpp"
#include "tests/unit/firehose/registrars/mapping.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

namespace hydrant {
namespace {

using testing::kPageBytes;
using testing::MappedPages;

size_t count_mappings(MemoryRange range) {
  std::FILE* maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return 0;
  size_t n = 0;
  char line[4096];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    uintptr_t first = 0, end = 0;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &first, &end) == 2)
      n += first < range.end() && end > range.addr ? 1 : 0;
  }
  std::fclose(maps);
  return n;
}

// As before Linux 6.11.
int no_mapping(uintptr_t /*addr*/, MemoryRange* /*out*/) noexcept { return ENOTTY; }

std::unique_ptr<Registrar> make_mlock(bool tells_mappings) {
  auto status = Status::kOk;
  MlockCalls calls = kMlockCalls;
  if (!tells_mappings) calls.mapping = &no_mapping;
  return make_mlock_registrar(&status, calls);
}

bool has_populate(const MappedPages& memory) {
  return kMlockCalls.populate(memory.pages(0, 1), true) == 0;
}

// ---- locks of the program ----

// Memory that the program has locked, between two pages of other kinds, so that it joins no neighbour.
class LockedByProgram {
 public:
  LockedByProgram(size_t pages, bool on_fault) : len_(pages * kPageBytes) {
    void* all = mmap(nullptr, len_ + 2 * kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED) std::abort();
    guard_ = static_cast<std::byte*>(all);
    addr_ = guard_ + kPageBytes;
    if (mprotect(addr_, len_, PROT_READ | PROT_WRITE) != 0) std::abort();
    if (madvise(addr_, len_, MADV_NOHUGEPAGE) != 0 && errno != EINVAL) std::abort();
    // Direct calls: a sanitizer's mlock() locks nothing.
    locked_ = (on_fault ? syscall(SYS_mlock2, addr_, len_, MLOCK_ONFAULT)
                        : syscall(SYS_mlock, addr_, len_)) == 0;
  }
  ~LockedByProgram() { munmap(guard_, len_ + 2 * kPageBytes); }
  LockedByProgram(const LockedByProgram&) = delete;
  LockedByProgram& operator=(const LockedByProgram&) = delete;

  bool locked() const { return locked_; }
  MemoryRange pages(size_t first, size_t n) const {
    return {reinterpret_cast<uintptr_t>(addr_) + first * kPageBytes, n * kPageBytes};
  }
  MemoryRange all() const { return pages(0, len_ / kPageBytes); }
  // Moves it to twice its size; the number of new pages that the kernel has populated. SIZE_MAX: mremap
  // failed.
  size_t grow() {
    void* grown = mremap(addr_, len_, 2 * len_, MREMAP_MAYMOVE);
    if (grown == MAP_FAILED) return SIZE_MAX;
    std::vector<unsigned char> resident(len_ / kPageBytes);
    const int answer = mincore(static_cast<std::byte*>(grown) + len_, len_, resident.data());
    munmap(grown, 2 * len_);
    if (answer != 0) return SIZE_MAX;
    return static_cast<size_t>(std::count_if(resident.begin(), resident.end(),
                                             [](unsigned char one) { return (one & 1) != 0; }));
  }

 private:
  size_t len_;
  std::byte* guard_ = nullptr;
  std::byte* addr_ = nullptr;
  bool locked_ = false;
};

struct KindOfLock {
  const char* name;
  size_t pages;
  bool on_fault;
  bool tells_mappings;
};

class MlockKind : public ::testing::TestWithParam<KindOfLock> {};

TEST_P(MlockKind, PinKeepsTheKindOfTheProgramsLock) {
  const KindOfLock& kind = GetParam();
  const auto mlock = make_mlock(kind.tells_mappings);
  if (mlock == nullptr) GTEST_SKIP() << "no mlock here: " << last_error_text();
  for (const size_t part : {size_t{4}, kind.pages}) {
    LockedByProgram memory(kind.pages, kind.on_fault);
    if (!memory.locked()) GTEST_SKIP() << "the memlock limit is too low, or there is no mlock2()";
    if (kMlockCalls.populate(memory.pages(0, 1), true) != 0 && kind.on_fault)
      GTEST_SKIP() << "before Linux 5.14 a pin makes it a plain lock";
    const MemoryRange range = memory.pages(part == 4 ? 8 : 0, part);
    ASSERT_EQ(mlock->pin(range, Access::kLocalWrite, nullptr), Status::kOk) << last_error_text();
    std::vector<unsigned char> resident(part);
    ASSERT_EQ(mincore(reinterpret_cast<void*>(range.addr), range.len, resident.data()), 0);
    for (const unsigned char one : resident) ASSERT_TRUE((one & 1) != 0) << "a pinned page is out";
    ASSERT_EQ(mlock->unpin(range, nullptr), UnpinResult::kDone);
    EXPECT_EQ(count_mappings(memory.all()), 1u) << part << " pages";
    EXPECT_EQ(kMlockCalls.find_lock(memory.all()), EBUSY);
    EXPECT_EQ(memory.grow(), kind.on_fault ? 0 : kind.pages) << part << " pages";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, MlockKind,
    ::testing::Values(KindOfLock{"Plain", 64, false, true}, KindOfLock{"OnFault", 64, true, true},
                      KindOfLock{"PlainLarge", 512, false, true},
                      KindOfLock{"PlainWithoutMappings", 64, false, false},
                      KindOfLock{"OnFaultWithoutMappings", 64, true, false},
                      // More alternations than are distinguished.
                      KindOfLock{"PlainLargeWithoutMappings", 512, false, false}),
    [](const auto& kind) { return std::string(kind.param.name); });

// The program has locked half of it: each half returns to its earlier state.
TEST(MlockMappings, PinAcrossTheEdgeOfALockKeepsBothSides) {
  const auto mlock = make_mlock(true);
  if (mlock == nullptr) GTEST_SKIP() << "no mlock here: " << last_error_text();
  const MappedPages memory(64 * kPageBytes);
  if (syscall(SYS_mlock, memory.data(), 32 * kPageBytes) != 0)
    GTEST_SKIP() << "the memlock limit is less than 128 KiB";
  const size_t before = count_mappings(memory.all());
  for (int again = 0; again < 2; ++again) {
    ASSERT_EQ(mlock->pin(memory.pages(16, 32), Access::kLocalWrite, nullptr), Status::kOk);
    ASSERT_EQ(mlock->pin(memory.pages(24, 16), Access::kLocalWrite, nullptr), Status::kOk);
    for (size_t i = 16; i < 48; ++i)
      ASSERT_EQ(kMlockCalls.find_lock(memory.pages(i, 1)), EBUSY) << "page " << i;
    ASSERT_EQ(mlock->unpin(memory.pages(16, 32), nullptr), UnpinResult::kDone);
    ASSERT_EQ(mlock->unpin(memory.pages(24, 16), nullptr), UnpinResult::kDone);
    EXPECT_EQ(count_mappings(memory.all()), before);
    EXPECT_EQ(kMlockCalls.find_lock(memory.pages(32, 32)), 0);
  }
}

// ---- untouched memory ----

TEST(MlockMappings, PinsOfUntouchedMemoryLeaveOneMapping) {
  for (const size_t pages : {size_t{1}, size_t{3}}) {
    const auto mlock = make_mlock(true);
    if (mlock == nullptr) GTEST_SKIP() << "no mlock here: " << last_error_text();
    const MappedPages trial(kPageBytes);
    if (!has_populate(trial)) GTEST_SKIP() << "before Linux 5.14 locking brings the pages in";
    constexpr size_t kPins = 128;
    const MappedPages memory(kPins * (pages + 1) * kPageBytes);
    const size_t before = count_mappings(memory.all());
    constexpr size_t kOpen = 8;
    for (size_t i = 0; i < kPins + kOpen; ++i) {
      if (i < kPins) {
        const MemoryRange range = memory.pages(i * (pages + 1), pages);
        ASSERT_EQ(mlock->pin(range, Access::kLocalWrite, nullptr), Status::kOk)
            << last_error_text();
      }
      if (i >= kOpen) {
        const MemoryRange range = memory.pages((i - kOpen) * (pages + 1), pages);
        ASSERT_EQ(mlock->unpin(range, nullptr), UnpinResult::kDone);
      }
    }
    EXPECT_EQ(kMlockCalls.find_lock(memory.all()), 0);
    EXPECT_EQ(count_mappings(memory.all()), before) << kPins << " pins of " << pages << " pages";
  }
}

}  // namespace
}  // namespace hydrant
