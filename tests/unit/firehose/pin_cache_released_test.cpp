// Memory that the program has released is unpinned: by the next poll or miss, or by the upkeep thread.
#include <hydrant/pin_cache.h>

#include "firehose/cache/coherence/upkeep.hpp"
#include "tests/support/child_process.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <utility>

namespace hydrant::testing {
namespace {

class PinCacheReleased : public WatchedPinCache {
 protected:
  void SetUp() override {
    WatchedPinCache::SetUp();
    if (!IsSkipped()) create(watching());
  }
  void TearDown() override {
#if HYDRANT_MUTANTS
    set_mutant(Mutant::kNone, 0);
    set_busy_mutex(false);
#endif
    WatchedPinCache::TearDown();
  }
  // Pins the page once, and unmaps it.
  void use_and_unmap(size_t page, size_t pages = 1) {
    use(page, pages);
    unmap(page, pages);
    the_monitor().settle();
  }
  uint64_t dead() const { return stats_of(domain_).dead_regions; }
};

// The call that releases memory returns when its event was read, which may be before the cache is notified.
TEST_F(PinCacheReleased, PollRightAfterTheReleaseLeavesNothingPinned) {
  use(4);  // the watch runs
#if HYDRANT_MUTANTS
  constexpr unsigned kSlowReaderUs = 20'000;
  set_mutant(Mutant::kNone, kSlowReaderUs);
#endif
  for (int tries = 0; tries < 10; ++tries) {
    use(8, 4);
    unmap(8, 4);
    EXPECT_EQ(hydrant_poll(domain_), 0);
    EXPECT_EQ(registrar_.live_bytes(), kPage) << "try " << tries;
    EXPECT_EQ(dead(), 0u);
    map(8, 4);
  }
}

#if HYDRANT_MUTANTS
TEST_F(PinCacheReleased, PollFindsRangesAddedWithoutTheMutex) {
  use(8);
  set_busy_mutex(true);
  unmap(8);
  the_monitor().settle();
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(registrar_.live(), 0u);
  map(8);
}

// ---- without the upkeep thread ----

TEST_F(PinCacheReleased, NextMissUnpinsLittleMemory) {
  use_and_unmap(8);
  EXPECT_EQ(dead(), 1u);
  use(40);
  EXPECT_EQ(registrar_.live_bytes(), kPage);
  EXPECT_EQ(dead(), 0u);
  map(8);
}

TEST_F(PinCacheReleased, HitUnpinsNothing) {
  use(40);
  use_and_unmap(8);
  const uint64_t fences = stats_of(domain_).fences;
  for (int i = 0; i < 10; ++i) use(40);
  EXPECT_EQ(registrar_.unpins(), 0u);
  EXPECT_EQ(stats_of(domain_).fences, fences);
  map(8);
}

TEST_F(PinCacheReleased, MissUnpinsOnePieceAndAPollTheRest) {
  destroy();
  hydrant_domain_options_t options = watching();
  options.merge_bytes = 1;
  create(options);
  constexpr size_t kRegions = 200;
  constexpr size_t kPiece = 64;
  for (size_t i = 0; i < kRegions; ++i) use(2 * i);
  ASSERT_EQ(registrar_.live(), kRegions);
  unmap(0, 2 * kRegions);
  the_monitor().settle();
  const uint64_t fences = stats_of(domain_).fences;
  use(450);
  EXPECT_EQ(registrar_.live(), kRegions - kPiece + 1);
  EXPECT_LE(stats_of(domain_).fences, fences + 1) << "one fence serves the piece";
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(registrar_.live(), 1u);
  map(0, 2 * kRegions);
}

TEST_F(PinCacheReleased, HeldMemoryIsVisitedOnce) {
  const hydrant_pin_t held = pin(8);
  unmap(8);
  the_monitor().settle();
  use(40);
  const uint64_t fences = stats_of(domain_).fences;
  for (size_t page = 50; page < 60; page += 2) use(page);
  EXPECT_EQ(stats_of(domain_).fences, fences);
  EXPECT_EQ(dead(), 1u);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(dead(), 0u);
  map(8);
}

// ---- by the upkeep thread ----

bool has_upkeep_thread() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    std::getline(file, name);
    if (name == "hydrant-upkeep") return true;
  }
  return false;
}

