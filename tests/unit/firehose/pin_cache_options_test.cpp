// Options of a domain at its creation, and the error texts of options that are refused.
#include <hydrant/pin_cache.h>

#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace hydrant::testing {
namespace {

class PinCacheOptions : public PinCacheTest {
 protected:
  using Change = std::function<void(hydrant_domain_options_t&, hydrant_registrar_t&)>;

  // Creation with these options fails with `status`, sets an error text and leaves the handle unchanged.
  void expect_refused(int status, const Change& change) {
    ++refusals_;
    hydrant_registrar_t table = registrar_.table;
    hydrant_domain_options_t options = options_for(registrar_);
    options.registrar = &table;
    change(options, table);
    hydrant_domain_t domain = 4711;
    const int answer = hydrant_domain_create(&options, &domain);
    EXPECT_EQ(answer, status) << hydrant_status_name(answer) << ", refusal " << refusals_;
    EXPECT_TRUE(has_text());
    EXPECT_EQ(domain, answer == GASNET_OK ? domain : 4711u);
    EXPECT_EQ(registrar_.destroyed(), 0u) << "refusal " << refusals_;
    if (answer == GASNET_OK) (void)hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN);
  }

  int refusals_ = 0;  // which call of a test it was
};

TEST_F(PinCacheOptions, WrongEnumerationsAreBadArguments) {
  expect_refused(GASNET_ERR_BAD_ARG, [](auto& o, auto&) { o.mode = 3; });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto& o, auto&) { o.watch = 77; });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto& o, auto&) { o.eager_access = 16; });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto&, auto& r) { r.charge_scope = 99; });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto&, auto& r) { r.supported_access = 32; });
}

TEST_F(PinCacheOptions, DeviceAddressesAreUnsupported) {
  expect_refused(HYDRANT_ERR_UNSUPPORTED,
                 [](auto& o, auto&) { o.address_kind = HYDRANT_ADDRESS_DEVICE; });
  expect_refused(HYDRANT_ERR_UNSUPPORTED,
                 [](auto&, auto& r) { r.address_kind = HYDRANT_ADDRESS_DEVICE; });
  expect_refused(HYDRANT_ERR_UNSUPPORTED, [](auto& o, auto&) { o.address_kind = 5; });
}

TEST_F(PinCacheOptions, UnknownRegistrarIsUnsupported) {
  expect_refused(HYDRANT_ERR_UNSUPPORTED, [](auto& o, auto&) {
    o.registrar = nullptr;
    o.registrar_name = "nonesuch";
  });
}

TEST_F(PinCacheOptions, IncompleteRegistrarsAreBadArguments) {
  expect_refused(GASNET_ERR_BAD_ARG, [](auto&, auto& r) { r.size = 0; });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto&, auto& r) { r.size = 8; });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto&, auto& r) { r.pin = nullptr; });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto&, auto& r) { r.unpin = nullptr; });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto&, auto& r) { r.key_bytes = 4097; });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto&, auto& r) { r.granule_bytes = 5000; });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto&, auto& r) { r.divisible = 1; });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto&, auto& r) { r.export_bytes = 65537; });
}

TEST_F(PinCacheOptions, SizesThatCannotWorkAreBadArguments) {
  expect_refused(GASNET_ERR_BAD_ARG, [](auto& o, auto&) { o.size = 0; });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto& o, auto&) {
    o.mode = HYDRANT_MODE_PAGE;
    o.bucket_bytes = 3 * kPage;
  });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto& o, auto&) {
    o.mode = HYDRANT_MODE_PAGE;
    o.bucket_bytes = 16;
  });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto& o, auto&) { o.max_regions = (1u << 22) + 1; });
  expect_refused(GASNET_ERR_BAD_ARG, [](auto& o, auto&) { o.prepinned_count = 1; });
}

TEST_F(PinCacheOptions, RegistrarAndNameTogetherAreBadArguments) {
  expect_refused(GASNET_ERR_BAD_ARG, [](auto& o, auto&) { o.registrar_name = "mlock"; });
}

