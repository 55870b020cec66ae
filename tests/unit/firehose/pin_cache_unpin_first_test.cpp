// Registrars whose registrations may not outlive their memory. Here a registrar writes down what it finds at
// the address when it is to unpin: the memory that it pinned, other memory, or none.
#include <hydrant/monitor.h>
#include <hydrant/pin_cache.h>

#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <sys/uio.h>
#include <unistd.h>
#include <vector>

namespace hydrant::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Each page begins with the number of its mapping: a later mapping has another number, or reads as 0.
class LifeRegistrar {
 public:
  explicit LifeRegistrar(RecordingRegistrar& books) : books_(books), inner_(books.table) {
    books.table.user = this;
    books.table.pin = [](void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
      return static_cast<LifeRegistrar*>(user)->pin(addr, len, access, key);
    };
    books.table.unpin = [](void* user, uintptr_t addr, size_t len, const void* key) {
      return static_cast<LifeRegistrar*>(user)->unpin(addr, len, key);
    };
    books.table.pending_charge = nullptr;
    books.table.forget_in_child = nullptr;
    books.table.destroy = nullptr;
  }

  void stop_unpins() { is_stopped_ = true; }
  void let_unpins_go() { is_stopped_ = false; }
  bool wait_for_stopped() {
    return wait_until([this] { return is_inside_.load(); });
  }

  // Unpins that found a page of other memory or of none.
  uint64_t late() const { return late_; }
  uint64_t in_time() const { return in_time_; }

 private:
  // 0: the page is not mapped, or was never written.
  static uint64_t life_at(uintptr_t addr) {
    uint64_t life = 0;
    iovec to{&life, sizeof life};
    iovec from{reinterpret_cast<void*>(addr), sizeof life};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == sizeof life ? life : 0;
  }
  static std::vector<uint64_t> lives_in(uintptr_t addr, size_t len) {
    std::vector<uint64_t> lives;
    for (size_t at = 0; at < len; at += kPage) lives.push_back(life_at(addr + at));
    return lives;
  }
  int pin(uintptr_t addr, size_t len, uint32_t access, void* key) {
    const int status = inner_.pin(&books_, addr, len, access, key);
    if (status != GASNET_OK) return status;
    const std::lock_guard lock(mu_);
    pinned_[books_.serial_of(key)] = lives_in(addr, len);
    return status;
  }
  int unpin(uintptr_t addr, size_t len, const void* key) {
    if (is_stopped_) {
      is_inside_ = true;
      (void)wait_until([this] { return !is_stopped_; });
      is_inside_ = false;
    }
    {
      const std::lock_guard lock(mu_);
      const auto found = pinned_.extract(books_.serial_of(key));
      const bool same = !found.empty() && found.mapped() == lives_in(addr, len);
      ++(same ? in_time_ : late_);
    }
    return inner_.unpin(&books_, addr, len, key);
  }

  RecordingRegistrar& books_;
  const hydrant_registrar_t inner_;
  std::mutex mu_;
  std::map<uint64_t, std::vector<uint64_t>> pinned_;
  std::atomic<uint64_t> late_{0}, in_time_{0};
  std::atomic<bool> is_stopped_{false}, is_inside_{false};
};

class PinCacheUnpinFirst : public WatchedPinCache {
 protected:
  void SetUp() override {
    WatchedPinCache::SetUp();
    if (!IsSkipped()) begin_lives(0, arena_.pages());
  }
  void ask_first() { registrar_.table.flags = HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE; }
  hydrant_domain_options_t client_options() const {
    hydrant_domain_options_t options = options_for(registrar_);
    options.watch = HYDRANT_WATCH_CLIENT;
    return options;
  }
  void begin_lives(size_t page, size_t pages) { begin_lives(page, pages, ++life_); }
  void begin_lives(size_t page, size_t pages, uint64_t life) {
    for (size_t i = page; i < page + pages; ++i) std::memcpy(arena_.page(i), &life, sizeof life);
  }
  // Other memory at the same addresses.
  void replace(size_t page, size_t pages = 1) {
    renew(page, pages);
    begin_lives(page, pages);
  }
  int invalidate(size_t page, size_t pages = 1) {
    return hydrant_invalidate(domain_, arena_.page(page), pages * kPage);
  }
  int vouch(size_t page, size_t pages = 1) {
    return hydrant_vouch(domain_, arena_.page(page), pages * kPage);
  }
  // A page and the next one become one region. The first registration stays until the cache visits its dead
  // regions.
  void join_neighbours(size_t page) {
    const uint64_t dead = stats_of(domain_).dead_regions;
    use(page);
    use(page + 1);
    EXPECT_EQ(stats_of(domain_).dead_regions, dead + 1);
  }

