// Registrars that refuse, run out, break or complete late: each operation completes or returns an error with
// a text, and no budget, slot or registration is lost.
#include <hydrant/pin_cache.h>

#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::testing {
namespace {

class PinCacheFaults : public PinCacheTest {
 protected:
  void expect_pinned(hydrant_pin_t held, size_t page, size_t pages, uint32_t access) {
    EXPECT_EQ(check_hold(registrar_, held, arena_.addr(page), pages * kPage, access), "");
  }
  void expect_works(size_t page, size_t pages, uint32_t access) {
    const hydrant_pin_t held = pin(page, pages, access);
    ASSERT_NE(held.region, nullptr) << hydrant_error_text();
    expect_pinned(held, page, pages, access);
    EXPECT_EQ(hydrant_release(held), GASNET_OK);
  }
  void expect_refused(size_t page, size_t pages, uint32_t access) {
    EXPECT_EQ(hydrant_pin_status(pin(page, pages, access)), HYDRANT_ERR_REFUSED);
    EXPECT_TRUE(has_text());
  }
};

class PinCacheFaultsInMode : public PinCacheFaults, public ::testing::WithParamInterface<uint32_t> {
 protected:
  hydrant_domain_options_t options() const {
    hydrant_domain_options_t o = options_for(registrar_);
    o.mode = GetParam();
    o.budget_bytes = 12 * kPage;
    return o;
  }
};

TEST_P(PinCacheFaultsInMode, UnmappedMemoryIsRefusedAtOnceAndRemembered) {
  create(options());
  registrar_.refuse(arena_.addr(4), kPage, RecordingRegistrar::kAnyAccess);
  expect_refused(3, 3, HYDRANT_LOCAL_READ);
  const uint64_t calls = registrar_.pin_calls();
  for (int i = 0; i < 10; ++i) expect_refused(3, 3, HYDRANT_LOCAL_READ);
  EXPECT_EQ(registrar_.pin_calls(), calls) << "called again although the result is known";
  expect_works(3, 1, HYDRANT_LOCAL_WRITE);
  expect_works(5, 1, HYDRANT_LOCAL_WRITE);
  registrar_.refuse_nothing();
  EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(4), kPage), GASNET_OK);
  expect_works(3, 3, HYDRANT_LOCAL_WRITE);
  EXPECT_GE(stats_of(domain_).refusals, 11u);
}

TEST_P(PinCacheFaultsInMode, ReadOnlyMemoryCanBeASource) {
  create(options());
  registrar_.refuse(arena_.addr(0), 8 * kPage, HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_WRITE);
  expect_refused(2, 2, HYDRANT_LOCAL_WRITE);
  expect_works(2, 2, HYDRANT_LOCAL_READ);
  expect_works(2, 2, HYDRANT_REMOTE_READ);
  expect_refused(2, 2, HYDRANT_LOCAL_WRITE);
  expect_refused(3, 1, HYDRANT_REMOTE_WRITE);
  EXPECT_TRUE(is_cached(2, 2)) << "a refused upgrade costs the region that is there";
}

TEST_P(PinCacheFaultsInMode, RefusedUpgradeLeavesHeldRegionAlone) {
  create(options());
  registrar_.refuse(arena_.addr(0), 8 * kPage, HYDRANT_LOCAL_WRITE);
  const hydrant_pin_t source = pin(1, 2, HYDRANT_LOCAL_READ);
  ASSERT_NE(source.region, nullptr) << hydrant_error_text();
  expect_refused(1, 2, HYDRANT_LOCAL_WRITE);
  expect_pinned(source, 1, 2, HYDRANT_LOCAL_READ);
  EXPECT_EQ(hydrant_release(source), GASNET_OK);
}

TEST_P(PinCacheFaultsInMode, UpgradeRegistersAgainWithBothRights) {
  create(options());
  const hydrant_pin_t reader = pin(1, 2, HYDRANT_LOCAL_READ);
  const hydrant_pin_t writer = pin(1, 2, HYDRANT_LOCAL_WRITE);
  ASSERT_NE(reader.region, nullptr);
  ASSERT_NE(writer.region, nullptr) << hydrant_error_text();
  expect_pinned(reader, 1, 2, HYDRANT_LOCAL_READ);
  expect_pinned(writer, 1, 2, HYDRANT_LOCAL_WRITE);
  EXPECT_EQ(hydrant_release(reader), GASNET_OK);
  EXPECT_EQ(hydrant_release(writer), GASNET_OK);
  const uint64_t calls = registrar_.pin_calls();
  expect_works(1, 2, HYDRANT_LOCAL_READ);
  expect_works(1, 2, HYDRANT_LOCAL_WRITE);
  EXPECT_EQ(registrar_.pin_calls(), calls) << "the upgraded region serves both";
}

