// Pins and domains of the C++ interface: their holds, their release, their results.
#include "tests/support/threads.hpp"
#include "tests/unit/include/own_registrar.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

namespace hydrant::testing {
namespace {

using namespace std::chrono_literals;
using face::Domain;
using face::DomainOptions;
using face::Pin;

static_assert(!std::is_copy_constructible_v<Pin> && !std::is_copy_assignable_v<Pin> &&
              std::is_nothrow_move_constructible_v<Pin> && std::is_nothrow_move_assignable_v<Pin>);
static_assert(!std::is_copy_constructible_v<Domain> && !std::is_copy_assignable_v<Domain> &&
              std::is_nothrow_move_constructible_v<Domain> &&
              std::is_nothrow_move_assignable_v<Domain>);
static_assert(!std::is_convertible_v<Pin, bool> && !std::is_convertible_v<hydrant_pin_t, Pin> &&
              !std::is_convertible_v<Domain, bool>);

class PinCacheCpp : public ::testing::Test {
 protected:
  PinCacheCpp() {
    options_.registrar = &registrar_;
    options_.watch = HYDRANT_WATCH_CLIENT;
  }
  void create() {
    domain_ = Domain(options_);
    ASSERT_TRUE(domain_) << domain_.error();
  }
  Pin pin(size_t page, size_t pages = 1) const {
    return domain_.pin(arena_.page(page), pages * kPage, HYDRANT_LOCAL_WRITE);
  }
  uint64_t holds() const { return domain_.stats().live_holds; }
  // Room for so many pages: the registrar charges twice their length.
  void create_small(uint64_t pages) {
    options_.budget_bytes = 2 * pages * kPage;
    create();
  }