class PinCacheUpkeep : public PinCacheReleased {
 protected:
  void SetUp() override {
    PinCacheReleased::SetUp();
    Upkeep::set_delay_ns(Upkeep::kDelayNs);
    Upkeep::set_max_pause_ns(Upkeep::kMaxPauseNs);
  }
  // The registrar's unpin() in the upkeep thread runs `first` before its own work.
  void create_with_unpin(std::function<void()> first, uint64_t merge_bytes = 0) {
    destroy();
    own_unpin_ = registrar_.table.unpin;
    own_user_ = registrar_.table.user;
    first_ = std::move(first);
    hydrant_registrar_t table = registrar_.table;
    table.user = this;
    // Only what a domain without asynchronous pins and exports calls.
    table.pin = [](void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
      auto* self = static_cast<PinCacheUpkeep*>(user);
      return self->registrar_.table.pin(self->own_user_, addr, len, access, key);
    };
    table.unpin = [](void* user, uintptr_t addr, size_t len, const void* key) {
      auto* self = static_cast<PinCacheUpkeep*>(user);
      self->first_();
      return self->own_unpin_(self->own_user_, addr, len, key);
    };
    table.unpin_many = nullptr;
    table.charge = nullptr;
    table.pending_charge = [](void* user) {
      return static_cast<PinCacheUpkeep*>(user)->pending_.load();
    };
    table.pin_async = nullptr;
    table.export_key = nullptr;
    table.import_key = nullptr;
    table.export_bytes = 0;
    table.implicit_key = nullptr;
    table.forget_in_child = nullptr;
    table.destroy = nullptr;
    table.drop_import = nullptr;
    hydrant_domain_options_t options = watching();
    options.registrar = &table;
    options.merge_bytes = merge_bytes;
    create(options);
  }

  decltype(hydrant_registrar_t::unpin) own_unpin_ = nullptr;
  void* own_user_ = nullptr;
  std::function<void()> first_;
  std::atomic<bool> inside_{false}, may_go_{false};
  std::atomic<int> calls_{0};
  std::atomic<uint64_t> pending_{0};  // the registrar's pending charge
  std::mutex mutex_;                  // of the client
};

TEST_F(PinCacheUpkeep, UpkeepThreadUnpinsReleasedMemory) {
  static_assert(Upkeep::kDelayNs <= 50'000'000, "goes back within 100 ms, says the manual");
  destroy();
  hydrant_domain_options_t options = watching();
  options.merge_bytes = 1;
  create(options);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < 100; ++i) use(2 * i);
    unmap(0, 200);
    EXPECT_TRUE(wait_until([this] { return registrar_.live() == 0; })) << "round " << round;
    EXPECT_TRUE(wait_until([this] { return stats_of(domain_).charged_bytes == 0; }));
    map(0, 200);
  }
  EXPECT_TRUE(has_upkeep_thread());
}

TEST_F(PinCacheUpkeep, RangesAddedWithoutTheMutexAreUnpinnedToo) {
  use(8);
  set_busy_mutex(true);
  unmap(8);
  EXPECT_TRUE(wait_until([this] { return registrar_.live() == 0; }));
  map(8);
}

TEST_F(PinCacheUpkeep, HeldMemoryIsUnpinnedByItsLastRelease) {
  const hydrant_pin_t held = pin(8);
  use_and_unmap(12);
  unmap(8);
  EXPECT_TRUE(wait_until([this] { return registrar_.live() == 1; }));
  EXPECT_FALSE(
      happens_within(std::chrono::milliseconds(120), [this] { return registrar_.live() == 0; }));
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u);
  map(8);
  map(12);
}

// A pin that waits for budget unpins dead regions meanwhile, and checks its deadline after each piece.
TEST_F(PinCacheUpkeep, WaitingPinUnpinsAtMostOnePieceAfterItsDeadline) {
  constexpr size_t kRegions = 150;
  constexpr size_t kPiece = 64;
  constexpr uint64_t kTimeoutNs = 20'000'000;
  create_with_unpin([] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }, 1);
  Upkeep::set_delay_ns(UINT64_MAX / 2);
  for (size_t i = 0; i < kRegions; ++i) use(2 * i);
  unmap(0, 2 * kRegions);
  the_monitor().settle();
  ASSERT_EQ(dead(), kRegions);
  pending_ = stats_of(domain_).budget_bytes;  // the budget is used up, and there is no victim
  const hydrant_pin_t pin =
      hydrant_pin_wait(domain_, arena_.page(400), kPage, HYDRANT_LOCAL_WRITE, kTimeoutNs);
  EXPECT_EQ(hydrant_pin_status(pin), GASNET_ERR_NOT_READY);
  EXPECT_GE(registrar_.live(), kRegions - kPiece);
  pending_ = 0;
  EXPECT_EQ(hydrant_poll(domain_), 0);
  EXPECT_EQ(registrar_.live(), 0u);
  map(0, 2 * kRegions);
}

// The reader could not do this: the call would wait for the reader itself.
TEST_F(PinCacheUpkeep, UnpinMayReleaseWatchedMemory) {
  create_with_unpin([this] { renew(100); });
  for (int round = 0; round < 3; ++round) {
    use(100);
    use_and_unmap(8);
    EXPECT_TRUE(wait_until([this] { return registrar_.live() == 0; })) << "round " << round;
    map(8);
  }
}