TEST_P(PinCacheFaultsInMode, NeighbourOfARefusedPageIsPinnedAlone) {
  create(options());
  expect_works(2, 1, HYDRANT_LOCAL_WRITE);
  registrar_.refuse(arena_.addr(2), kPage, RecordingRegistrar::kAnyAccess);
  // Pages 1 and 3 would like to merge with page 2, which cannot be registered any more.
  expect_works(3, 1, HYDRANT_LOCAL_WRITE);
  expect_works(1, 1, HYDRANT_LOCAL_WRITE);
}

TEST_P(PinCacheFaultsInMode, EagerRightsAreDroppedWhereRefused) {
  hydrant_domain_options_t o = options();
  o.eager_access = HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_WRITE;
  create(o);
  registrar_.refuse(arena_.addr(4), 2 * kPage, HYDRANT_REMOTE_WRITE);
  expect_works(4, 2, HYDRANT_LOCAL_READ);
  expect_refused(4, 1, HYDRANT_REMOTE_WRITE);
  const uint64_t calls = registrar_.pin_calls();
  expect_works(8, 2, HYDRANT_LOCAL_READ);
  expect_works(8, 2, HYDRANT_REMOTE_WRITE);
  EXPECT_EQ(registrar_.pin_calls(), calls + (GetParam() == HYDRANT_MODE_PAGE ? 2u : 1u));
}

TEST_P(PinCacheFaultsInMode, FullRegistrarEvictsVictims) {
  create(options());
  registrar_.allow_bytes(4 * kPage);  // less than the budget says
  for (size_t i = 0; i < 64; i += 3) expect_works(i, 2, HYDRANT_LOCAL_WRITE);
  const hydrant_pin_t held = pin(0, 4);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(hydrant_pin_status(pin(20, 1)), GASNET_ERR_NOT_READY);
  EXPECT_TRUE(has_text());
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  expect_works(20, 4, HYDRANT_LOCAL_WRITE);
}

TEST_P(PinCacheFaultsInMode, BrokenRegistrarIsReportedAndCostsNothing) {
  create(options());
  registrar_.fail_pin(1, HYDRANT_ERR_BROKEN);
  EXPECT_EQ(hydrant_pin_status(pin(0, 1)), HYDRANT_ERR_BROKEN);
  EXPECT_TRUE(has_text());
  EXPECT_EQ(stats_of(domain_).charged_bytes, 0u);
  expect_works(0, 12, HYDRANT_LOCAL_WRITE);
}

TEST_P(PinCacheFaultsInMode, ForeignStatusOfARegistrarIsContained) {
  create(options());
  registrar_.fail_pin(1, 4711);
  const hydrant_pin_t wrong = pin(0, 1);
  EXPECT_EQ(wrong.region, nullptr);
  EXPECT_STRNE(hydrant_status_name(hydrant_pin_status(wrong)), "(unknown status)");
  EXPECT_TRUE(has_text());
  expect_works(0, 12, HYDRANT_LOCAL_WRITE);
}

TEST_P(PinCacheFaultsInMode, PendingUnpinsStayChargedUntilTheySettle) {
  registrar_.answer_unpins(HYDRANT_UNPIN_PENDING);
  registrar_.watch_limits(12 * kPage, UINT64_MAX);
  create(options());
  for (size_t i = 0; i < 12; i += 2) expect_works(i, 1, HYDRANT_LOCAL_WRITE);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_EQ(registrar_.live(), 0u);
  EXPECT_EQ(stats_of(domain_).pending_bytes, 6 * kPage);
  EXPECT_EQ(hydrant_pin_status(pin(100, 7)), GASNET_ERR_NOT_READY) << "six pages are still charged";
  expect_works(100, 6, HYDRANT_LOCAL_WRITE);
  registrar_.settle();
  // Its victims are pending in turn.
  EXPECT_EQ(hydrant_pin_status(pin(200, 12)), GASNET_ERR_NOT_READY);
  registrar_.settle();
  expect_works(200, 12, HYDRANT_LOCAL_WRITE);
}

