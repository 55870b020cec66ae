#include "tests/unit/firehose/pin_cache_test_util.hpp"

namespace hydrant::testing {

hydrant_domain_options_t options_for(const RecordingRegistrar& registrar) {
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.watch = HYDRANT_WATCH_CLIENT;
  options.name = "test";
  options.registrar_name = nullptr;
  options.registrar = &registrar.table;
  options.budget_bytes = 64 * kMiB;
  options.max_regions = 4096;
  return options;
}

hydrant_stats_t stats_of(hydrant_domain_t domain) {
  hydrant_stats_t stats{};
  stats.size = sizeof stats;
  EXPECT_EQ(hydrant_get_stats(domain, &stats), GASNET_OK);
  return stats;
}

::testing::AssertionResult has_text() {
  if (hydrant_error_text()[0] != '\0') return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "the error text is empty";
}

void PinCacheTest::create(const hydrant_domain_options_t& options) {
  ASSERT_EQ(hydrant_domain_create(&options, &domain_), GASNET_OK) << hydrant_error_text();
}

void PinCacheTest::create_with_budget(uint64_t pages, uint64_t merge_bytes) {
  hydrant_domain_options_t options = options_for(registrar_);
  options.budget_bytes = pages * kPage;
  options.merge_bytes = merge_bytes;
  create(options);
}

void PinCacheTest::destroy() {
  if (domain_ == 0) return;
  EXPECT_EQ(stats_of(domain_).live_holds, 0u) << "the test leaked a hold";
  EXPECT_EQ(hydrant_domain_destroy(domain_, HYDRANT_FINI_UNPIN), GASNET_OK);
  domain_ = 0;
  EXPECT_EQ(registrar_.live(), 0u);
}

std::string failure_text(const char* what, int status) {
  return std::string(what) + ": " + hydrant_status_name(status) + ": " + hydrant_error_text();
}

std::string mode_name(const ::testing::TestParamInfo<uint32_t>& mode) {
  return mode.param == HYDRANT_MODE_REGION ? "Region" : "Page";
}

void PinCacheTest::TearDown() {
  destroy();
  EXPECT_EQ(registrar_.live(), 0u);
  EXPECT_EQ(registrar_.problems(), "");
}

bool PinCacheTest::is_cached(size_t page, size_t pages) {
  const hydrant_pin_t held = try_pin(page, pages, HYDRANT_LOCAL_READ);
  if (held.region == nullptr) return false;
  EXPECT_EQ(hydrant_release(held), GASNET_OK);
  return true;
}

}  // namespace hydrant::testing