  LifeRegistrar lives_{registrar_};
  uint64_t life_ = 0;
};

// ---- without the flag: what the flag is for ----

TEST_F(PinCacheUnpinFirst, UnpinIsLateWithoutTheFlag) {
  create(watching());
  use(8, 4);
  replace(8, 4);
  the_monitor().settle();
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(lives_.late(), 1u);
  EXPECT_EQ(lives_.in_time(), 0u);
}

TEST_F(PinCacheUnpinFirst, HeldRegionOutlivesTheInvalidationWithoutTheFlag) {
  create(client_options());
  const hydrant_pin_t held = pin(8, 2);
  EXPECT_EQ(invalidate(8, 2), GASNET_OK);
  replace(8, 2);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(lives_.late(), 1u);
}

// Regions without holds are unpinned, whatever the registrar.
TEST_F(PinCacheUnpinFirst, InvalidationUndoesDeadRegionsWithoutTheFlag) {
  create(client_options());
  join_neighbours(8);
  join_neighbours(20);
  EXPECT_EQ(invalidate(8, 2), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 2u) << "the others";
  replace(8, 2);
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(lives_.late(), 0u);
}

// ---- memory whose release is only reported ----

TEST_F(PinCacheUnpinFirst, OrdinaryMemoryIsPinnedForEachUse) {
  ask_first();
  for (const uint32_t mode : {HYDRANT_MODE_REGION, HYDRANT_MODE_PAGE}) {
    create(watching(mode));
    EXPECT_EQ(coverage(8, 4), HYDRANT_COVERAGE_NONE);
    const uint64_t first = use(8, 4);
    EXPECT_EQ(registrar_.live(), 0u) << "unpinned by the release";
    EXPECT_NE(use(8, 4), first);
    replace(8, 4);
    the_monitor().settle();
    EXPECT_EQ(hydrant_poll(domain_), 0);
    use(8, 4);
    destroy();
  }
  EXPECT_EQ(lives_.late(), 0u);
  EXPECT_EQ(lives_.in_time(), registrar_.unpins());
}

TEST_F(PinCacheUnpinFirst, NothingIsRegisteredBesideUncachedMemory) {
  ask_first();
  create(watching());
  ASSERT_EQ(vouch(8, 2), GASNET_OK);
  use(8, 2);
  const hydrant_pin_t held = pin(10, 2);
  ASSERT_NE(held.region, nullptr);
  EXPECT_EQ(held.region->addr, arena_.addr(10)) << "the vouched neighbour does not join in";
  EXPECT_EQ(held.region->len, 2 * kPage);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(registrar_.live_bytes(), 2 * kPage);
}

TEST_F(PinCacheUnpinFirst, WithWatchNoneToo) {
  ask_first();
  hydrant_domain_options_t options = watching();
  options.watch = HYDRANT_WATCH_NONE;
  create(options);
  use(8);
  EXPECT_EQ(registrar_.live(), 0u);
  EXPECT_EQ(coverage(8), HYDRANT_COVERAGE_NONE);
}

// Threads that pin and replace memory of their own, side by side.
TEST_F(PinCacheUnpinFirst, NoUnpinIsLateUnderStress) {
  constexpr size_t kThreads = 4;
  constexpr size_t kPages = 16;
  constexpr int kRounds = 200;
  const auto storm = [&] {
    create(watching());
    Threads threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.start([this, t] {
        uint64_t life = (t + 1) << 32;
        for (int i = 0; i < kRounds; ++i) {
          const size_t page = 2 * kPages * t + static_cast<size_t>(i) % kPages;
          const size_t pages = 1 + static_cast<size_t>(i) % 3;
          const hydrant_pin_t held = pin(page, pages);
          if (held.region != nullptr) (void)hydrant_release(held);
          // In one call: a hole could be filled by another thread's mapping.
          ASSERT_EQ(mmap(arena_.page(page), pages * kPage, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                    arena_.page(page));
          begin_lives(page, pages, ++life);
        }
      });
    }
    threads.join();
    the_monitor().settle();
    EXPECT_EQ(hydrant_poll(domain_), 0);
    destroy();
  };
  storm();
  EXPECT_GT(lives_.late(), 0u) << "without the flag the storm does meet other memory";
  const uint64_t late = lives_.late();
  ask_first();
  storm();
  EXPECT_EQ(lives_.late(), late);
}

// ---- memory whose release the client announces ----