TEST_F(PinCacheOptions, SmallerStructsOfOlderCallersWork) {
  // As if compiled against a header that ended after mode, with rubbish behind.
  hydrant_domain_options_t options;
  std::memset(&options, 0x5a, sizeof options);
  const size_t old_size = offsetof(hydrant_domain_options_t, watch);
  hydrant_domain_options_init_sized(&options, old_size);
  EXPECT_EQ(options.size, old_size);
  EXPECT_EQ(reinterpret_cast<const unsigned char*>(&options)[sizeof options - 1], 0x5a)
      << "written beyond the caller's struct";
  options.name = "old";
  options.registrar_name = nullptr;
  options.registrar = &registrar_.table;
  create(options);
  const hydrant_pin_t held = pin(0, 3);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(check_hold(registrar_, held, arena_.addr(0), 3 * kPage, HYDRANT_LOCAL_WRITE), "");
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCacheOptions, SmallerRegistrarStructsWork) {
  registrar_.table.size = offsetof(hydrant_registrar_t, pin_async);
  create();
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCacheOptions, LargerStructsOfNewerCallersWorkWhileTheRestIsZero) {
  struct Newer {
    hydrant_domain_options_t known;
    uint64_t unknown[4];
  } newer{};
  newer.known = options_for(registrar_);
  newer.known.size = sizeof newer;
  hydrant_domain_t domain = 0;
  ASSERT_EQ(hydrant_domain_create(&newer.known, &domain), GASNET_OK) << hydrant_error_text();
  EXPECT_EQ(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN), GASNET_OK);
}

TEST_F(PinCacheOptions, StatsOfAnOlderCallerAreNotOverrun) {
  create();
  hydrant_stats_t stats;
  std::memset(&stats, 0x5a, sizeof stats);
  stats.size = offsetof(hydrant_stats_t, misses);
  EXPECT_EQ(hydrant_get_stats(domain_, &stats), GASNET_OK);
  EXPECT_EQ(stats.misses, 0x5a5a5a5a5a5a5a5aull);
  EXPECT_NE(stats.hits, 0x5a5a5a5a5a5a5a5aull);
}

TEST_F(PinCacheOptions, StatsOfANewerCallerEndWithZeros) {
  create();
  struct Newer {
    hydrant_stats_t known;
    uint64_t unknown[4];
  } newer;
  std::memset(&newer, 0x5a, sizeof newer);
  newer.known.size = sizeof newer;
  EXPECT_EQ(hydrant_get_stats(domain_, &newer.known), GASNET_OK);
  EXPECT_EQ(newer.known.size, sizeof newer);
  for (const uint64_t field : newer.unknown) EXPECT_EQ(field, 0u);
}

TEST_F(PinCacheOptions, StructsAreCopied) {
  std::string name = "a name that is longer than the thirty-one bytes that are kept of it";
  hydrant_registrar_t table = registrar_.table;
  table.name = name.c_str();
  hydrant_domain_options_t options = options_for(registrar_);
  options.registrar = &table;
  options.name = name.c_str();
  create(options);
  std::memset(&table, 0, sizeof table);
  std::memset(&options, 0, sizeof options);
  name.assign(name.size(), '?');
  EXPECT_EQ(std::string(hydrant_registrar_name(domain_)).find("a name"), 0u);
  EXPECT_LE(std::strlen(hydrant_registrar_name(domain_)), 31u);
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCacheOptions, RightsTheRegistrarLacksAreRefused) {
  registrar_.table.supported_access = HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_READ;
  create();
  EXPECT_EQ(hydrant_pin_status(pin(0, 1, HYDRANT_REMOTE_ATOMIC)), HYDRANT_ERR_REFUSED);
  EXPECT_TRUE(has_text());
  EXPECT_EQ(registrar_.pin_calls(), 0u);
  const hydrant_pin_t held = pin(0, 1, HYDRANT_LOCAL_WRITE | HYDRANT_REMOTE_READ);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
}

TEST_F(PinCacheOptions, KeepLeavesRegistrationsAlone) {
  create();
  const hydrant_pin_t held = pin(0);
  ASSERT_NE(held.region, nullptr);
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_KEEP), GASNET_OK);
  domain_ = 0;
  EXPECT_EQ(registrar_.unpins(), 0u);
  EXPECT_EQ(registrar_.live(), 1u);
  EXPECT_EQ(registrar_.destroyed(), 1u);
  registrar_.forget_all();
}

