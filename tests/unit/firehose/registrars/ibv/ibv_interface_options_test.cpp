// The options of the registrar of libfirehose_ibv, through the C functions that its clients call: flags,
// rights, and the limits and budgets of domains over it.
#include <hydrant/ibv_registrar.h>

#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/support/child_process.hpp"
#include "tests/unit/firehose/registrars/ibv/interface_fixture.hpp"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

namespace hydrant {
namespace {

using fake_verbs::Call;
using testing::become_ordinary_user;
using testing::IbvInterface;
using testing::kPage;
using testing::run_in_child;
using testing::text_has;

TEST_F(IbvInterface, OptionsAreFlagsOfEachRegistration) {
  own_device({.odp = true});
  const struct {
    uint32_t option;
    unsigned flag;
  } cases[] = {{0, 0},
               {HYDRANT_IBV_RELAXED_ORDERING, IBV_ACCESS_RELAXED_ORDERING},
               {HYDRANT_IBV_ON_DEMAND, IBV_ACCESS_ON_DEMAND}};
  for (const auto& one : cases) {
    const hydrant_domain_t domain = domain_over_pd(one.option);
    const hydrant_pin_t pin = pin_page(domain, 0, HYDRANT_REMOTE_READ);
    ASSERT_NE(pin.region, nullptr) << hydrant_error_text();
    EXPECT_EQ(fake_verbs::last_registration().access, one.flag | IBV_ACCESS_REMOTE_READ);
    EXPECT_EQ(hydrant_release(pin), GASNET_OK);
    end_domain();
  }
}

TEST_F(IbvInterface, HugePagesAreRegisteredWhole) {
  own_device();
  hydrant_ibv_options_t options = ibv_options();
  options.flags = HYDRANT_IBV_HUGE_PAGES;
  hydrant_registrar_t registrar;
  const int status = hydrant_ibv_registrar_create(pd_, &options, &registrar);
  if (status == HYDRANT_ERR_UNSUPPORTED) GTEST_SKIP() << hydrant_error_text();
  ASSERT_EQ(status, GASNET_OK);
  const size_t granule = registrar.granule_bytes;
  ASSERT_GT(granule, kPage);
  const hydrant_domain_t domain = domain_over(registrar);
  // The fake device registers any addresses.
  const auto* const inside = reinterpret_cast<const char*>(64 * granule + kPage);
  const hydrant_pin_t pin = hydrant_pin(domain, inside, kPage, HYDRANT_LOCAL_READ);
  ASSERT_NE(pin.region, nullptr) << hydrant_error_text();
  EXPECT_EQ(fake_verbs::last_registration().addr, 64 * granule);
  EXPECT_EQ(fake_verbs::last_registration().len, granule);
  EXPECT_EQ(fake_verbs::last_registration().access, unsigned{IBV_ACCESS_HUGETLB});
  EXPECT_EQ(hydrant_release(pin), GASNET_OK);
}

TEST_F(IbvInterface, OnDemandPagingNeedsADeviceThatHasIt) {
  own_device();
  hydrant_ibv_options_t options = ibv_options();
  options.flags = HYDRANT_IBV_ON_DEMAND;
  hydrant_registrar_t registrar;
  EXPECT_EQ(hydrant_ibv_registrar_create(pd_, &options, &registrar), HYDRANT_ERR_UNSUPPORTED);
  EXPECT_TRUE(text_has("on-demand paging")) << hydrant_error_text();
}

TEST_F(IbvInterface, RightsAreMappedBothWays) {
  EXPECT_EQ(hydrant_ibv_access_flags(HYDRANT_LOCAL_READ), 0u);
  EXPECT_EQ(hydrant_ibv_access_flags(HYDRANT_REMOTE_WRITE),
            unsigned{IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE});
  for (uint32_t access = 0; access <= HYDRANT_ACCESS_ALL; ++access) {
    const uint32_t rights = hydrant_ibv_access_rights(hydrant_ibv_access_flags(access));
    EXPECT_EQ(rights & access, access);
    EXPECT_EQ(rights & ~(access | HYDRANT_LOCAL_WRITE), 0u);
  }
}

TEST_F(IbvInterface, RightThatTheDeviceLacksIsRefused) {
  own_device({.atomics = false});
  const hydrant_domain_t domain = domain_over_pd();
  EXPECT_EQ(hydrant_pin_status(pin_page(domain, 0, HYDRANT_REMOTE_ATOMIC)), HYDRANT_ERR_REFUSED);
}

TEST_F(IbvInterface, FailureOfAnyRegistrationLosesNothing) {
  own_device();
  const hydrant_domain_t domain = domain_over_pd();
  for (const int error : {ENOMEM, EAGAIN, EFAULT, EPERM, EIO}) {
    for (uint64_t nth = 1; nth <= 4; ++nth) {
      fake_verbs::fail_call(Call::kRegMr, error, nth);
      for (size_t i = 0; i < 8; ++i) {
        const hydrant_pin_t pin = pin_page(domain, i);
        if (pin.region != nullptr) {
          EXPECT_EQ(hydrant_release(pin), GASNET_OK);
        } else {
          EXPECT_NE(std::string(hydrant_error_text()), "");
        }
      }
      // Also forgets refusals.
      ASSERT_EQ(hydrant_invalidate(domain, memory_, kBytes), GASNET_OK);
      ASSERT_GE(hydrant_poll(domain), 0);
      EXPECT_EQ(fake_verbs::live().mrs, 0u) << "errno " << error << ", call " << nth;
    }
  }
}

TEST_F(IbvInterface, DomainThatIsFullEvicts) {
  own_device({.max_mr = 4});
  const hydrant_domain_t domain = domain_over_pd();
  for (size_t i = 0; i < 32; ++i) {
    const hydrant_pin_t pin = pin_page(domain, i);
    ASSERT_NE(pin.region, nullptr) << hydrant_error_text();
    EXPECT_EQ(hydrant_release(pin), GASNET_OK);
    EXPECT_LE(fake_verbs::live().mrs, 4u);
  }
}

TEST_F(IbvInterface, ReservedBytesAreNotOfTheBudget) {
  own_device();
  hydrant_registrar_t all;
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, nullptr, &all), GASNET_OK);
  hydrant_ibv_options_t options = ibv_options();
  options.reserve_bytes = 1 << 20;
  hydrant_registrar_t rest;
  ASSERT_EQ(hydrant_ibv_registrar_create(pd_, &options, &rest), GASNET_OK);
  if (all.max_charge_bytes != UINT64_MAX) {
    EXPECT_EQ(rest.max_charge_bytes + (1 << 20), all.max_charge_bytes);
  } else {
    EXPECT_EQ(rest.max_charge_bytes, UINT64_MAX) << "no limit has no parts";
  }
  hydrant_ibv_registrar_destroy(&all);
  hydrant_ibv_registrar_destroy(&rest);
}