TEST_P(PinCacheFaultsInMode, FailedUnpinLosesOnlyItsCharge) {
  create(options());
  expect_works(0, 2, HYDRANT_LOCAL_WRITE);
  registrar_.answer_unpins(HYDRANT_UNPIN_BROKEN);
  (void)hydrant_flush(domain_);
  registrar_.answer_unpins(HYDRANT_UNPIN_DONE);
  EXPECT_FALSE(is_cached(0));
  expect_works(50, 10, HYDRANT_LOCAL_WRITE);
  EXPECT_LE(stats_of(domain_).charged_bytes, 12 * kPage);
}

TEST_P(PinCacheFaultsInMode, PinManyIsAllOrNothing) {
  create(options());
  registrar_.refuse(arena_.addr(20), kPage, RecordingRegistrar::kAnyAccess);
  const hydrant_range_t ranges[] = {
      {arena_.addr(0), kPage}, {arena_.addr(10), 2 * kPage}, {arena_.addr(20), kPage}};
  hydrant_pin_t pins[] = {{nullptr, 7}, {nullptr, 7}, {nullptr, 7}};
  EXPECT_EQ(hydrant_pin_many(domain_, ranges, 3, 0, pins), HYDRANT_ERR_REFUSED);
  for (const hydrant_pin_t& p : pins) EXPECT_TRUE(p.region == nullptr && p.hold == 7);
  EXPECT_EQ(stats_of(domain_).live_holds, 0u);
  EXPECT_EQ(hydrant_pin_many(domain_, ranges, 2, 0, pins), GASNET_OK);
  EXPECT_EQ(hydrant_release_many(pins, 2), GASNET_OK);
  const hydrant_range_t large[] = {{arena_.addr(0), 7 * kPage}, {arena_.addr(30), 6 * kPage}};
  const uint64_t calls = registrar_.pin_calls();
  EXPECT_EQ(hydrant_pin_many(domain_, large, 2, 0, pins), GASNET_ERR_RESOURCE);
  EXPECT_EQ(registrar_.pin_calls(), calls) << "budget is reserved before anything is registered";
}

// ---- a registrar that frees memory, and so leads to an invalidation, from inside its functions ----

struct Reentrant {
  hydrant_registrar_t inner;
  hydrant_domain_t domain;
  const void* addr;
  size_t len;
  int left;  // invalidations still to be made
};

TEST_P(PinCacheFaultsInMode, RegistrarMayInvalidateFromInside) {
  Reentrant state{registrar_.table, 0, arena_.page(0), 4 * kPage, 0};
  hydrant_registrar_t table = registrar_.table;
  table.user = &state;
  table.pin = [](void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
    auto& self = *static_cast<Reentrant*>(user);
    const int status = self.inner.pin(self.inner.user, addr, len, access, key);
    if (self.left-- > 0) {
      EXPECT_EQ(hydrant_invalidate(self.domain, self.addr, self.len), GASNET_OK);
    }
    return status;
  };
  table.unpin = [](void* user, uintptr_t addr, size_t len, const void* key) {
    auto& self = *static_cast<Reentrant*>(user);
    EXPECT_EQ(hydrant_invalidate(self.domain, self.addr, self.len), GASNET_OK);
    return self.inner.unpin(self.inner.user, addr, len, key);
  };
  table.pending_charge = nullptr;
  table.forget_in_child = nullptr;
  table.destroy = nullptr;
  hydrant_domain_options_t o = options();
  o.registrar = &table;
  create(o);
  state.domain = domain_;
  state.left = 3;
  expect_works(1, 2, HYDRANT_LOCAL_WRITE);  // its own registration is invalidated three times
  EXPECT_GE(stats_of(domain_).retries, 1u);
  state.left = 1;
  expect_works(100, 2, HYDRANT_LOCAL_WRITE);  // another region is cached
  EXPECT_FALSE(is_cached(1));
  EXPECT_TRUE(is_cached(100, 2));
  state.addr = arena_.page(100);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
}

// ---- the registrar fails at its nth call, for every n ----