// Failures before any option is used, during the creation of the domain, and at its last step.
TEST_F(PinCacheOptions, FailedCreationDestroysNoClientObject) {
  static int ended = 0;
  ended = 0;
  hydrant_policy_t policy{};
  policy.size = sizeof policy;
  policy.insert = [](void*, uint32_t, size_t, uint64_t) {};
  policy.touch = policy.erase = [](void*, uint32_t) {};
  policy.watch = policy.evict = [](void*, uint32_t*, size_t) { return size_t{0}; };
  policy.destroy = [](void*) { ++ended; };
  const hydrant_range_t all{0, SIZE_MAX};
  expect_refused(GASNET_ERR_BAD_ARG, [&](auto& o, auto&) { o.policy = &policy, o.mode = 3; });
  expect_refused(GASNET_ERR_BAD_ARG,
                 [&](auto& o, auto&) { o.policy = &policy, o.budget_bytes = 1; });
  expect_refused(GASNET_ERR_BAD_ARG, [&](auto& o, auto&) {
    o.policy = &policy;
    o.prepinned = &all;
    o.prepinned_count = 1;
  });
  EXPECT_EQ(ended, 0);
  hydrant_domain_options_t options = options_for(registrar_);
  options.policy = &policy;
  create(options);
  destroy();
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(registrar_.destroyed(), 1u);
}

TEST_F(PinCacheOptions, DestroyWithUnknownFlagsIsBadArgument) {
  create();
  EXPECT_EQ(hydrant_domain_destroy(domain_, 2), GASNET_ERR_BAD_ARG);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK) << "the domain is still there";
}

// ---- key sizes ----

class PinCacheKeys : public PinCacheTest, public ::testing::WithParamInterface<uint32_t> {
 protected:
  PinCacheKeys() : PinCacheTest(GetParam()) {}
};

