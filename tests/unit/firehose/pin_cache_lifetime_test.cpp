// Domains that are created while others end, registrars that use other domains, invalid handles.
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <array>
#include <atomic>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace hydrant::testing {
namespace {

// A registrar whose calls run functions of the test.
struct Scripted {
  std::atomic<int> live{0}, forgotten{0};
  std::atomic<bool> hold_unpin{false}, in_unpin{false};
  std::atomic<int> not_ready{0};  // so many pins return "no budget now"
  hydrant_domain_t inner = 0;     // pinned from inside this registrar's pin
  const void* inner_addr = nullptr;
  hydrant_registrar_t table{};

  Scripted() {
    table.size = sizeof table;
    table.user = this;
    table.name = "scripted";
    table.key_bytes = 8;
    table.pin = [](void* user, uintptr_t addr, size_t, uint32_t, void* key) -> int {
      auto* self = static_cast<Scripted*>(user);
      if (self->not_ready.load() > 0) {
        self->not_ready.fetch_sub(1);
        return GASNET_ERR_NOT_READY;
      }
      if (self->inner != 0) {
        const hydrant_pin_t pin = hydrant_pin(self->inner, self->inner_addr, 1 << 20, 0);
        EXPECT_NE(pin.region, nullptr) << hydrant_error_text();
        EXPECT_EQ(hydrant_release(pin), GASNET_OK);
      }
      *static_cast<uint64_t*>(key) = addr;
      self->live.fetch_add(1);
      return GASNET_OK;
    };
    table.unpin = [](void* user, uintptr_t, size_t, const void*) -> int {
      auto* self = static_cast<Scripted*>(user);
      self->in_unpin.store(true);
      EXPECT_TRUE(wait_until([&] { return !self->hold_unpin.load(); }));
      self->live.fetch_sub(1);
      return HYDRANT_UNPIN_DONE;
    };
    table.forget_in_child = [](void* user) {
      static_cast<Scripted*>(user)->forgotten.fetch_add(1);
    };
  }

