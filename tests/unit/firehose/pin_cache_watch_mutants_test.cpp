// Deliberate defects of watching, each shown by one deterministic episode that the library as it is
// passes: the tests beside this one could not fail otherwise.
#include <hydrant/pin_cache.h>

#include "firehose/watch/mutant.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>

namespace hydrant::testing {
namespace {

#if HYDRANT_MUTANTS

// How long the reader sleeps between taking a change and telling of it, where an episode needs it to.
constexpr unsigned kSlowReaderUs = 300'000;

class PinCacheWatchMutants : public WatchedPinCache {
 protected:
  // True if the cache served `page` from a registration of an earlier life of its addresses.
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
      set_mutant(now, delay_us);
      const bool stale = episode();
      set_mutant(Mutant::kNone, 0);
      EXPECT_EQ(stale, now != Mutant::kNone)
          << mutant_info(now).name << ": " << mutant_info(now).what;
      ASSERT_TRUE(wait_until([] { return the_monitor().quiet(1'000'000'000) == 0; }));
      // What the defect left behind.
      EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(0), arena_.pages() * kPage), GASNET_OK);
    }
  }

  // Caches the page, gives it a new life and uses it: served by the old registration?
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

// The move that leaves the mapping behind, empty: nothing is unmapped, so only the move itself is reported.
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
      Mutant::kLateReader, [this] { return stale_after([this] { renew(page_); }); }, kSlowReaderUs);
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

// Removed while it was being registered; the news comes late. What is published must not be that
// registration.
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
        registrar_.let_pins_go();
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
  expect_caught(Mutant::kDeafToArenas, [this] {
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
    registrar_.let_pins_go();
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