TEST_P(PinCacheKeys, KeysOfThisSizeArriveWhole) {
  for (const uint32_t mode : {HYDRANT_MODE_REGION, HYDRANT_MODE_PAGE}) {
    hydrant_domain_options_t options = options_for(registrar_);
    options.mode = mode;
    create(options);
    EXPECT_EQ(hydrant_key_bytes(domain_), GetParam());
    for (size_t i = 0; i < 200; i += 2) {
      const hydrant_pin_t held = pin(i, 2);
      ASSERT_NE(held.region, nullptr) << hydrant_error_text();
      EXPECT_EQ(check_hold(registrar_, held, arena_.addr(i), 2 * kPage, HYDRANT_LOCAL_WRITE), "");
      // In page mode this pin has two keys, and none of its own.
      const bool has_key = GetParam() != 0 && mode == HYDRANT_MODE_REGION;
      EXPECT_EQ(held.region->key != nullptr, has_key);
      ASSERT_EQ(hydrant_release(held), GASNET_OK);
    }
    destroy();
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, PinCacheKeys, ::testing::Values(0u, 8u, 12u, 256u, 4096u));

// ---- prepinned ranges ----

TEST_F(PinCacheOptions, PrepinnedRangesAreHitAndNeverUnpinned) {
  alignas(8) const uint64_t keys[] = {1001, 1002};
  const void* const key_list[] = {&keys[0], &keys[1]};
  const hydrant_range_t ranges[] = {{arena_.addr(0), 4 * kPage}, {arena_.addr(8), 4 * kPage}};
  hydrant_domain_options_t options = options_for(registrar_);
  options.prepinned = ranges;
  options.prepinned_keys = key_list;
  options.prepinned_count = 2;
  options.prepinned_access = HYDRANT_LOCAL_WRITE;
  create(options);
  const hydrant_pin_t held = pin(9, 2);
  ASSERT_NE(held.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(std::memcmp(held.region->key, &keys[1], sizeof keys[1]), 0);
  EXPECT_EQ(held.region->addr, arena_.addr(8));
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
  EXPECT_TRUE(is_cached(1, 3));
  EXPECT_EQ(registrar_.pin_calls(), 0u);
  EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  domain_ = 0;
  EXPECT_EQ(registrar_.unpins(), 0u) << "not ours to unpin";
}

// In region mode a range is one region, in page mode as many as it has buckets.
class PinCachePrepinned : public PinCacheOptions, public ::testing::WithParamInterface<uint32_t> {
 protected:
  void create_prepinned(const RecordingRegistrar& registrar, Arena& arena, size_t pages) {
    const void* const key_list[] = {&key_};
    const hydrant_range_t range{arena.addr(0), pages * kPage};
    hydrant_domain_options_t options = options_for(registrar);
    options.mode = GetParam();
    options.prepinned = &range;
    options.prepinned_keys = key_list;
    options.prepinned_count = 1;
    create(options);
  }
  bool has_clients_key(hydrant_pin_t pin) const {
    return pin.region != nullptr && std::memcmp(pin.region->key, &key_, sizeof key_) == 0;
  }
  const uint64_t key_ = 4711;
};

TEST_P(PinCachePrepinned, InvalidateAndFlushLeaveThemHeldOrNot) {
  create_prepinned(registrar_, arena_, 8);
  for (const bool is_held : {false, true}) {
    const hydrant_pin_t held = is_held ? pin(2, 1) : hydrant_pin_t{};
    EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(0), 8 * kPage), GASNET_OK);
    EXPECT_EQ(hydrant_invalidate(domain_, arena_.page(3), 1), GASNET_OK);
    EXPECT_EQ(hydrant_invalidate(domain_, nullptr, SIZE_MAX), GASNET_OK);
    EXPECT_EQ(hydrant_flush(domain_), GASNET_OK);
    for (const size_t page : {0u, 2u, 7u}) {
      const hydrant_pin_t again = pin(page, 1);
      EXPECT_TRUE(has_clients_key(again)) << page;
      EXPECT_EQ(hydrant_release(again), GASNET_OK);
    }
    if (is_held) {
      EXPECT_TRUE(has_clients_key(held));
      EXPECT_EQ(hydrant_release(held), GASNET_OK);
    }
  }
  EXPECT_EQ(registrar_.pin_calls(), 0u);
  EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  domain_ = 0;
  EXPECT_EQ(registrar_.unpins(), 0u);
}

// Invalidation forgets the domain's own regions, however many prepinned ones lie before and after them.
TEST_P(PinCachePrepinned, InvalidateForgetsTheirNeighbours) {
  constexpr size_t kMany = 1200;
  Arena arena(kMany + 8);
  RecordingRegistrar registrar(arena, 8);
  create_prepinned(registrar, arena, kMany);
  const auto pin_page = [&](size_t page) {
    return hydrant_pin(domain_, arena.page(page), kPage, HYDRANT_LOCAL_WRITE);
  };
  for (size_t page = kMany; page < kMany + 4; ++page) {
    EXPECT_EQ(hydrant_release(pin_page(page)), GASNET_OK);
  }
  EXPECT_EQ(hydrant_invalidate(domain_, arena.page(0), (kMany + 8) * kPage), GASNET_OK);
  for (size_t page = kMany; page < kMany + 4; ++page) {
    EXPECT_EQ(hydrant_try_pin(domain_, arena.page(page), kPage, HYDRANT_LOCAL_WRITE).region,
              nullptr);
  }
  for (size_t page = 0; page < kMany; page += 100) {
    const hydrant_pin_t hit = pin_page(page);
    EXPECT_TRUE(has_clients_key(hit));
    EXPECT_EQ(hydrant_release(hit), GASNET_OK);
  }
  EXPECT_EQ(hydrant_flush(domain_),
            GASNET_OK);  // unpins the regions that larger ones have replaced
  EXPECT_EQ(registrar.live(), 0u) << "and unpinned";
  destroy();
}

INSTANTIATE_TEST_SUITE_P(Modes, PinCachePrepinned,
                         ::testing::Values(HYDRANT_MODE_REGION, HYDRANT_MODE_PAGE));

}  // namespace
}  // namespace hydrant::testing