TEST_F(PinCacheUnpinFirst, VouchedMemoryIsCachedAndUnpinnedFirst) {
  ask_first();
  create(watching());
  ASSERT_EQ(vouch(8, 4), GASNET_OK);
  EXPECT_EQ(coverage(8, 4), HYDRANT_COVERAGE_VOUCHED);
  const uint64_t first = use(8, 4);
  EXPECT_EQ(use(8, 4), first);
  EXPECT_EQ(registrar_.live(), 1u);
  EXPECT_EQ(invalidate(8, 4), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u);
  replace(8, 4);
  EXPECT_NE(use(8, 4), first);
  EXPECT_EQ(hydrant_unvouch(domain_, arena_.page(8), 4 * kPage), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u);
  replace(8, 4);
  EXPECT_EQ(lives_.late(), 0u);
}

TEST_F(PinCacheUnpinFirst, InvalidationUnpinsEarlierDeadRegions) {
  ask_first();
  create(client_options());
  join_neighbours(8);
  join_neighbours(20);
  EXPECT_EQ(invalidate(8), GASNET_OK);
  EXPECT_EQ(registrar_.live_bytes(), 3 * kPage)
      << "of the other two pages, which were not requested";
  replace(8);
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(lives_.late(), 0u);
  EXPECT_EQ(lives_.in_time(), 3u);
}

TEST_F(PinCacheUnpinFirst, HeldMemoryMustStay) {
  ask_first();
  create(client_options());
  const hydrant_pin_t held = pin(8, 4);
  const hydrant_pin_t other = pin(20);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(invalidate(10), GASNET_ERR_NOT_READY);
    EXPECT_THAT(hydrant_error_text(), AllOf(HasSubstr("still registered"), HasSubstr("test")));
  }
  EXPECT_EQ(registrar_.live(), 2u);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(invalidate(10), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 1u);
  replace(8, 4);
  EXPECT_EQ(hydrant_release(other), GASNET_OK);
  EXPECT_EQ(lives_.late(), 0u);
}

TEST_F(PinCacheUnpinFirst, HeldMemoryThatIsNotCachedMustStay) {
  ask_first();
  create(watching());
  const hydrant_pin_t held = pin(8);
  EXPECT_EQ(invalidate(8), GASNET_ERR_NOT_READY);
  EXPECT_EQ(hydrant_unvouch(domain_, arena_.page(8), kPage), GASNET_ERR_NOT_READY);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(invalidate(8), GASNET_OK);
}

TEST_F(PinCacheUnpinFirst, MemoryThatIsBeingUnpinnedMustStay) {
  ask_first();
  create(watching());
  ASSERT_EQ(vouch(8, 4), GASNET_OK);
  use(8, 4);
  lives_.stop_unpins();
  Threads threads;
  threads.start([&] { EXPECT_EQ(hydrant_flush(domain_), GASNET_OK); });
  ASSERT_TRUE(lives_.wait_for_stopped());
  EXPECT_EQ(invalidate(9), GASNET_ERR_NOT_READY);
  EXPECT_NE(the_monitor().pinned(arena_.addr(9), kPage), 0) << "an arena keeps it";
  EXPECT_EQ(the_monitor().pinned(arena_.addr(12), kPage), 0);
  EXPECT_EQ(invalidate(12), GASNET_OK) << "beside it";
  lives_.let_unpins_go();
  threads.join();
  EXPECT_EQ(invalidate(9), GASNET_OK);
  EXPECT_EQ(the_monitor().pinned(arena_.addr(9), kPage), 0);
  replace(8, 4);
  EXPECT_EQ(lives_.late(), 0u);
}

TEST_F(PinCacheUnpinFirst, EachRegionBeingUnpinnedStays) {
  ask_first();
  create(client_options());
  for (size_t page = 0; page < 64; page += 4) use(page);
  lives_.stop_unpins();
  Threads threads;
  threads.start([&] { EXPECT_EQ(hydrant_flush(domain_), GASNET_OK); });
  ASSERT_TRUE(lives_.wait_for_stopped());
  for (size_t page = 0; page < 64; ++page) {
    EXPECT_EQ(invalidate(page), page % 4 == 0 ? GASNET_ERR_NOT_READY : GASNET_OK) << page;
  }
  lives_.let_unpins_go();
  threads.join();
  EXPECT_EQ(invalidate(0, 128), GASNET_OK);
}

TEST_F(PinCacheUnpinFirst, MemoryThatIsBeingRegisteredMustStay) {
  ask_first();
  create(client_options());
  registrar_.stop_pins();
  Threads threads;
  std::atomic<uint64_t> found{0};
  threads.start([&] { found = use(8, 4); });
  ASSERT_TRUE(registrar_.wait_for_stopped(1));
  EXPECT_EQ(invalidate(9), GASNET_ERR_NOT_READY);
  registrar_.resume_pins();
  threads.join();
  EXPECT_NE(found, 0u);
  EXPECT_EQ(invalidate(9), GASNET_OK);
  replace(8, 4);
  EXPECT_EQ(lives_.late(), 0u);
}