  Arena arena_{128};
  OwnRegistrar registrar_;
  DomainOptions options_;
  Domain domain_;
};

// Moves an object onto itself where the compiler cannot see it.
template <class T>
void move_to(T& to, T& from) {
  to = std::move(from);
}

TEST_F(PinCacheCpp, EmptyPinHoldsNothing) {
  Pin empty;
  EXPECT_FALSE(empty);
  EXPECT_EQ(empty.status(), GASNET_ERR_NOT_INIT);
  EXPECT_STRNE(empty.error(), "");
  EXPECT_EQ(empty.addr(), 0u);
  EXPECT_EQ(empty.len(), 0u);
  EXPECT_EQ(empty.key(), nullptr);
  EXPECT_EQ(empty.key_as<uint64_t>(), 0u);
  EXPECT_EQ(empty.parts(), 0u);
  EXPECT_EQ(empty.part(0).len, 0u);
  EXPECT_EQ(empty.release(), GASNET_OK);
  EXPECT_EQ(empty.get().region, nullptr);
}

TEST_F(PinCacheCpp, AllZeroCPinIsEmpty) {
  hydrant_set_error_text("an earlier error");
  const Pin empty(hydrant_pin_t{});
  EXPECT_FALSE(empty);
  EXPECT_EQ(empty.status(), GASNET_ERR_NOT_INIT);
  EXPECT_STREQ(empty.error(), Pin().error());
}

#ifndef NDEBUG
TEST_F(PinCacheCpp, TooLargeKeyIsAsserted) {
  struct TooLarge {
    char bytes[4096];
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in a forked child the pin would have no key
  create();
  const Pin held = pin(0);
  ASSERT_TRUE(held);
  EXPECT_EQ(hydrant_pin_key_bytes(held.get()), sizeof(uint64_t));
  EXPECT_EQ(hydrant_pin_key_bytes({}), 0u);
  EXPECT_DEATH((void)held.key_as<TooLarge>(), "smaller than T");
}
#endif

TEST_F(PinCacheCpp, PinHoldsUntilTheEndOfItsScope) {
  create();
  {
    const Pin held = domain_.pin(arena_.page(3) + 100, 50, HYDRANT_LOCAL_WRITE);
    ASSERT_TRUE(held) << held.error();
    EXPECT_EQ(held.status(), GASNET_OK);
    EXPECT_STREQ(held.error(), "");
    EXPECT_EQ(held.addr(), arena_.addr(3));
    EXPECT_EQ(held.len(), kPage);
    ASSERT_NE(held.key(), nullptr);
    EXPECT_EQ(held.key_as<uint64_t>(), 1u);
    EXPECT_EQ(held.parts(), 1u);
    EXPECT_EQ(held.part(0).addr, held.addr());
    EXPECT_EQ(held.get().region->addr, held.addr());
    EXPECT_EQ(holds(), 1u);
  }
  EXPECT_EQ(holds(), 0u);
  EXPECT_EQ(registrar_.unpins, 0u);  // cached
}

TEST_F(PinCacheCpp, MovedPinIsReleasedOnce) {
  create();
  Pin first = pin(0);
  Pin second(std::move(first));
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): that is the question
  EXPECT_EQ(first.status(), GASNET_ERR_NOT_INIT);
  EXPECT_TRUE(second);
  EXPECT_EQ(holds(), 1u);
  Pin other = pin(8);
  EXPECT_EQ(holds(), 2u);
  other = std::move(second);  // lets go of page 8
  EXPECT_EQ(holds(), 1u);
  EXPECT_EQ(other.addr(), arena_.addr(0));
  move_to(other, other);
  EXPECT_TRUE(other);
  EXPECT_EQ(holds(), 1u);
  EXPECT_EQ(other.release(), GASNET_OK);
  EXPECT_FALSE(other);
  EXPECT_EQ(other.release(), GASNET_OK);
  EXPECT_EQ(holds(), 0u);
}

TEST_F(PinCacheCpp, HoldsPassToAndFromTheCFunctions) {
  create();
  Pin held = pin(0);
  const hydrant_pin_t raw = held.detach();
  EXPECT_FALSE(held);
  ASSERT_NE(raw.region, nullptr);
  EXPECT_EQ(holds(), 1u);
  { const Pin again(raw); }
  EXPECT_EQ(holds(), 0u);
}

TEST_F(PinCacheCpp, RefusedPinHasAText) {
  create();
  registrar_.answer = HYDRANT_ERR_REFUSED;
  const Pin refused = pin(0);
  EXPECT_FALSE(refused);
  EXPECT_EQ(refused.status(), HYDRANT_ERR_REFUSED);
  EXPECT_STRNE(refused.error(), "");
  EXPECT_STREQ(refused.error(), hydrant_error_text());
  EXPECT_EQ(domain_.pin(arena_.page(0), 0, 0).status(), GASNET_ERR_BAD_ARG);
}

TEST_F(PinCacheCpp, PinMayOutliveItsDomain) {
  create();
  Pin scope_end = pin(0), released = pin(4), moved = pin(8);
  EXPECT_EQ(domain_.end(), GASNET_OK);
  EXPECT_EQ(registrar_.unpins, 3u);
  EXPECT_EQ(released.release(), GASNET_ERR_NOT_INIT);
  const Pin target = std::move(moved);
  EXPECT_TRUE(target);
}

TEST_F(PinCacheCpp, PageModeShowsTheParts) {
  options_.mode = HYDRANT_MODE_PAGE;
  create();
  const Pin span = pin(10, 3);
  ASSERT_TRUE(span) << span.error();
  EXPECT_EQ(span.len(), 3 * kPage);
  EXPECT_EQ(span.key(), nullptr);
  EXPECT_EQ(span.key_as<uint64_t>(), 0u);
  ASSERT_EQ(span.parts(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(span.part(i).addr, arena_.addr(10 + i));
    ASSERT_NE(span.part(i).key, nullptr);
  }
  EXPECT_EQ(span.part(3).addr, 0u);
  EXPECT_EQ(span.part(3).key, nullptr);
}

TEST_F(PinCacheCpp, CallsWithoutADomainReturnNotInit) {
  const Domain none;
  EXPECT_FALSE(none);
  EXPECT_EQ(none.status(), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.handle(), 0u);
  char byte = 0;
  std::vector<hydrant_range_t> range{{reinterpret_cast<uintptr_t>(&byte), 1}};
  EXPECT_EQ(none.pin(&byte, 1, 0).status(), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.try_pin(&byte, 1, 0).status(), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.pin_wait(&byte, 1, 0, 1ms).status(), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.partial_pin(&byte, 1, 0).status(), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.pin_many(range, 0).status, GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.pin_async(&byte, 1, 0, [](Pin) { ADD_FAILURE(); }), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.invalidate(&byte, 1), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.vouch(&byte, 1), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.unvouch(&byte, 1), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.poll(), -GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.flush(), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.import_key(&byte, 1, &byte), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.implicit_key(0, &byte), GASNET_ERR_NOT_INIT);
  EXPECT_EQ(none.stats().size, 0u);
  EXPECT_STREQ(none.registrar_name(), "");
  EXPECT_EQ(none.key_bytes(), 0u);
  EXPECT_EQ(Domain().end(), GASNET_OK);
}

TEST_F(PinCacheCpp, FailedCreationHasAText) {
  DomainOptions unknown;
  unknown.registrar_name = "sundial";
  const Domain none(unknown);
  EXPECT_FALSE(none);
  EXPECT_EQ(none.status(), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_NE(std::string(none.error()).find("sundial"), std::string::npos) << none.error();

  const hydrant_registrar_t c = registrar_.c_struct();
  options_.c_registrar = &c;
  EXPECT_EQ(Domain(options_).status(), GASNET_ERR_BAD_ARG);
  EXPECT_NE(std::string(hydrant_error_text()).find("c_registrar"), std::string::npos);
  options_.c_registrar = nullptr;
  options_.registrar_name = "mlock";
  EXPECT_EQ(Domain(options_).status(), GASNET_ERR_BAD_ARG);
}

TEST_F(PinCacheCpp, MovedDomainEndsOnce) {
  create();
  EXPECT_STREQ(domain_.error(), "");
  EXPECT_EQ(domain_.status(), GASNET_OK);
  const hydrant_domain_t handle = domain_.handle();
  {
    Domain second(std::move(domain_));
    EXPECT_FALSE(domain_);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(domain_.status(), GASNET_ERR_NOT_INIT);
    EXPECT_EQ(second.handle(), handle);
    move_to(second, second);
    EXPECT_TRUE(second);
    Domain third(options_);
    ASSERT_TRUE(third) << third.error();
    third = std::move(second);  // ends what it was
    EXPECT_EQ(registrar_.ends, 1u);
    EXPECT_EQ(third.handle(), handle);
  }
  EXPECT_EQ(registrar_.ends, 2u);
}

TEST_F(PinCacheCpp, EndReturnsItsStatusAndEmptiesTheHandle) {
  create();
  EXPECT_TRUE(pin(0));
  EXPECT_EQ(domain_.end(77), GASNET_ERR_BAD_ARG);
  EXPECT_TRUE(domain_);
  EXPECT_EQ(domain_.end(HYDRANT_FINI_KEEP), GASNET_OK);
  EXPECT_EQ(registrar_.unpins, 0u);
  EXPECT_FALSE(domain_);
  EXPECT_EQ(domain_.end(), GASNET_OK);
  EXPECT_EQ(registrar_.ends, 1u);
}

TEST_F(PinCacheCpp, OptionsReachTheCStruct) {
  const hydrant_registrar_t registrar{};
  const hydrant_policy_t policy{};
  const hydrant_range_t range{1, 2};
  const void* const key = &range;
  DomainOptions o;
  hydrant_domain_options_t c = o.c_struct();
  hydrant_domain_options_t initial;
  hydrant_domain_options_init(&initial);
  EXPECT_EQ(std::memcmp(&c, &initial, sizeof c), 0);
  o.name = "n";
  o.registrar_name = "r";
  o.c_registrar = &registrar;
  o.policy = &policy;
  o.mode = 1, o.watch = 2, o.address_kind = 3, o.eager_access = 4;
  o.budget_bytes = 5, o.max_regions = 6, o.max_region_bytes = 7, o.bucket_bytes = 8;
  o.merge_bytes = 9, o.prepinned = &range, o.prepinned_keys = &key;
  o.prepinned_count = 10, o.prepinned_access = 11, o.stream_bytes = 12;
  c = o.c_struct();
  EXPECT_EQ(c.size, sizeof c);
  EXPECT_STREQ(c.name, "n");
  EXPECT_STREQ(c.registrar_name, "r");
  EXPECT_EQ(c.registrar, &registrar);
  EXPECT_EQ(c.policy, &policy);
  EXPECT_TRUE(c.mode == 1 && c.watch == 2 && c.address_kind == 3 && c.eager_access == 4);
  EXPECT_TRUE(c.budget_bytes == 5 && c.max_regions == 6 && c.max_region_bytes == 7 &&
              c.bucket_bytes == 8 && c.merge_bytes == 9);
  EXPECT_TRUE(c.prepinned == &range && c.prepinned_keys == &key && c.prepinned_count == 10 &&
              c.prepinned_access == 11 && c.stream_bytes == 12);
}

TEST_F(PinCacheCpp, TryPinTakesOnlyCachedMemory) {
  create();
  EXPECT_EQ(domain_.try_pin(arena_.page(0), 1, 0).status(), GASNET_ERR_NOT_READY);
  EXPECT_TRUE(pin(0));
  EXPECT_TRUE(domain_.try_pin(arena_.page(0), 1, HYDRANT_LOCAL_WRITE));
  const Pin part = domain_.partial_pin(arena_.page(0), 64 * kPage, HYDRANT_LOCAL_WRITE);
  ASSERT_TRUE(part) << part.error();
  EXPECT_EQ(part.addr(), arena_.addr(0));
  EXPECT_EQ(domain_.partial_pin(arena_.page(64), kPage, 0).status(), GASNET_ERR_NOT_READY);
}

TEST_F(PinCacheCpp, PinWaitKeepsTheDeadlineInAnyUnit) {
  create_small(1);
  Pin held = pin(0);
  ASSERT_TRUE(held) << held.error();
  const auto wait = [&](auto timeout) {
    return domain_.pin_wait(arena_.page(64), kPage, HYDRANT_LOCAL_WRITE, timeout);
  };
  EXPECT_EQ(wait(0s).status(), GASNET_ERR_NOT_READY);
  EXPECT_EQ(wait(-5min).status(), GASNET_ERR_NOT_READY);
  EXPECT_EQ(wait(std::chrono::hours::min()).status(), GASNET_ERR_NOT_READY);
  EXPECT_EQ(wait(2000us).status(), GASNET_ERR_NOT_READY);
  EXPECT_EQ(wait(std::chrono::duration<float>(0.001f)).status(), GASNET_ERR_NOT_READY);
  EXPECT_NE(std::string(hydrant_error_text()), "");
  // As nanoseconds in 64 bits this duration would wrap to 0.
  Threads threads;
  threads.start([&] {
    std::this_thread::sleep_for(20ms);
    held = Pin();
  });
  EXPECT_TRUE(wait(std::chrono::hours(int64_t{1} << 51)));
  threads.join();
  EXPECT_TRUE(wait(kDeadline));
}

TEST_F(PinCacheCpp, PinManyIsAllOrNone) {
  create_small(4);
  std::vector<hydrant_range_t> ranges{
      {arena_.addr(0), kPage}, {arena_.addr(20), kPage}, {arena_.addr(40), kPage}};
  {
    const face::PinMany all = domain_.pin_many(ranges, HYDRANT_LOCAL_WRITE);
    ASSERT_TRUE(all) << hydrant_error_text();
    ASSERT_EQ(all.pins.size(), 3u);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(all.pins[i].addr(), ranges[i].addr);
    EXPECT_EQ(holds(), 3u);
  }
  EXPECT_EQ(holds(), 0u);
  const face::PinMany nothing = domain_.pin_many(nullptr, 0, 0);
  EXPECT_TRUE(nothing && nothing.pins.empty());
  ranges.insert(ranges.end(), {{arena_.addr(60), kPage}, {arena_.addr(80), kPage}});
  const face::PinMany none = domain_.pin_many(ranges.data(), ranges.size(), HYDRANT_LOCAL_WRITE);
  EXPECT_FALSE(none);
  EXPECT_EQ(none.status, GASNET_ERR_RESOURCE);
  EXPECT_TRUE(none.pins.empty());
  EXPECT_EQ(holds(), 0u);
}

TEST_F(PinCacheCpp, InvalidateVouchAndFlushReachTheDomain) {
  create();
  EXPECT_TRUE(pin(0));
  EXPECT_EQ(domain_.invalidate(arena_.page(0), kPage), GASNET_OK);
  EXPECT_EQ(registrar_.unpins, 1u);
  EXPECT_TRUE(pin(0));
  EXPECT_EQ(registrar_.pins, 2u);
  EXPECT_EQ(domain_.flush(), GASNET_OK);
  EXPECT_EQ(registrar_.unpins, 2u);
  EXPECT_EQ(domain_.poll(), 0);

  options_.watch = HYDRANT_WATCH_NONE;
  create();
  EXPECT_TRUE(pin(0));
  EXPECT_FALSE(domain_.try_pin(arena_.page(0), kPage, 0));
  EXPECT_EQ(domain_.vouch(arena_.page(0), kPage), GASNET_OK);
  EXPECT_TRUE(pin(0));
  EXPECT_TRUE(domain_.try_pin(arena_.page(0), kPage, 0));
  EXPECT_EQ(domain_.unvouch(arena_.page(0), kPage), GASNET_OK);
  EXPECT_TRUE(pin(0));
  EXPECT_FALSE(domain_.try_pin(arena_.page(0), kPage, 0));
}

TEST_F(PinCacheCpp, MovesBytesThroughAPinOfTheKernel) {
  create();
  const Pin own = pin(0);
  EXPECT_EQ(own.write_file(arena_.page(0), 10, 1, 0), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_EQ(own.read_file(arena_.page(0), 10, 0, 0), HYDRANT_ERR_UNSUPPORTED);

  DomainOptions options;
  options.registrar_name = "uring";
  const Domain uring(options);
  if (!uring) GTEST_SKIP() << "no io_uring here: " << uring.error();
  const Pin held = uring.pin_wait(arena_.page(0), 2 * kPage, HYDRANT_LOCAL_WRITE, kDeadline);
  ASSERT_TRUE(held) << held.error();
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::tmpfile(), &std::fclose);
  ASSERT_NE(file, nullptr);
  std::memcpy(arena_.page(0), "message", 8);
  EXPECT_EQ(held.write_file(arena_.page(0), 8, fileno(file.get()), 100), GASNET_OK)
      << hydrant_error_text();
  EXPECT_EQ(held.read_file(arena_.page(1), 8, fileno(file.get()), 100), GASNET_OK)
      << hydrant_error_text();
  EXPECT_EQ(std::memcmp(arena_.page(1), "message", 8), 0);
}

}  // namespace
}  // namespace hydrant::testing
