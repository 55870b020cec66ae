#include "firehose/base/config/knobs.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/memory_range.hpp"
#include "rdma/config/job_knobs.hpp"
#include "tests/unit/firehose/base/knob_rows.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace hydrant {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

class ConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kWarning);
    reset_config_warnings();
  }
  void TearDown() override { reset_log_level(); }
};

TEST_F(ConfigTest, RowsAreCompleteDocumentedAndReadBack) {
  expect_good_rows(HYDRANT_SOURCE_DIR "/docs/env_vars.md");
}

TEST_F(ConfigTest, UnsetVariableGivesTheDefault) {
  const ScopedEnv env("FIREHOSE_MERGE", nullptr);
  const KnobValue value = read_knob(Knob::kMerge);
  EXPECT_EQ(value.number, 16U << 20);
  EXPECT_EQ(value.origin, KnobOrigin::kDefault);
}

TEST_F(ConfigTest, EmptyVariableCountsAsUnset) {
  const ScopedEnv env("FIREHOSE_MERGE", "");
  CaptureStderr();
  EXPECT_EQ(read_knob(Knob::kMerge).origin, KnobOrigin::kDefault);
  EXPECT_THAT(GetCapturedStderr(), IsEmpty());
}

TEST_F(ConfigTest, SetVariableGivesItsValueAndOrigin) {
  const ScopedEnv env("FIREHOSE_BUDGET", "0.5G");
  const KnobValue value = read_knob(Knob::kBudget);
  EXPECT_EQ(value.number, uint64_t{1} << 29);
  EXPECT_EQ(value.origin, KnobOrigin::kEnvironment);
  EXPECT_STREQ(knob_origin_name(value.origin), "environment");
}

TEST_F(ConfigTest, EnvironmentIsReadAgainEachTime) {
  const ScopedEnv first("FIREHOSE_MAX_REGIONS", "10");
  EXPECT_EQ(knob_number(Knob::kMaxRegions), 10U);
  const ScopedEnv second("FIREHOSE_MAX_REGIONS", "20");
  EXPECT_EQ(knob_number(Knob::kMaxRegions), 20U);
}

TEST_F(ConfigTest, GasnetSizesAreMebibytes) {
  const ScopedEnv m("GASNET_FIREHOSE_M", "64");
  EXPECT_EQ(knob_number(Knob::kGasnetM), uint64_t{64} << 20);
  const ScopedEnv victim("GASNET_FIREHOSE_MAXVICTIM_M", "64K");
  EXPECT_EQ(knob_number(Knob::kGasnetMaxVictimM), uint64_t{64} << 10);
}

TEST_F(ConfigTest, ChoicesGiveTheirName) {
  const ScopedEnv env("FIREHOSE_REGISTRAR", "MLOCK");
  EXPECT_EQ(knob_number(Knob::kRegistrar), 2U);
  EXPECT_EQ(knob_choice(Knob::kRegistrar), "mlock");
}

TEST_F(ConfigTest, EagerAccessIsTheBitsOfAccess) {
  const ScopedEnv env("FIREHOSE_EAGER_ACCESS", "local_write,remote_atomic");
  EXPECT_EQ(knob_number(Knob::kEagerAccess), bits(Access::kLocalWrite | Access::kRemoteAtomic));
  const ScopedEnv all("FIREHOSE_EAGER_ACCESS", "all");
  EXPECT_EQ(knob_number(Knob::kEagerAccess), bits(Access::kAll));
}

TEST_F(ConfigTest, WaitWarnIsNanoseconds) {
  const ScopedEnv unset("FIREHOSE_WAIT_WARN", nullptr);
  EXPECT_EQ(knob_number(Knob::kWaitWarn), 10'000'000'000U);
  const ScopedEnv never("FIREHOSE_WAIT_WARN", "never");
  EXPECT_EQ(knob_number(Knob::kWaitWarn), 0U);
}

TEST_F(ConfigTest, BadValueWarnsOnceAndGivesTheDefault) {
  const ScopedEnv env("FIREHOSE_MODE", "pages");
  CaptureStderr();
  EXPECT_EQ(knob_choice(Knob::kMode), "region");
  EXPECT_EQ(read_knob(Knob::kMode).origin, KnobOrigin::kDefault);
  EXPECT_EQ(
      GetCapturedStderr(),
      "hydrant: warning: FIREHOSE_MODE=\"pages\" is not accepted: it takes one of region|page; "
      "using region\n");
}

TEST_F(ConfigTest, BadLogLevelIsReportedAtTheDefaultLevel) {
  const ScopedEnv env("HYDRANT_LOG", "loud");
  reset_log_level();
  CaptureStderr();
  EXPECT_EQ(log_level(), LogLevel::kWarning);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("HYDRANT_LOG=\"loud\" is not accepted"));
}