  hydrant_domain_t create(uint64_t budget = 64 * kMiB) const {
    hydrant_domain_options_t options;
    hydrant_domain_options_init(&options);
    options.watch = HYDRANT_WATCH_CLIENT;
    options.registrar = &table;
    options.budget_bytes = budget;
    options.max_regions = 64;
    hydrant_domain_t domain = 0;
    EXPECT_EQ(hydrant_domain_create(&options, &domain), GASNET_OK) << hydrant_error_text();
    return domain;
  }
};

class DomainLifetime : public ::testing::Test {
 protected:
  Arena arena_{512};
  Scripted first_, second_;
};

TEST_F(DomainLifetime, EndingDomainKeepsItsEntryUntilItHasEnded) {
  const hydrant_domain_t ending = first_.create();
  ASSERT_EQ(hydrant_release(hydrant_pin(ending, arena_.page(0), kPage, 0)), GASNET_OK);
  first_.hold_unpin.store(true);
  std::thread ender(
      [&] { EXPECT_EQ(hydrant_domain_destroy(ending, HYDRANT_FINI_UNPIN), GASNET_OK); });
  ASSERT_TRUE(wait_until([&] { return first_.in_unpin.load(); }));

  const hydrant_domain_t fresh = second_.create();
  const hydrant_pin_t pin = hydrant_pin(fresh, arena_.page(1), kPage, 0);
  ASSERT_NE(pin.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(stats_of(fresh).live_holds, 1u);
  first_.hold_unpin.store(false);
  ender.join();
  EXPECT_EQ(hydrant_invalidate(fresh, arena_.page(1), kPage), GASNET_OK);
  EXPECT_EQ(second_.live.load(), 1) << "a held region was unpinned";
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
  EXPECT_EQ(second_.live.load(), 0);
  EXPECT_EQ(hydrant_domain_destroy(fresh, HYDRANT_FINI_UNPIN), GASNET_OK);
}

struct FromCallback {
  Scripted* registrar;
  const void* addr;
  hydrant_domain_t domain = 0;
  hydrant_pin_t pin{};
};

TEST_F(DomainLifetime, CallbackAtADomainsEndMayCreateAnother) {
  const hydrant_domain_t ending = first_.create(kPage);
  const hydrant_pin_t held = hydrant_pin(ending, arena_.page(0), kPage, 0);
  ASSERT_NE(held.region, nullptr);
  FromCallback next{&second_, arena_.page(2), 0, {}};
  ASSERT_EQ(hydrant_pin_async(
                ending, arena_.page(1), kPage, 0,
                [](void* context, hydrant_pin_t pin) {
                  auto* next_one = static_cast<FromCallback*>(context);
                  EXPECT_EQ(hydrant_pin_status(pin), GASNET_ERR_NOT_INIT);
                  next_one->domain = next_one->registrar->create();
                  next_one->pin = hydrant_pin(next_one->domain, next_one->addr, kPage, 0);
                },
                &next),
            GASNET_OK);
  EXPECT_EQ(hydrant_domain_destroy(ending, HYDRANT_FINI_UNPIN), GASNET_OK);
  ASSERT_NE(next.pin.region, nullptr);
  ASSERT_NE(next.pin.region->key, nullptr);
  EXPECT_EQ(*static_cast<const uint64_t*>(next.pin.region->key), arena_.addr(2));
  EXPECT_EQ(stats_of(next.domain).live_holds, 1u);
  EXPECT_EQ(hydrant_release(next.pin), GASNET_OK);
  EXPECT_EQ(hydrant_domain_destroy(next.domain, HYDRANT_FINI_UNPIN), GASNET_OK);
}

TEST_F(DomainLifetime, RegistrarMayPinInAnotherDomain) {
  const hydrant_domain_t outer = first_.create();
  const hydrant_domain_t inner = second_.create();
  first_.inner = inner;
  first_.inner_addr = arena_.page(0);
  const std::array<hydrant_range_t, 2> ranges = {hydrant_range_t{arena_.addr(0), kPage},
                                                 hydrant_range_t{arena_.addr(64), kPage}};
  std::array<hydrant_pin_t, 2> pins{};
  ASSERT_EQ(hydrant_pin_many(outer, ranges.data(), 2, 0, pins.data()), GASNET_OK)
      << hydrant_error_text();
  EXPECT_EQ(stats_of(outer).live_holds, 2u);
  EXPECT_EQ(stats_of(outer).pins, 2u) << "a range was answered with the inner domain's region";
  EXPECT_EQ(stats_of(inner).live_holds, 0u);
  for (const hydrant_pin_t& pin : pins) EXPECT_EQ(hydrant_release(pin), GASNET_OK);
  EXPECT_EQ(hydrant_domain_destroy(outer, HYDRANT_FINI_UNPIN), GASNET_OK);
  EXPECT_EQ(hydrant_domain_destroy(inner, HYDRANT_FINI_UNPIN), GASNET_OK);
  EXPECT_EQ(first_.live.load() + second_.live.load(), 0);
}

TEST_F(DomainLifetime, DestroyedDomainIsNeverHit) {
  const hydrant_domain_t gone = first_.create();
  ASSERT_EQ(hydrant_release(hydrant_pin(gone, arena_.page(0), kPage, 0)), GASNET_OK);
  ASSERT_EQ(hydrant_domain_destroy(gone, HYDRANT_FINI_UNPIN), GASNET_OK);
  // Its slots read as zeros now: without a check they look like a region of [0, 0].
  EXPECT_EQ(hydrant_pin_status(hydrant_pin(gone, nullptr, 1, 0)), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(hydrant_pin_status(hydrant_pin(gone, arena_.page(0), 1, 0)), GASNET_ERR_NOT_INIT);
}

TEST_F(DomainLifetime, ForgedHandleIsAnError) {
  std::thread([] {
    for (const uint64_t made_up : {0x9d5ac3e100000000u, 0xffffffffffffffffu, uint64_t{1}}) {
      const hydrant_pin_t pin = hydrant_pin(made_up, &made_up, 8, 0);
      EXPECT_EQ(hydrant_pin_status(pin), GASNET_ERR_NOT_INIT) << std::hex << made_up;
    }
  }).join();
}

TEST_F(DomainLifetime, EverythingCanBeInvalidated) {
  const hydrant_domain_t domain = first_.create();
  ASSERT_EQ(hydrant_release(hydrant_pin(domain, arena_.page(0), kPage, 0)), GASNET_OK);
  EXPECT_EQ(hydrant_invalidate(domain, nullptr, SIZE_MAX), GASNET_OK) << hydrant_error_text();
  EXPECT_EQ(first_.live.load(), 0);
  EXPECT_EQ(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN), GASNET_OK);
}

TEST_F(DomainLifetime, ForkReachesTheRegistrarOfAnEndingDomain) {
  const hydrant_domain_t ending = first_.create();
  ASSERT_EQ(hydrant_release(hydrant_pin(ending, arena_.page(0), kPage, 0)), GASNET_OK);
  first_.hold_unpin.store(true);
  std::thread ender(
      [&] { EXPECT_EQ(hydrant_domain_destroy(ending, HYDRANT_FINI_UNPIN), GASNET_OK); });
  ASSERT_TRUE(wait_until([&] { return first_.in_unpin.load(); }));
  const pid_t child = fork();
  if (child == 0) _exit(first_.forgotten.load() == 1 ? 0 : 1);
  first_.hold_unpin.store(false);
  ender.join();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the registrar was not notified in the child";
  EXPECT_EQ(first_.forgotten.load(), 0);
}

}  // namespace
}  // namespace hydrant::testing
