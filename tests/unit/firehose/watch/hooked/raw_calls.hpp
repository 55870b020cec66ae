// The fixture of tests of releases that the hooks do not see. Free hits end for the whole process: each test
// is to run in a process of its own, as ctest does.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/watch/mutant.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::testing {

class RawCalls : public WatchedPinCache {
 protected:
  void SetUp() override {
    WatchedPinCache::SetUp();
    if (IsSkipped()) return;
    create(watching());
    use(kFirst);  // the watch runs
    if (hits_are_checked()) GTEST_SKIP() << "an earlier test of this process has ended free hits";
  }
  void TearDown() override {
#if HYDRANT_MUTANTS
    set_mutant(Mutant::kNone, 0);
#endif
    if (domain_ != 0) the_monitor().settle();
    WatchedPinCache::TearDown();
  }

  bool hits_are_checked() const { return stats_of(domain_).hits_are_checked != 0; }
  void replace_raw(size_t page) {
    ASSERT_EQ(syscall(SYS_mmap, arena_.page(page), kPage, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              static_cast<long>(arena_.addr(page)))
        << std::strerror(errno);
  }
  // Whether a hit on the cached page queries the kernel.
  bool is_checked(size_t page) {
    use(page);
    const hydrant_stats_t before = stats_of(domain_);
    use(page);
    const hydrant_stats_t after = stats_of(domain_);
    EXPECT_EQ(after.hits + after.refills, before.hits + before.refills + 1);
    return after.checked_hits != before.checked_hits;
  }

  static constexpr size_t kFirst = 500, kA = 0, kB = 16, kC = 32;
};

}  // namespace hydrant::testing