struct BadText {
  Knob knob;
  const char* text;
  const char* expected;
};

TEST_F(ConfigTest, ErrorNamesVariableValueAndAcceptedForms) {
  const BadText cases[] = {
      {Knob::kBudget, "lots",
       "FIREHOSE_BUDGET=\"lots\" is not accepted: it takes a size from 0 to 131072T"},
      {Knob::kBudget, "-1", "a plain number is in bytes"},
      {Knob::kGasnetM, "1.5.2", "a plain number is in MiB"},
      {Knob::kMaxRegions, "0", "a whole number from 1 to 4194304"},
      {Knob::kMaxRegions, "4194305", "a whole number from 1 to 4194304"},
      {Knob::kBucket, "12K", "a power of two from 0 to 1G"},
      {Knob::kThreadTable, "1", "a size from 8K to 1G"},
      {Knob::kWaitWarn, "soon", "a time from 0 to 24h"},
      {Knob::kEagerAccess, "write", "none, all, or some of local_write|remote_read"},
      {Knob::kGasnetVerbose, "2", "y, yes, 1, true, on or n"},
  };
  for (const BadText& bad : cases) {
    uint64_t value = 77;
    EXPECT_EQ(parse_knob(bad.knob, bad.text, &value), Status::kBadArg) << bad.text;
    EXPECT_THAT(last_error_text(), HasSubstr(bad.expected));
    EXPECT_EQ(value, 77U);
  }
}

TEST_F(ConfigTest, OverlongTextIsQuotedInPart) {
  uint64_t value = 0;
  EXPECT_EQ(parse_knob(Knob::kMode, std::string(4000, 'z').c_str(), &value), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("one of region|page"));
}

TEST_F(ConfigTest, UnknownNamesAreReportedOncePerProcess) {
  const ScopedEnv typo("FIREHOSE_BUGDET", "1G");
  CaptureStderr();
  read_knob(Knob::kBudget);
  read_knob(Knob::kBudget);
  EXPECT_EQ(
      GetCapturedStderr(),
      "hydrant: warning: environment variable FIREHOSE_BUGDET is unknown and ignored; did you mean "
      "FIREHOSE_BUDGET?\n");
}

TEST_F(ConfigTest, FirstRankReportsUnknownNames) {
  const ScopedEnv typo("FIREHOSE_BUGDET", "1G");
  for (const char* rank : {"1", "17"}) {
    const ScopedEnv launcher("PMIX_RANK", rank);
    reset_config_warnings();
    CaptureStderr();
    read_knob(Knob::kMode);
    EXPECT_THAT(GetCapturedStderr(), IsEmpty()) << rank;
  }
  const ScopedEnv launcher("PMIX_RANK", "0");
  reset_config_warnings();
  CaptureStderr();
  read_knob(Knob::kMode);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("FIREHOSE_BUGDET is unknown"));
}

TEST_F(ConfigTest, FirstRankReportsInvalidValues) {
  const ScopedEnv bad("FIREHOSE_MODE", "pages");
  for (const char* rank : {"1", "17"}) {
    const ScopedEnv launcher("PMIX_RANK", rank);
    reset_config_warnings();
    CaptureStderr();
    EXPECT_EQ(knob_choice(Knob::kMode), "region");
    EXPECT_THAT(GetCapturedStderr(), IsEmpty()) << rank;
    CaptureStderr();
    warn_of_rejected(knob_info(Knob::kMode));
    EXPECT_THAT(GetCapturedStderr(), HasSubstr("FIREHOSE_MODE=\"pages\" is not accepted"));
  }
  const ScopedEnv launcher("PMIX_RANK", "0");
  reset_config_warnings();
  CaptureStderr();
  read_knob(Knob::kMode);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("FIREHOSE_MODE=\"pages\" is not accepted"));
}