// The plan of the other thread merges two pages. Then one of them is invalidated.
TEST_F(PinCacheUnpinFirst, InvalidatedRangeIsNotMerged) {
  static std::atomic<bool> is_planned;
  static std::atomic<bool> may_go_on;
  is_planned = may_go_on = false;
  ask_first();
  registrar_.table.charge = [](void*, uintptr_t, size_t len) -> uint64_t {
    if (len == 2 * kPage && !is_planned.exchange(true)) {
      (void)wait_until([] { return may_go_on.load(); });
    }
    return len;
  };
  create(client_options());
  use(8);
  Threads threads;
  threads.start([&] { use(9); });
  EXPECT_TRUE(wait_until([] { return is_planned.load(); })) << "joins its neighbour";
  EXPECT_EQ(invalidate(8), GASNET_OK);
  may_go_on = true;
  threads.join();
  replace(8);
  EXPECT_EQ(invalidate(9), GASNET_OK);
  EXPECT_EQ(lives_.in_time(), 2u) << "each page alone";
  EXPECT_EQ(lives_.late(), 0u);
}

TEST_F(PinCacheUnpinFirst, PrepinnedMemoryIsTheClients) {
  ask_first();
  hydrant_domain_options_t options = client_options();
  const hydrant_range_t range{arena_.addr(8), 4 * kPage};
  const uint64_t key = 77;
  const void* const keys[] = {&key};
  options.prepinned = &range;
  options.prepinned_keys = keys;
  options.prepinned_count = 1;
  create(options);
  EXPECT_EQ(invalidate(8, 4), GASNET_OK) << "never unpinned";
}

// ---- arenas ----

TEST_F(PinCacheUnpinFirst, OnlyArenasThatKeepPinnedMemoryAreCached) {
  create(watching());
  ASSERT_EQ(the_monitor().add_arena(arena_.addr(0), 64 * kPage), 0);
  EXPECT_EQ(coverage(8, 4), HYDRANT_COVERAGE_ARENA) << "without the flag";
  destroy();
  ask_first();
  create(watching());
  EXPECT_EQ(coverage(8, 4), HYDRANT_COVERAGE_NONE);
  the_monitor().drop_arena(arena_.addr(0), 64 * kPage);

  ASSERT_EQ(the_monitor().add_kept_arena(arena_.addr(0), 64 * kPage), 0);
  EXPECT_EQ(coverage(8, 4), HYDRANT_COVERAGE_ARENA);
  const uint64_t first = use(8, 4);
  EXPECT_EQ(use(8, 4), first);
  // Invalidates as an allocator does before it empties the memory.
  the_monitor().invalidate(arena_.addr(8), 4 * kPage);
  EXPECT_NE(the_monitor().pinned(arena_.addr(8), 4 * kPage), 0) << "dead, but registered";
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(the_monitor().pinned(arena_.addr(8), 4 * kPage), 0);
  replace(8, 4);
  the_monitor().drop_arena(arena_.addr(0), 64 * kPage);
  EXPECT_EQ(lives_.late(), 0u);
}

// ---- what such a registrar excludes ----

TEST_F(PinCacheUnpinFirst, NoReadAhead) {
  ask_first();
  hydrant_domain_options_t options = watching();
  options.stream_bytes = 64 * kPage;
  create(options);
  ASSERT_EQ(vouch(0, 64), GASNET_OK);
  for (size_t i = 0; i < 32; ++i) use(i);
  EXPECT_EQ(stats_of(domain_).extended_bytes, 0u);
}

TEST_F(PinCacheUnpinFirst, BucketsOfSeveralPagesOnlyWhereTheClientAnnounces) {
  ask_first();
  hydrant_domain_options_t options = watching(HYDRANT_MODE_PAGE);
  options.bucket_bytes = 4 * kPage;
  for (const uint32_t watch : {HYDRANT_WATCH_AUTO, HYDRANT_WATCH_NONE}) {
    options.watch = watch;
    EXPECT_EQ(hydrant_domain_create(&options, &domain_), GASNET_ERR_BAD_ARG);
    EXPECT_THAT(hydrant_error_text(),
                AllOf(HasSubstr("options.bucket_bytes = 16384"), HasSubstr("only 4096")));
    EXPECT_EQ(domain_, 0u);
  }
  options.watch = HYDRANT_WATCH_CLIENT;
  create(options);
  const hydrant_pin_t held = pin(8);
  EXPECT_EQ(invalidate(11), GASNET_ERR_NOT_READY) << "of the same bucket";
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(invalidate(11), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u);
}

}  // namespace
}  // namespace hydrant::testing
