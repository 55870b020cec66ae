// Guarantees of the functions of hydrant/alloc.h, whichever allocator is behind them.
#include <hydrant/alloc.h>

#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/watch/arena/tagged.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HYDRANT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HYDRANT_SANITIZED 1
#endif
#endif
#ifndef HYDRANT_SANITIZED
#define HYDRANT_SANITIZED 0
#endif

namespace hydrant::testing {
namespace {

uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

TEST(Alloc, BackendIsTheOneThisProgramWasBuiltWith) {
  EXPECT_STREQ(hydrant_alloc_backend(), HYDRANT_EXPECTED_BACKEND);
  EXPECT_STRNE(hydrant_alloc_backend_reason(), "");
}

TEST(Alloc, EverySizeIsUsableAlignedAndApartFromOthers) {
  std::map<uintptr_t, size_t> taken;
  uint64_t tag = 0;
  std::vector<std::pair<void*, size_t>> all;
  for (size_t bytes = 1; bytes <= 9 * kMiB; bytes += bytes / 7 + 1) {
    void* p = hydrant_alloc(bytes);
    ASSERT_NE(p, nullptr) << bytes;
    const size_t usable = hydrant_alloc_usable_size(p);
    EXPECT_GE(usable, bytes);
    EXPECT_EQ(address(p) % 16, 0u) << bytes;
    if (bytes > 16384) {
      EXPECT_EQ(address(p) % 4096, 0u) << bytes;
    }
    if (bytes >= 2 * kMiB) {
      EXPECT_EQ(address(p) % (2 * kMiB), 0u) << bytes;
    }
    const auto after = taken.upper_bound(address(p));
    if (after != taken.end()) {
      EXPECT_LE(address(p) + usable, after->first);
    }
    if (after != taken.begin()) {
      EXPECT_LE(std::prev(after)->first + std::prev(after)->second, address(p));
    }
    taken[address(p)] = usable;
    write_marks(p, usable, tag++);
    all.emplace_back(p, usable);
  }
  for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(has_marks(all[i].first, all[i].second, i));
  for (const auto& [p, usable] : all) hydrant_free(p);
}

TEST(Alloc, ZeroBytesAreAnAllocationOfTheirOwn) {
  void* a = hydrant_alloc(0);
  void* b = hydrant_aligned_alloc(64, 0);
  void* c = hydrant_calloc(0, 8);
  ASSERT_TRUE(a != nullptr && b != nullptr && c != nullptr);
  EXPECT_TRUE(a != b && b != c && a != c);
  void* grown = hydrant_realloc(a, 0);
  EXPECT_NE(grown, nullptr);
  hydrant_free(grown);
  hydrant_free(b);
  hydrant_free(c);
  hydrant_free(nullptr);
  EXPECT_EQ(hydrant_alloc_usable_size(nullptr), 0u);
}

TEST(Alloc, AlignmentsUpToManyHugePages) {
  for (size_t alignment = 1; alignment <= 64 * kMiB; alignment *= 2) {
    for (const size_t bytes : {size_t{1}, size_t{100}, size_t{5000}, 3 * kMiB}) {
      void* p = hydrant_aligned_alloc(alignment, bytes);
      ASSERT_NE(p, nullptr) << alignment;
      EXPECT_EQ(address(p) % alignment, 0u) << alignment << " " << bytes;
      std::memset(p, 1, bytes);
      hydrant_free(p);
    }
  }
}

TEST(Alloc, AlignmentThatIsNoPowerOfTwoIsRefused) {
  for (const size_t alignment : {size_t{0}, size_t{3}, size_t{48}, SIZE_MAX}) {
    errno = 0;
    EXPECT_EQ(hydrant_aligned_alloc(alignment, 100), nullptr);
    EXPECT_EQ(errno, EINVAL) << alignment;
    errno = 0;
    EXPECT_EQ(hydrant_alloc_shared(alignment, 100), nullptr);
    EXPECT_EQ(errno, EINVAL) << alignment;
  }
}

TEST(Alloc, SizesBeyondTheMachineAreRefused) {
  const size_t too_many[] = {SIZE_MAX, SIZE_MAX - 4095, SIZE_MAX / 2, size_t{1} << 60,
                             size_t{1} << 47};
  void* kept = hydrant_alloc(100);
  for (const size_t bytes : too_many) {
    errno = 0;
    EXPECT_EQ(hydrant_alloc(bytes), nullptr);
    EXPECT_EQ(errno, ENOMEM) << bytes;
    EXPECT_EQ(hydrant_calloc(bytes, 16), nullptr);
    EXPECT_EQ(hydrant_calloc(16, bytes), nullptr);
    EXPECT_EQ(hydrant_aligned_alloc(4096, bytes), nullptr);
    EXPECT_EQ(hydrant_alloc_shared(4096, bytes), nullptr);
    errno = 0;
    EXPECT_EQ(hydrant_realloc(kept, bytes), nullptr);
    EXPECT_EQ(errno, ENOMEM) << bytes;
  }
  errno = 0;
  EXPECT_EQ(hydrant_aligned_alloc(size_t{1} << 62, 1), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(hydrant_aligned_alloc(size_t{1} << 46, size_t{1} << 46), nullptr);
  EXPECT_GE(hydrant_alloc_usable_size(kept), 100u);
  hydrant_free(kept);
}

TEST(Alloc, AddressSpaceThatIsUsedUpIsAnErrorAndCanBeFreedAgain) {
  if (HYDRANT_SANITIZED) GTEST_SKIP() << "sanitizers need more address space than a limit leaves";
  const std::string wrong = run_in_child([]() -> std::string {
    const rlimit limit{size_t{3} << 30, size_t{3} << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return "no limit";
    std::vector<void*> all;
    all.reserve(100'000);
    for (size_t bytes : {256 * kMiB, 30 * kMiB, kMiB, size_t{70'000}}) {
      for (;;) {
        errno = 0;
        void* p = hydrant_alloc(bytes);
        if (p == nullptr) break;
        std::memset(p, 1, 8);
        all.push_back(p);
        if (all.size() == all.capacity()) return "no end of it";
      }
      if (errno != ENOMEM) return "errno is " + std::to_string(errno);
    }
    if (hydrant_alloc_shared(1, 512 * kMiB) != nullptr) return "shared memory beyond the limit";
    if (errno != ENOMEM) return "errno of shared memory is " + std::to_string(errno);
    for (void* p : all) hydrant_free(p);
    void* again = hydrant_alloc(128 * kMiB);
    if (again == nullptr) return "nothing although all is free";
    hydrant_free(again);
    return "";
  });
  EXPECT_EQ(wrong, "");
}

TEST(Alloc, CallocIsZeroWhereMemoryWasUsedBefore) {
  for (const size_t bytes : {size_t{24}, size_t{3000}, size_t{40'000}, 5 * kMiB}) {
    void* used = hydrant_alloc(bytes);
    std::memset(used, 0xff, bytes);
    hydrant_free(used);
    auto* p = static_cast<unsigned char*>(hydrant_calloc(bytes / 8, 8));
    ASSERT_NE(p, nullptr);
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(p[i], 0) << bytes << " at " << i;
    hydrant_free(p);
  }
}

TEST(Alloc, ReallocKeepsContentsWhateverTheSizes) {
  const size_t sizes[] = {1,        20,        100,      4000,    16384, 16385, 70'000,    kMiB,
                          5 * kMiB, 30 * kMiB, 4 * kMiB, 100'000, 16000, 500,   12 * kMiB, 8};
  void* p = nullptr;
  size_t before = 0;
  uint64_t tag = 0;
  for (const size_t bytes : sizes) {
    p = hydrant_realloc(p, bytes);
    ASSERT_NE(p, nullptr);
    EXPECT_GE(hydrant_alloc_usable_size(p), bytes);
    if (before != 0) {
      EXPECT_TRUE(has_marks(p, before, tag, std::min(before, bytes))) << bytes;
    }
    write_marks(p, bytes, ++tag);
    before = bytes;
  }
  hydrant_free(p);
}

TEST(Alloc, FreeKeepsErrno) {
  void* p = hydrant_alloc(80 * kMiB);
  ASSERT_NE(p, nullptr);
  std::memset(p, 1, 80 * kMiB);
  errno = 4711;
  hydrant_free(p);
  EXPECT_EQ(errno, 4711);
}

TEST(Alloc, OwnsItsMemoryAndNoOther) {
  void* ours = hydrant_alloc(1000);
  void* libcs = std::malloc(1000);
  int local = 0;
  EXPECT_TRUE(hydrant_alloc_owns(ours));
  EXPECT_FALSE(hydrant_alloc_owns(libcs));
  EXPECT_FALSE(hydrant_alloc_owns(&local));
  EXPECT_FALSE(hydrant_alloc_owns(nullptr));
  EXPECT_FALSE(hydrant_alloc_owns(reinterpret_cast<void*>(UINTPTR_MAX)));
  std::free(libcs);
  hydrant_free(ours);
}

TEST(Alloc, MallocOfTheProgramStaysLibcs) {
  void* own = hydrant_alloc(100);  // loads all libraries that the allocator needs
  for (const char* name :
       {"malloc", "free", "calloc", "realloc", "posix_memalign", "aligned_alloc"}) {
    void* symbol = dlsym(RTLD_DEFAULT, name);
    Dl_info found{};
    ASSERT_TRUE(symbol != nullptr && dladdr(symbol, &found) != 0) << name;
    const std::string file = found.dli_fname;
    EXPECT_EQ(file.find("hydrant_alloc"), std::string::npos) << name << " is from " << file;
    if (!HYDRANT_SANITIZED) {
      EXPECT_NE(file.find("libc.so"), std::string::npos) << file;
    }
  }
  // Jemalloc's would come from memory that is not in our map either: its names are in no other image.
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "mallocx"), nullptr);
  EXPECT_EQ(dlsym(RTLD_DEFAULT, "mallctl"), nullptr);
  const std::unique_ptr<char[]> made(new char[100'000]);
  EXPECT_FALSE(hydrant_alloc_owns(made.get()));
  hydrant_free(own);
}

TEST(Alloc, StatisticsCountUsedAndReturnedBytes) {
  const auto stats_now = [] {
    hydrant_alloc_stats_t stats{};
    stats.size = sizeof stats;
    hydrant_alloc_get_stats(&stats);
    EXPECT_EQ(stats.size, sizeof stats);
    return stats.own;
  };
  (void)hydrant_alloc_trim();
  const auto before = stats_now();
  void* p = hydrant_alloc(40 * kMiB);
  std::memset(p, 1, 40 * kMiB);
  const auto during = stats_now();
  EXPECT_GE(during.in_use_bytes, before.in_use_bytes + 40 * kMiB);
  EXPECT_GE(during.touched_bytes, before.touched_bytes + 40 * kMiB);
  EXPECT_GE(during.reserved_bytes, during.touched_bytes);
  hydrant_free(p);
  EXPECT_LT(stats_now().in_use_bytes, before.in_use_bytes + 40 * kMiB);
  EXPECT_GE(hydrant_alloc_trim(), 40 * kMiB);
  const auto after = stats_now();
  EXPECT_GE(after.emptied_bytes, before.emptied_bytes + 40 * kMiB);
  EXPECT_EQ(after.idle_bytes, 0u);
  EXPECT_LT(after.touched_bytes, before.touched_bytes + 8 * kMiB);
}

TEST(Alloc, StatisticsFillNoMoreThanTheCallerKnows) {
  hydrant_alloc_stats_t stats{};
  std::memset(&stats, 0x77, sizeof stats);
  stats.size = 16;
  hydrant_alloc_get_stats(&stats);
  EXPECT_EQ(stats.size, 16u);
  EXPECT_EQ(stats.own.in_use_bytes, 0x7777777777777777u);
}

}  // namespace
}  // namespace hydrant::testing
