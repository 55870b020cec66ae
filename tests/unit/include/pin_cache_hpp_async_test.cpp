// Callables that the C++ face calls back with a pin, and registrars derived from its base class.
#include "tests/support/child_process.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/include/own_registrar.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace hydrant::testing {
namespace {

using face::Domain;
using face::DomainOptions;
using face::Pin;

class PinCacheCppCallbacks : public ::testing::Test {
 protected:
  PinCacheCppCallbacks() {
    options_.registrar = &registrar_;
    options_.watch = HYDRANT_WATCH_CLIENT;
  }
  void create() {
    domain_ = Domain(options_);
    ASSERT_TRUE(domain_) << domain_.error();
  }
  Pin pin(size_t page) const { return domain_.pin(arena_.page(page), kPage, HYDRANT_LOCAL_WRITE); }
  template <class Done>
  int ask(size_t page, Done&& done) const {
    return domain_.pin_async(arena_.page(page), kPage, HYDRANT_LOCAL_WRITE,
                             std::forward<Done>(done));
  }

  Arena arena_{128};
  OwnRegistrar registrar_;
  DomainOptions options_;
  Domain domain_;
};

TEST_F(PinCacheCppCallbacks, CallableMayBeMoveOnlyAndKeepThePin) {
  create();
  Pin kept;
  auto once = std::make_unique<int>(7);
  EXPECT_EQ(ask(0,
                [&kept, token = std::move(once)](Pin pin) {
                  EXPECT_EQ(*token, 7);
                  kept = std::move(pin);
                }),
            GASNET_OK);
  ASSERT_TRUE(kept) << kept.error();
  EXPECT_EQ(domain_.stats().live_holds, 1u);
  int calls = 0;
  const std::function<void(Pin)> function = [&calls](Pin pin) { calls += pin ? 1 : 100; };
  EXPECT_EQ(ask(0, function), GASNET_OK);  // copied: used twice for the same request
  EXPECT_EQ(ask(0, function), GASNET_OK);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(domain_.stats().live_holds, 1u);
}

TEST_F(PinCacheCppCallbacks, DeferredPinCompletesInPoll) {
  options_.budget_bytes = 2 * kPage;  // one page, as this registrar charges
  create();
  Pin held = pin(0);
  Pin answer;
  const auto token = std::make_shared<int>(0);
  EXPECT_EQ(ask(64, [&answer, token](Pin pin) { answer = std::move(pin); }), GASNET_OK);
  EXPECT_EQ(domain_.poll(), 0);
  EXPECT_FALSE(answer);
  EXPECT_EQ(token.use_count(), 2);
  EXPECT_EQ(held.release(), GASNET_OK);
  EXPECT_EQ(domain_.poll(), 1);
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer.addr(), arena_.addr(64));
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(PinCacheCppCallbacks, DestroyCompletesWaitingPins) {
  options_.budget_bytes = 2 * kPage;
  create();
  const Pin held = pin(0);
  int status = GASNET_OK;
  const auto token = std::make_shared<int>(0);
  EXPECT_EQ(ask(64, [&status, token](const Pin& pin) { status = pin.status(); }), GASNET_OK);
  EXPECT_EQ(domain_.end(), GASNET_OK);
  EXPECT_EQ(status, GASNET_ERR_NOT_INIT);
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(PinCacheCppCallbacks, RefusedRequestDropsTheCallable) {
  create();
  registrar_.answer = HYDRANT_ERR_REFUSED;
  const auto token = std::make_shared<int>(0);
  EXPECT_EQ(ask(0, [token](Pin) { ADD_FAILURE() << "called"; }), HYDRANT_ERR_REFUSED);
  EXPECT_EQ(token.use_count(), 1);
}

TEST_F(PinCacheCppCallbacks, ThrowingCallableEndsTheProgram) {
  create();
  EXPECT_DEATH((void)ask(0, [](Pin) { throw std::runtime_error("thrown by the callable"); }), "");
}

static_assert(noexcept(std::declval<OwnRegistrar&>().pin(0, 0, 0, nullptr)) &&
              !std::is_copy_constructible_v<OwnRegistrar>);

TEST_F(PinCacheCppCallbacks, FactsReachTheCStruct) {
  face::Registrar::Facts f;
  f.name = "facts";
  f.key_bytes = 1, f.charge_scope = 2, f.supported_access = 3, f.address_kind = 4;
  f.granule_bytes = 5, f.max_region_bytes = 6, f.max_regions = 7, f.max_charge_bytes = 8;
  f.divisible = true, f.asynchronous = true, f.export_bytes = 9;
  f.pin_base_ns = 10, f.pin_page_ns = 11, f.unpin_base_ns = 12;
  f.unpin_before_release = true;
  registrar_.given = f;
  const hydrant_registrar_t c = registrar_.c_struct();
  EXPECT_EQ(c.size, sizeof c);
  EXPECT_STREQ(c.name, "facts");
  EXPECT_TRUE(c.key_bytes == 1 && c.charge_scope == 2 && c.supported_access == 3 &&
              c.address_kind == 4 && c.granule_bytes == 5 && c.max_region_bytes == 6 &&
              c.max_regions == 7 && c.max_charge_bytes == 8 && c.divisible == 1 &&
              c.export_bytes == 9 && c.pin_base_ns == 10 && c.pin_page_ns == 11 &&
              c.unpin_base_ns == 12 && c.flags == HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE);
  EXPECT_TRUE(c.pin_async != nullptr && c.export_key != nullptr && c.import_key != nullptr);
  registrar_.given.asynchronous = false;
  registrar_.given.export_bytes = 0;
  registrar_.given.unpin_before_release = false;
  const hydrant_registrar_t less = registrar_.c_struct();
  EXPECT_TRUE(less.pin_async == nullptr && less.export_key == nullptr &&
              less.import_key == nullptr && less.divisible == 1 && less.flags == 0);
}

TEST_F(PinCacheCppCallbacks, EveryFunctionOfARegistrarIsCalled) {
  registrar_.given.export_bytes = sizeof(uint64_t);
  create();
  EXPECT_STREQ(domain_.registrar_name(), "own");
  EXPECT_EQ(domain_.key_bytes(), sizeof(uint64_t));
  const Pin held = pin(0);
  ASSERT_TRUE(held) << held.error();
  EXPECT_EQ(domain_.stats().charged_bytes, 2 * kPage);
  uint64_t blob = 0, key = 0;
  size_t len = sizeof blob;
  EXPECT_EQ(held.export_key(&blob, &len), GASNET_OK) << hydrant_error_text();
  EXPECT_EQ(len, sizeof blob);
  EXPECT_EQ(domain_.import_key(&blob, len, &key), GASNET_OK);
  EXPECT_EQ(key, held.key_as<uint64_t>());
  EXPECT_EQ(domain_.import_key(&blob, 3, &key), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(domain_.implicit_key(HYDRANT_LOCAL_WRITE, &key), GASNET_OK);
  EXPECT_EQ(key, 1000u + HYDRANT_LOCAL_WRITE);
  registrar_.pending = 3 * kPage;
  EXPECT_EQ(domain_.stats().pending_bytes, 3 * kPage);
  registrar_.pending = 0;
  for (size_t page = 20; page < 60; page += 20) EXPECT_TRUE(pin(page));
  EXPECT_EQ(domain_.flush(), GASNET_OK);
  EXPECT_EQ(registrar_.batches, 1u);
  EXPECT_EQ(registrar_.unpins, 2u);
  EXPECT_EQ(domain_.end(), GASNET_OK);
  EXPECT_EQ(registrar_.unpins, registrar_.pins);
  EXPECT_EQ(registrar_.ends, 1u);
}

TEST_F(PinCacheCppCallbacks, RegistrarExplainsItsRefusal) {
  create();
  registrar_.answer = HYDRANT_ERR_BROKEN;
  const Pin broken = pin(0);
  EXPECT_EQ(broken.status(), HYDRANT_ERR_BROKEN);
  EXPECT_NE(std::string(broken.error()).find("out of order"), std::string::npos) << broken.error();
}

TEST_F(PinCacheCppCallbacks, RegistrarMethodsHaveDefaults) {
  LeastRegistrar least;
  uint64_t word = 0;
  size_t len = sizeof word;
  const hydrant_range_t ranges[] = {{kPage, kPage}, {2 * kPage, kPage}, {3 * kPage, kPage}};
  const void* const keys[] = {nullptr, nullptr, nullptr};
  EXPECT_EQ(least.unpin_many(ranges, keys, 1), HYDRANT_UNPIN_DONE);
  EXPECT_EQ(least.unpin_many(ranges, keys, 3), HYDRANT_UNPIN_BROKEN);
  least.unpin_answer = HYDRANT_UNPIN_PENDING;
  EXPECT_EQ(least.unpin_many(ranges, keys, 1), HYDRANT_UNPIN_PENDING);
  EXPECT_EQ(least.charge(0, 123), 123u);
  EXPECT_EQ(least.pending_charge(), 0u);
  EXPECT_EQ(least.pin_async(0, 1, 0, &word, nullptr, nullptr), GASNET_OK);
  EXPECT_EQ(least.export_key(0, 1, &word, &word, &len), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_EQ(least.import_key(&word, len, &word), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_EQ(least.implicit_key(0, &word), HYDRANT_ERR_UNSUPPORTED);
  least.forget_in_child();
  least.domain_ended();

  least.unpin_answer = HYDRANT_UNPIN_DONE;
  options_.registrar = &least;
  create();
  EXPECT_STREQ(domain_.registrar_name(), "client");
  EXPECT_EQ(domain_.implicit_key(0, &word), HYDRANT_ERR_UNSUPPORTED);
  const Pin held = pin(0);
  EXPECT_TRUE(held) << held.error();
  EXPECT_EQ(held.key(), nullptr);
  EXPECT_EQ(domain_.end(), GASNET_OK);  // before its registrar is destroyed
}

// Completes its pins on command.
class LateRegistrar : public OwnRegistrar {
 public:
  std::atomic<hydrant_pin_done_fn> done{nullptr};
  void* context = nullptr;

  LateRegistrar() { given.asynchronous = true; }
  int pin_async(uintptr_t, size_t, uint32_t, void*, hydrant_pin_done_fn when_done,
                void* its_context) noexcept override {
    context = its_context;
    done = when_done;
    return GASNET_ERR_NOT_READY;
  }
  void complete() {
    const uint64_t key = 4711;
    done.exchange(nullptr)(context, GASNET_OK, &key);
  }
};

TEST_F(PinCacheCppCallbacks, RegistrarMayCompleteLater) {
  LateRegistrar late;
  options_.registrar = &late;
  create();
  Pin answer;
  EXPECT_EQ(ask(0, [&answer](Pin pin) { answer = std::move(pin); }), GASNET_OK);
  EXPECT_EQ(domain_.poll(), 0);
  ASSERT_NE(late.done.load(), nullptr);
  Threads threads;
  threads.start([&late] { late.complete(); });
  EXPECT_TRUE(wait_until([&] { return domain_.poll() == 1; }));
  threads.join();
  ASSERT_TRUE(answer) << answer.error();
  EXPECT_EQ(answer.key_as<uint64_t>(), 4711u);
  answer = Pin();
  EXPECT_EQ(domain_.end(), GASNET_OK);
}

class ForkedRegistrar : public OwnRegistrar {
 public:
  std::atomic<int> forgotten{0};
  void forget_in_child() noexcept override { ++forgotten; }
};

TEST_F(PinCacheCppCallbacks, ChildForgetsTheParentsPins) {
  ForkedRegistrar registrar;
  options_.registrar = &registrar;
  create();
  Pin held = pin(0);
  EXPECT_EQ(run_in_child([&]() -> std::string {
              if (registrar.forgotten != 1) return "not told to forget";
              return held.release() == GASNET_ERR_NOT_INIT ? "" : "released the parent's hold";
            }),
            "");
  EXPECT_EQ(registrar.forgotten, 0);
  EXPECT_EQ(held.release(), GASNET_OK);
  EXPECT_EQ(domain_.end(), GASNET_OK);
}

}  // namespace
}  // namespace hydrant::testing