TEST_F(PinCacheUpkeep, UnpinMayWaitForALockUnderWhichMemoryIsReleased) {
  create_with_unpin([this] {
    inside_ = true;
    const std::lock_guard lock(mutex_);
  });
  Upkeep::set_delay_ns(0);
  for (int round = 0; round < 20; ++round) {
    use(8);
    use(20);
    EXPECT_TRUE(wait_until([this] { return registrar_.live() == 2; }));  // the thread is done
    inside_ = false;
    const std::lock_guard lock(mutex_);
    unmap(8);
    EXPECT_TRUE(wait_until([this] { return inside_.load(); })) << "round " << round;
    unmap(20);  // while unpin() waits
    map(8);
    map(20);
  }
  EXPECT_TRUE(wait_until([this] { return registrar_.live() == 0; }));
}

TEST_F(PinCacheUpkeep, DomainDestroyWaitsForTheThread) {
  create_with_unpin([this] {
    inside_ = true;
    EXPECT_TRUE(wait_until([this] { return may_go_.load(); }));
  });
  use_and_unmap(8);
  ASSERT_TRUE(wait_until([this] { return inside_.load(); }));
  std::atomic<bool> ended{false};
  Threads threads;
  threads.start([&] {
    EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
    ended = true;
  });
  EXPECT_FALSE(happens_within(std::chrono::milliseconds(50), [&] { return ended.load(); }));
  may_go_ = true;
  threads.join();
  domain_ = 0;
  EXPECT_EQ(registrar_.live(), 0u);
  map(8);
}

TEST_F(PinCacheUpkeep, ForkDoesNotWaitLongAndTheChildStartsItsOwnThread) {
  create_with_unpin([this] {
    inside_ = true;
    (void)happens_within(std::chrono::seconds(60), [this] { return may_go_.load(); });
  });
  use_and_unmap(8);
  ASSERT_TRUE(wait_until([this] { return inside_.load(); }));
  EXPECT_EQ(run_in_child([]() -> std::string { return has_upkeep_thread() ? "a thread" : ""; }),
            "");
  EXPECT_NE(registrar_.live(), 0u) << "the fork has waited for the end of unpin()";
  may_go_ = true;
  EXPECT_TRUE(wait_until([this] { return registrar_.live() == 0; }));
  map(8);
  if (!kThreadsInChildren) return;
  EXPECT_EQ(run_in_child([this]() -> std::string {
              registrar_.forget_all();
              use_and_unmap(8);
              if (!wait_until([this] { return registrar_.live() == 0; })) return "still pinned";
              return has_upkeep_thread() ? "" : "unpinned without an upkeep thread";
            }),
            "");
}

// A lock that unpin() holds is free in the child.
TEST_F(PinCacheUpkeep, ForkWaitsForAShortUnpin) {
  create_with_unpin([this] {
    const std::lock_guard lock(mutex_);
    ++calls_;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  Upkeep::set_max_pause_ns(UINT64_MAX / 2);
  for (int round = 0; round < 10; ++round) {
    use_and_unmap(8);
    ASSERT_TRUE(wait_until([&] { return calls_.load() > round; }));
    EXPECT_EQ(run_in_child([this]() -> std::string { return mutex_.try_lock() ? "" : "locked"; }),
              "");
    map(8);
  }
}

std::byte* g_protected = nullptr;

TEST_F(PinCacheUpkeep, UnpinMayCauseAFaultThatTheProgramHandles) {
  g_protected = arena_.page(100);
  ASSERT_EQ(mprotect(g_protected, kPage, PROT_NONE), 0);
  struct sigaction own {};
  struct sigaction before {};
  own.sa_handler = [](int) { mprotect(g_protected, kPage, PROT_READ | PROT_WRITE); };
  ASSERT_EQ(sigaction(SIGSEGV, &own, &before), 0);
  create_with_unpin([] { *const_cast<volatile std::byte*>(g_protected) = std::byte{1}; });
  use_and_unmap(8);
  EXPECT_TRUE(wait_until([this] { return registrar_.live() == 0; }));
  EXPECT_EQ(*g_protected, std::byte{1});
  sigaction(SIGSEGV, &before, nullptr);
  map(8);
}

TEST_F(PinCacheUpkeep, NoThreadIsStartedWithoutWatching) {
  destroy();
  hydrant_domain_options_t options = watching();
  options.watch = HYDRANT_WATCH_NONE;
  EXPECT_EQ(run_in_child([&]() -> std::string {
              create(options);
              if (hydrant_vouch(domain_, arena_.page(8), kPage) != GASNET_OK) return "vouch";
              use(8);
              use(9);
              return has_upkeep_thread() ? "a thread" : "";
            }),
            "");
}
#endif

}  // namespace
}  // namespace hydrant::testing