// Invalid values are reported at startup, also those of knobs that are read late or never.
TEST_F(ConfigTest, BadValuesAreReportedWhenAnyKnobIsRead) {
  const ScopedEnv choice("FIREHOSE_WATCH", "maybe");
  const ScopedEnv size("FIREHOSE_BUDGET", "lots");
  CaptureStderr();
  read_knob(Knob::kMode);
  EXPECT_THAT(GetCapturedStderr(), AllOf(HasSubstr("FIREHOSE_WATCH=\"maybe\" is not accepted"),
                                         HasSubstr("FIREHOSE_BUDGET=\"lots\" is not accepted")));
  CaptureStderr();
  read_knob(Knob::kWatch);
  read_knob(Knob::kBudget);
  EXPECT_THAT(GetCapturedStderr(), IsEmpty()) << "once";
}

TEST_F(ConfigTest, UnknownNameFarFromAnyKnobGetsNoSuggestion) {
  const ScopedEnv far("FIREHOSE_QWERTZUIOP", "1");
  CaptureStderr();
  EXPECT_EQ(warn_unknown_names(), 1U);
  const std::string text = GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("FIREHOSE_QWERTZUIOP"));
  EXPECT_THAT(text, HasSubstr("hydrant-info lists the known ones"));
  EXPECT_THAT(text, Not(HasSubstr("did you mean")));
}

// libhydrant, which has most of these names, is not in this program.
TEST_F(ConfigTest, NamesOfALibraryThatIsNotLoadedAreReportedIfAKnownOneIsNear) {
  const ScopedEnv other("HYDRANT_TRANSPORT", "ibv");
  const ScopedEnv wrong("HYDRANT_BUDGET", "1G");
  CaptureStderr();
  EXPECT_EQ(warn_unknown_names(), 1U);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("did you mean FIREHOSE_BUDGET"));
}

TEST_F(ConfigTest, OtherPrefixesAreIgnored) {
  const ScopedEnv test("HYDRANT_TEST_SEED", "1");
  const ScopedEnv bench("HYDRANT_BENCH_X", "1");
  const ScopedEnv gasnet("GASNET_SPAWNFN", "L");
  const ScopedEnv tuning("GASNET_COLL_SCRATCH_SIZE", "2K");  // libhydrant's to report
  const ScopedEnv other("MY_FIREHOSE_BUDGET", "1");
  const ScopedEnv known("FIREHOSE_BUDGET", "1G");
  CaptureStderr();
  EXPECT_EQ(warn_unknown_names(), 0U);
  EXPECT_THAT(GetCapturedStderr(), IsEmpty());
}

TEST(NearestKnob, FindsTyposPrefixesAndTheWrongFamily) {
  EXPECT_STREQ(nearest_knob_name("FIREHOSE_BUGDET"), "FIREHOSE_BUDGET");
  EXPECT_STREQ(nearest_knob_name("HYDRANT_BUDGET"), "FIREHOSE_BUDGET");
  EXPECT_STREQ(nearest_knob_name("HYDRANT_LOG_LEVEL"), "HYDRANT_LOG");
  EXPECT_STREQ(nearest_knob_name("FIREHOSE_MAX_REGION"), "FIREHOSE_MAX_REGIONS");
  EXPECT_STREQ(nearest_knob_name("GASNET_FIREHOSE_MAX_VICTIM_M"), "GASNET_FIREHOSE_MAXVICTIM_M");
}

TEST(NearestKnob, NoSuggestionForAFarName) {
  EXPECT_EQ(nearest_knob_name("FIREHOSE_PASSPHRASE"), nullptr);
  EXPECT_EQ(nearest_knob_name("HYDRANT_"), nullptr);
  EXPECT_EQ(nearest_knob_name(""), nullptr);
}

}  // namespace
}  // namespace hydrant
