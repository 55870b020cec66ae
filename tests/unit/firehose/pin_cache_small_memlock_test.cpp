// An ordinary user with 64 KiB of memlock, the default of many machines: the default registrar serves
// what fits.
#include <hydrant/pin_cache.h>

#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

namespace hydrant::testing {
namespace {

constexpr uint64_t kSmallMemlock = 64 * 1024;
constexpr int kUses = 2000;
constexpr size_t kLargestUse = 8 * kPage;

std::string serve_an_ordinary_user() {
  if (std::string why = become_ordinary_user(kSmallMemlock); !why.empty()) return "SKIP: " + why;
  const Arena arena(512);
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.watch = HYDRANT_WATCH_CLIENT;
  options.registrar_name = "auto";
  hydrant_domain_t domain = 0;
  if (hydrant_domain_create(&options, &domain) != GASNET_OK) return hydrant_error_text();
  std::mt19937_64 random(5);
  int served = 0;
  bool late = false;  // the kernel gives charges back late: most have to wait for that
  for (int i = 0; i < kUses; ++i) {
    const size_t page = random() % 500;
    const hydrant_pin_t held =
        hydrant_pin(domain, arena.page(page), 1 + random() % kLargestUse, HYDRANT_LOCAL_WRITE);
    late = late || stats_of(domain).pending_bytes != 0;
    if (held.region == nullptr) continue;
    ++served;
    if (hydrant_release(held) != GASNET_OK) return hydrant_error_text();
  }
  const std::string last = hydrant_error_text();
  const hydrant_stats_t stats = stats_of(domain);
  if (hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN) != GASNET_OK) return "destroy";
  if (stats.budget_bytes >= kSmallMemlock) return "the whole limit is promised to pins";
  // Then what is served depends on how long this takes.
  const int least = late ? 1 : kUses * 9 / 10;
  return served >= least ? "" : "only " + std::to_string(served) + " were served: " + last;
}

std::string refuse_too_much(const char* registrar, uint64_t memlock) {
  if (std::string why = become_ordinary_user(memlock); !why.empty()) return "SKIP: " + why;
  const Arena arena(32);
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.watch = HYDRANT_WATCH_CLIENT;
  options.registrar_name = registrar;
  hydrant_domain_t domain = 0;
  if (hydrant_domain_create(&options, &domain) != GASNET_OK)
    return std::string("SKIP: ") + hydrant_error_text();
  const hydrant_pin_t refused =
      hydrant_pin(domain, arena.page(0), 2 * kSmallMemlock, HYDRANT_LOCAL_WRITE);
  const std::string text = hydrant_error_text();
  if (refused.region != nullptr) return "not refused";
  if (hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN) != GASNET_OK) return "destroy";
  const std::string limit = "RLIMIT_MEMLOCK, which is " + std::to_string(memlock) + " bytes";
  const bool is_right =
      text.find(limit) != std::string::npos && text.find("FIREHOSE_BUDGET") == std::string::npos;
  return is_right ? "" : text;
}

class PinCacheSmallMemlockText : public ::testing::TestWithParam<const char*> {};

TEST_P(PinCacheSmallMemlockText, NamesTheLimitFromWhichTheBudgetFollows) {
  const std::string result =
      run_in_child([] { return refuse_too_much(GetParam(), kSmallMemlock); });
  if (result.rfind("SKIP: ", 0) == 0) GTEST_SKIP() << result.substr(6);
  EXPECT_EQ(result, "");
}

INSTANTIATE_TEST_SUITE_P(Registrars, PinCacheSmallMemlockText, ::testing::Values("uring", "mlock"),
                         [](const auto& registrar) { return std::string(registrar.param); });

// 7/8 of the limit is less than a page, and the budget is a page. A ring of "uring" does not fit into one.
TEST(PinCacheSmallMemlock, MlockNamesALimitOfOnePage) {
  const std::string result = run_in_child([] { return refuse_too_much("mlock", kPage); });
  if (result.rfind("SKIP: ", 0) == 0) GTEST_SKIP() << result.substr(6);
  EXPECT_EQ(result, "");
}

TEST(PinCacheSmallMemlock, DefaultRegistrarServesWhatFits) {
  const std::string result = run_in_child(serve_an_ordinary_user);
  if (result.rfind("SKIP: ", 0) == 0) GTEST_SKIP() << result.substr(6);
  EXPECT_EQ(result, "");
}

}  // namespace
}  // namespace hydrant::testing
