// The policies that ship, each alone: admission, and the estimate of a registration's cost.
#include "firehose/cache/policy/cache_policies.hpp"
#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace hydrant::testing {
namespace {

TEST(AdmitEveryRequest, KeepsRequestsAtAnyPriceAndMoreWhileThereAreBytes) {
  AdmitEveryRequest policy;
  const MemoryRange range{kPage, kPage};
  for (const uint64_t lack : {uint64_t{0}, uint64_t{kPage}}) {
    for (const uint32_t regions : {0u, 1u}) {
      AdmissionPolicy::Candidate candidate{.range = range,
                                           .request = range,
                                           .charge = kPage,
                                           .lack_bytes = lack,
                                           .lack_regions = regions};
      EXPECT_EQ(policy.decide(candidate), Admission::kKeep);
      candidate.is_beyond_need = true;
      EXPECT_EQ(policy.decide(candidate),
                lack == 0 ? Admission::kKeep : Admission::kKeepInFreeRoom);
    }
  }
}

TEST(HintedCost, IsABaseAndAPriceForEachFurtherPage) {
  RegistrarTraits traits;
  traits.pin_base_ns = 900;
  traits.pin_page_ns = 30;
  traits.unpin_base_ns = 400;
  const HintedCost cost(traits, kPage);
  EXPECT_EQ(cost.estimate_ns(0), 1300u);
  EXPECT_EQ(cost.estimate_ns(1), 1300u);
  EXPECT_EQ(cost.estimate_ns(kPage), 1300u);
  EXPECT_EQ(cost.estimate_ns(kPage + 1), 1330u);
  EXPECT_EQ(cost.estimate_ns(100 * kPage), 1300u + 99 * 30);
}

TEST(HintedCost, IsZeroWithoutHintsAndDoesNotWrap) {
  RegistrarTraits traits;
  EXPECT_EQ(HintedCost(traits, kPage).estimate_ns(kMiB), 0u);
  traits.pin_page_ns = UINT32_MAX;
  EXPECT_EQ(HintedCost(traits, kPage).estimate_ns(SIZE_MAX), UINT64_MAX);
}

TEST(CachePolicies, CompleteKeepsWhatIsThere) {
  class KeepNothing final : public AdmissionPolicy {
    Admission decide(const Candidate&) noexcept override { return Admission::kUseOnce; }
  };
  CachePolicies policies;
  policies.admission = std::make_unique<KeepNothing>();
  const AdmissionPolicy* const mine = policies.admission.get();
  ASSERT_TRUE(policies.complete({}, 8));
  EXPECT_EQ(policies.admission.get(), mine);
  EXPECT_NE(policies.replacement, nullptr);
  EXPECT_NE(policies.cost, nullptr);
}

}  // namespace
}  // namespace hydrant::testing