// A fixed course through everything that registers. Every call may fail; what succeeds must hold.
void run_course(RecordingRegistrar& registrar, hydrant_domain_t domain) {
  const Arena& arena = registrar.arena();
  std::vector<hydrant_pin_t> held;
  const auto take = [&](hydrant_pin_t p, size_t page, size_t pages, uint32_t access) {
    if (p.region == nullptr) {
      EXPECT_TRUE(has_text());
      return;
    }
    EXPECT_EQ(check_hold(registrar, p, arena.addr(page), pages * kPage, access), "");
    held.push_back(p);
  };
  const auto pin = [&](size_t page, size_t pages, uint32_t access) {
    take(hydrant_pin(domain, arena.page(page), pages * kPage, access), page, pages, access);
  };
  pin(0, 2, HYDRANT_LOCAL_READ);
  pin(2, 2, HYDRANT_LOCAL_WRITE);   // a neighbour
  pin(0, 2, HYDRANT_LOCAL_WRITE);   // more rights
  pin(1, 3, HYDRANT_REMOTE_WRITE);  // both at once
  EXPECT_EQ(hydrant_invalidate(domain, arena.page(1), kPage), GASNET_OK);
  pin(0, 4, HYDRANT_LOCAL_WRITE);
  EXPECT_EQ(hydrant_release_many(held.data(), held.size()), GASNET_OK);
  held.clear();
  for (size_t i = 10; i < 40; i += 3) pin(i, 2, HYDRANT_LOCAL_WRITE);  // evicts
  EXPECT_EQ(hydrant_release_many(held.data(), held.size()), GASNET_OK);
  held.clear();
  const hydrant_range_t ranges[] = {
      {arena.addr(50), kPage}, {arena.addr(51), kPage}, {arena.addr(60), 3 * kPage}};
  hydrant_pin_t pins[3] = {};
  if (hydrant_pin_many(domain, ranges, 3, HYDRANT_LOCAL_WRITE, pins) == GASNET_OK) {
    EXPECT_EQ(hydrant_release_many(pins, 3), GASNET_OK);
  } else {
    EXPECT_TRUE(has_text());
  }
  struct Answer {
    hydrant_pin_t pin{};
    int times = 0;
  } answer;
  const auto done = [](void* context, hydrant_pin_t p) {
    static_cast<Answer*>(context)->pin = p;
    ++static_cast<Answer*>(context)->times;
  };
  const int status =
      hydrant_pin_async(domain, arena.page(70), 2 * kPage, HYDRANT_LOCAL_WRITE, done, &answer);
  if (status == GASNET_OK) {
    // A registrar without budget makes the cache's own smaller for a while.
    EXPECT_TRUE(wait_until([&] { return hydrant_poll(domain) >= 0 && answer.times != 0; }));
  }
  EXPECT_EQ(answer.times, status == GASNET_OK ? 1 : 0);
  if (answer.pin.region != nullptr) {
    EXPECT_EQ(hydrant_release(answer.pin), GASNET_OK);
  }
  EXPECT_EQ(hydrant_flush(domain), GASNET_OK);
}

TEST_P(PinCacheFaultsInMode, FailureOfEveryNthCallLosesAndLeaksNothing) {
  constexpr int kFailures[] = {HYDRANT_ERR_REFUSED, GASNET_ERR_NOT_READY, GASNET_ERR_RESOURCE,
                               HYDRANT_ERR_BROKEN};
  for (const int failure : kFailures) {
    uint64_t n = 1;
    for (bool reached = true; reached; ++n) {
      ASSERT_LT(n, 500u) << "the course never ends";
      SCOPED_TRACE(std::string(hydrant_status_name(failure)) + " at call " + std::to_string(n));
      create(options());
      const uint64_t calls = registrar_.pin_calls();
      registrar_.fail_pin(n, failure);
      run_course(registrar_, domain_);
      reached = registrar_.pin_calls() - calls >= n;
      registrar_.fail_pin(0, GASNET_OK);
      const hydrant_stats_t s = stats_of(domain_);
      EXPECT_EQ(s.live_holds, 0u);
      EXPECT_EQ(s.regions + s.dead_regions, 0u);
      EXPECT_EQ(s.charged_bytes, 0u);
      EXPECT_EQ(s.pins, s.unpins);
      EXPECT_EQ(s.pin_failures, reached ? 1u : 0u);
      EXPECT_EQ(registrar_.live(), 0u);
      ASSERT_EQ(registrar_.problems(), "");
      EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(0), arena_.pages() * kPage), GASNET_OK);
      EXPECT_TRUE(wait_until([&] {
        const hydrant_pin_t whole = pin(0, 12);
        return whole.region != nullptr && hydrant_release(whole) == GASNET_OK;
      })) << hydrant_error_text();
      destroy();
      if (HasFailure()) return;
    }
    EXPECT_GT(n, 10u) << "the course needs more than ten registrations";
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, PinCacheFaultsInMode,
                         ::testing::Values(HYDRANT_MODE_REGION, HYDRANT_MODE_PAGE), mode_name);

}  // namespace
}  // namespace hydrant::testing
