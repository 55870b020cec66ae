#include "firehose/cache/refusal_texts.hpp"

#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <gmock/gmock.h>

namespace hydrant {
namespace {

using ::testing::AllOf;
using testing::at;
using ::testing::HasSubstr;
using testing::kPage;
using ::testing::Not;

class RefusalTextsTest : public ::testing::Test {
 protected:
  RefusalTextsTest() {
    config_.budget_bytes = 64 * kPage;
    config_.max_regions = 8;
    config_.max_region_bytes = 16 * kPage;
  }
  DomainConfig config_;
  RegistrarTraits traits_;
  Mutex mu_;
  Budget budget_{{64 * kPage, 8}, kPage};
  RefusalTexts texts_{config_, traits_, 20};
};

TEST_F(RefusalTextsTest, EachNamesItsStatusItsRequestAndARemedy) {
  EXPECT_EQ(texts_.too_large(at(0, 17)), Status::kResource);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("65536 bytes"), HasSubstr("max_region_bytes")));
  EXPECT_EQ(texts_.beyond_budget(at(0), 3, 100 * kPage, 3), Status::kResource);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("3 ranges"), HasSubstr("FIREHOSE_BUDGET")));
  EXPECT_EQ(texts_.no_free_slot(at(0)), Status::kNotReady);
  EXPECT_THAT(last_error_text(), HasSubstr("all 20 are taken"));
  EXPECT_EQ(texts_.beyond_rights(at(0), Access::kRemoteAtomic), Status::kRefused);
  EXPECT_EQ(texts_.refused_recently(at(0), Access::kRemoteAtomic), Status::kRefused);
  EXPECT_EQ(texts_.being_registered(at(0)), Status::kNotReady);
  EXPECT_EQ(texts_.invalidated(at(0), 5), Status::kNotReady);
}

TEST_F(RefusalTextsTest, ShortageReportsHeldAndIdleBytes) {
  const CacheLock lock(mu_);
  budget_.take(lock, {50 * kPage, 5});
  const Shortage lack{at(0, 30), {30 * kPage, 1}, {10 * kPage, 1}, kPage};
  EXPECT_EQ(texts_.not_now(lock, budget_, lack), Status::kNotReady);
  EXPECT_THAT(last_error_text(),
              AllOf(HasSubstr("163840 and 4 are held"), HasSubstr("40960 and 1")));
}

// A larger budget than the memlock limit allows would only be refused by the kernel.
TEST_F(RefusalTextsTest, BudgetFromTheMemlockLimitNamesThatLimit) {
  config_.memlock_bytes = 262144;
  const auto names_memlock = AllOf(HasSubstr("RLIMIT_MEMLOCK, which is 262144 bytes"),
                                   HasSubstr("ulimit -l"), Not(HasSubstr("FIREHOSE_BUDGET")));
  EXPECT_EQ(texts_.beyond_budget(at(0), 3, 100 * kPage, 3), Status::kResource);
  EXPECT_THAT(last_error_text(), names_memlock);
  EXPECT_EQ(texts_.until_uncharged(at(0), kPage, kPage), Status::kNotReady);
  EXPECT_THAT(last_error_text(), names_memlock);
  const CacheLock lock(mu_);
  EXPECT_EQ(texts_.not_now(lock, budget_, {at(0, 30), {30 * kPage, 1}, {}, 0}), Status::kNotReady);
  EXPECT_THAT(last_error_text(), names_memlock);
}

// 0 is a limit, too.
TEST_F(RefusalTextsTest, MemlockLimitOfZeroIsNamed) {
  config_.memlock_bytes = 0;
  EXPECT_EQ(texts_.beyond_budget(at(0), 1, 2 * kPage, 1), Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("RLIMIT_MEMLOCK, which is 0 bytes"));
}

TEST_F(RefusalTextsTest, BudgetFromTheRegistrarNamesItsLimit) {
  traits_.name = "adapter";
  config_.registrar_bytes = 262144;
  EXPECT_EQ(texts_.beyond_budget(at(0), 3, 100 * kPage, 3), Status::kResource);
  const auto names_registrar =
      AllOf(HasSubstr("raise max_charge_bytes = 262144 of registrar adapter"),
            HasSubstr("RLIMIT_MEMLOCK less what is reserved"), HasSubstr("FIREHOSE_MAX_REGIONS"),
            Not(HasSubstr("FIREHOSE_BUDGET")));
  EXPECT_THAT(last_error_text(), names_registrar);
  const CacheLock lock(mu_);
  EXPECT_EQ(texts_.not_now(lock, budget_, {at(0, 30), {30 * kPage, 1}, {}, 0}), Status::kNotReady);
  EXPECT_THAT(last_error_text(), names_registrar);
}

}  // namespace
}  // namespace hydrant
