// Deliberate defects of watching, each shown by one deterministic episode that the library as it is
// passes: the tests beside this one could not fail otherwise.
#include <hydrant/pin_cache.h>

#include "firehose/watch/mutant.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <string>

namespace hydrant::testing {
namespace {

#if HYDRANT_MUTANTS

// The reader's delay between reading an event and reporting it, in the episodes that need one. Without a
// defect the episode waits for the reader, and its result does not depend on the delay. With a defect the
// reader must not wake before the end of the episode, which ends the delay.
constexpr unsigned kSlowReaderUs = 300'000;
constexpr unsigned kAsleepTimes = 400;

class PinCacheWatchMutants : public WatchedPinCache {
 protected:
  // True if the cache served `page` from a registration of an earlier mapping of its addresses.
  using Episode = std::function<bool()>;

  void TearDown() override {
    set_mutant(Mutant::kNone, 0);
    if (domain_ != 0) the_monitor().settle();
    WatchedPinCache::TearDown();
  }

  // The episode must be clean, then stale with the defect. Each in a place of its own: `page_` moves on.
  void expect_caught(Mutant mutant, const Episode& episode, unsigned delay_us = 0) {
    use(page_);  // the watch runs
    for (const Mutant now : {Mutant::kNone, mutant}) {
      page_ += 8;
      set_mutant(now, now == Mutant::kNone ? delay_us : kAsleepTimes * delay_us);
      const bool stale = episode();
      set_mutant(Mutant::kNone, 0);
      EXPECT_EQ(stale, now != Mutant::kNone)
          << mutant_info(now).name << ": " << mutant_info(now).what;
      ASSERT_TRUE(wait_until([] { return the_monitor().quiet(1'000'000'000) == 0; }));
      // Forgets what the defect left cached.
      EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(0), arena_.pages() * kPage), GASNET_OK);
    }
  }

  // Caches the page, replaces it and uses it: was the old registration used?
  bool stale_after(const std::function<void()>& release) {
    const uint64_t first = use(page_);
    release();
    return use(page_) == first;
  }

  size_t page_ = 0;
};

TEST_F(PinCacheWatchMutants, DropUnmap) {
  create(watching());
  expect_caught(Mutant::kDropUnmap, [this] { return stale_after([this] { renew(page_); }); });
}

TEST_F(PinCacheWatchMutants, DropRemove) {
  create(watching());
  expect_caught(Mutant::kDropRemove, [this] { return stale_after([this] { remove(page_); }); });
}

// mremap() with MREMAP_DONTUNMAP leaves the mapping behind, empty: only the move itself is reported.
TEST_F(PinCacheWatchMutants, DropRemap) {
  create(watching());
  MappedMemory elsewhere(2);
  size_t next = 0;
  expect_caught(Mutant::kDropRemap, [&] {
    return stale_after([&] {
      constexpr int kDontUnmap = 4;  // MREMAP_DONTUNMAP, since Linux 5.7
      ASSERT_NE(mremap(arena_.page(page_), kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED | kDontUnmap,
                       elsewhere.page(next++)),
                MAP_FAILED)
          << strerror(errno);
    });
  });
}

TEST_F(PinCacheWatchMutants, LateReader) {
  create(watching());
  expect_caught(
      Mutant::kDelayedReader, [this] { return stale_after([this] { renew(page_); }); },
      kSlowReaderUs);
}

TEST_F(PinCacheWatchMutants, NoSettle) {
  create(watching());
  expect_caught(
      Mutant::kNoSettle, [this] { return stale_after([this] { renew(page_); }); }, kSlowReaderUs);
}

TEST_F(PinCacheWatchMutants, NoCheckedLookup) {
  create(watching());
  expect_caught(
      Mutant::kNoCheckedLookup, [this] { return stale_after([this] { renew(page_); }); },
      kSlowReaderUs);
}

// A policy that evicts the oldest region first, and has all regions watched while watch_everything() is on.
class ListPolicy {
 public:
  const hydrant_policy_t* functions() const { return &functions_; }
  void watch_everything(bool on) { watching_ = on; }

 private:
  static ListPolicy& of(void* user) { return *static_cast<ListPolicy*>(user); }
  size_t copy(uint32_t* out, size_t n) const {
    n = std::min(n, count_);
    std::copy_n(listed_.begin(), n, out);
    return n;
  }

  std::array<uint32_t, 64> listed_{};
  size_t count_ = 0;
  bool watching_ = false;
  hydrant_policy_t functions_{
      sizeof(hydrant_policy_t),
      this,
      [](void* user, uint32_t region, size_t, uint64_t) {
        ListPolicy& self = of(user);
        if (self.count_ < self.listed_.size()) self.listed_[self.count_++] = region;
      },
      [](void*, uint32_t) {},
      [](void* user, uint32_t region) {
        ListPolicy& self = of(user);
        const auto end = self.listed_.begin() + static_cast<std::ptrdiff_t>(self.count_);
        self.count_ = static_cast<size_t>(std::remove(self.listed_.begin(), end, region) -
                                          self.listed_.begin());
      },
      [](void* user, uint32_t* regions, size_t n) {
        return of(user).watching_ ? of(user).copy(regions, n) : size_t{0};
      },
      [](void* user, uint32_t* regions, size_t n) {
        return of(user).copy(regions, std::min<size_t>(n, 1));
      },
      nullptr};
};

// A region's gate is shut to find out whether the region is used; a pin then looks it up under the mutex.
TEST_F(PinCacheWatchMutants, NoCheckedTry) {
  ListPolicy policy;
  hydrant_domain_options_t options = watching();
  options.policy = policy.functions();
  options.budget_bytes = 3 * kPage;
  options.merge_bytes = 1;
  options.stream_bytes = 1;
  create(options);
  expect_caught(
      Mutant::kNoCheckedTry,
      [&] {
        use(page_);
        const uint64_t first = use(page_ + 2);
        use(page_ + 4);
        policy.watch_everything(true);
        use(page_ + 6);  // instead of the first
        policy.watch_everything(false);
        renew(page_ + 2);
        const hydrant_pin_t held = try_pin(page_ + 2);
        if (held.region == nullptr) return false;
        const bool stale = serial(held) == first;
        EXPECT_EQ(hydrant_release(held), GASNET_OK);
        return stale;
      },
      kSlowReaderUs);
}

// A thread whose start no hook saw may have its stack where a region was cached; its first pin waits until
// the reader has reported earlier releases. Memory that is hit without a check stands for the stack.
TEST_F(PinCacheWatchMutants, ThreadsFirstPinWaitsForTheReader) {
  create(watching());
  use(page_);
  ASSERT_EQ(hydrant_invalidate(domain_, arena_.page(page_), kPage), GASNET_OK);
  ASSERT_EQ(hydrant_vouch(domain_, arena_.page(page_), kPage), GASNET_OK);
  const uint64_t first = use(page_);
  set_mutant(Mutant::kNone, kSlowReaderUs);
  renew(page_);  // returns while the reader sleeps
  Threads threads;
  threads.start([&] { EXPECT_GT(use(page_), first); });
  threads.join();
}

// The memory is removed while it is being registered, and the report is late. That registration must not be
// published.
TEST_F(PinCacheWatchMutants, NoPublishCheck) {
  create(watching());
  expect_caught(
      Mutant::kNoPublishCheck,
      [this] {
        registrar_.stop_pins();
        std::atomic<uint64_t> first{0};
        Threads threads;
        threads.start([&] { first = use(page_); });
        EXPECT_TRUE(registrar_.wait_for_stopped(1));
        const uint64_t begun = registrar_.next_serial() - 1;
        renew(page_);
        const uint64_t regions = stats_of(domain_).regions;
        registrar_.resume_pins();
        threads.join();
        return first == begun && stats_of(domain_).regions > regions - 1 &&
               stats_of(domain_).dead_regions == 0;
      },
      kSlowReaderUs);
}

TEST_F(PinCacheWatchMutants, RemovedCacheable) {
  create(watching());
  expect_caught(Mutant::kRemovedCacheable, [this] {
    use(page_);
    remove(page_);
    the_monitor().settle();
    use(page_);  // by now the pages may not have gone yet
    return is_cached(page_);
  });
}

TEST_F(PinCacheWatchMutants, DeafToArenas) {
  create(watching());
  expect_caught(Mutant::kIgnoreArenas, [this] {
    EXPECT_EQ(the_monitor().add_arena(arena_.addr(page_), kPage), 0);
    const bool stale = stale_after([this] { the_monitor().invalidate(arena_.addr(page_), kPage); });
    the_monitor().drop_arena(arena_.addr(page_), kPage);
    return stale;
  });
}

TEST_F(PinCacheWatchMutants, Unwatched) {
  create(watching());
  const MemoryFile file(1);
  expect_caught(Mutant::kUnwatched, [&] {
    map_file(page_, file);
    return stale_after([&] { map_file(page_, file, MAP_PRIVATE); });
  });
}

TEST_F(PinCacheWatchMutants, KeepPending) {
  create(watching());
  expect_caught(Mutant::kKeepPending, [this] {
    registrar_.stop_pins();
    std::atomic<uint64_t> first{0};
    Threads threads;
    threads.start([&] { first = use(page_); });
    EXPECT_TRUE(registrar_.wait_for_stopped(1));
    const uint64_t begun = registrar_.next_serial() - 1;
    renew(page_);
    the_monitor().settle();
    registrar_.resume_pins();
    threads.join();
    return use(page_) == begun;
  });
}

#else

TEST(PinCacheWatchMutants, NeedABuildThatHasThem) {
  GTEST_SKIP() << "built without HYDRANT_MUTANTS";
}

#endif

}  // namespace
}  // namespace hydrant::testing