// A larger budget than the limit without the reserve would only be refused by the kernel.
TEST_F(IbvInterface, RefusedPinNamesTheLimitThatGivesTheBudget) {
  own_device();
  struct Case {
    uint64_t memlock, reserve;
    const char* limit;
  };
  for (const Case& c : {Case{kBytes, kBytes / 2, "max_charge_bytes = 131072 of registrar ibv"},
                        Case{kBytes, kBytes, "max_charge_bytes = 1 of registrar ibv"},
                        Case{kBytes, 0, "RLIMIT_MEMLOCK, which is 262144 bytes"},
                        Case{0, 0, "RLIMIT_MEMLOCK, which is 0 bytes"}}) {
    const std::string result = run_in_child([&]() -> std::string {
      if (std::string why = become_ordinary_user(c.memlock); !why.empty()) return "SKIP: " + why;
      hydrant_ibv_options_t options = ibv_options();
      options.reserve_bytes = c.reserve;
      hydrant_registrar_t registrar;
      if (hydrant_ibv_registrar_create(pd_, &options, &registrar) != GASNET_OK)
        return hydrant_error_text();
      const hydrant_domain_t domain = domain_over(registrar);
      if (hydrant_pin(domain, memory_, kBytes, HYDRANT_LOCAL_WRITE).region != nullptr)
        return "not refused";
      return text_has(c.limit) && !text_has("FIREHOSE_BUDGET") ? "" : hydrant_error_text();
    });
    if (result.rfind("SKIP: ", 0) == 0) GTEST_SKIP() << result.substr(6);
    EXPECT_EQ(result, "") << c.limit;
  }
}

// 0 would be no limit.
TEST_F(IbvInterface, ReserveOfTheWholeLimitLeavesABudgetOfOnePage) {
  own_device();
  const std::string result = run_in_child([&]() -> std::string {
    constexpr uint64_t kMemlock = 8 << 20;
    if (std::string why = become_ordinary_user(kMemlock); !why.empty()) return "SKIP: " + why;
    for (const uint64_t reserve : {kMemlock, 2 * kMemlock}) {
      hydrant_ibv_options_t options = ibv_options();
      options.reserve_bytes = reserve;
      hydrant_registrar_t registrar;
      if (hydrant_ibv_registrar_create(pd_, &options, &registrar) != GASNET_OK)
        return hydrant_error_text();
      hydrant_stats_t stats{};
      stats.size = sizeof stats;
      if (hydrant_get_stats(domain_over(registrar), &stats) != GASNET_OK)
        return hydrant_error_text();
      if (stats.budget_bytes != kPage) return std::to_string(stats.budget_bytes) + " bytes";
      end_domain();
    }
    return "";
  });
  if (result.rfind("SKIP: ", 0) == 0) GTEST_SKIP() << result.substr(6);
  EXPECT_EQ(result, "");
}

// The device faults pages in: nothing is charged to the limit.
TEST_F(IbvInterface, OnDemandPagingHasABudgetBeyondTheMemlockLimit) {
  own_device({.odp = true});
  const std::string result = run_in_child([&]() -> std::string {
    if (std::string why = become_ordinary_user(16 * kPage); !why.empty()) return "SKIP: " + why;
    const hydrant_domain_t domain = domain_over_pd(HYDRANT_IBV_ON_DEMAND);
    const hydrant_pin_t pin = hydrant_pin(domain, memory_, kBytes, HYDRANT_LOCAL_WRITE);
    return pin.region != nullptr ? "" : hydrant_error_text();
  });
  if (result.rfind("SKIP: ", 0) == 0) GTEST_SKIP() << result.substr(6);
  EXPECT_EQ(result, "");
}

}  // namespace
}  // namespace hydrant
