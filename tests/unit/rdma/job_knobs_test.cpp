// The table of libhydrant's knobs, beside libfirehose's.
#include "rdma/config/job_knobs.hpp"

#include "firehose/base/config/knobs.hpp"
#include "firehose/base/log.hpp"
#include "rdma/config/ignored_names.hpp"
#include "tests/unit/firehose/base/knob_rows.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

class JobKnobs : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kWarning);
    reset_config_warnings();
  }
  void TearDown() override { reset_log_level(); }
};

TEST_F(JobKnobs, RowsAreCompleteDocumentedAndReadBack) {
  size_t count = 0;
  for_each_knob([&](const KnobInfo&) { ++count; });
  EXPECT_EQ(count, static_cast<size_t>(Knob::kEnd) + static_cast<size_t>(JobKnob::kEnd));
  expect_good_rows(HYDRANT_SOURCE_DIR "/docs/env_vars.md");
}

TEST_F(JobKnobs, BadValuesOfBothTablesAreReportedWhenAnyKnobIsRead) {
  const ScopedEnv choice("HYDRANT_IBV_ODP", "maybe");
  const ScopedEnv size("FIREHOSE_BUDGET", "lots");
  CaptureStderr();
  read_knob(Knob::kMode);
  EXPECT_THAT(GetCapturedStderr(), AllOf(HasSubstr("HYDRANT_IBV_ODP=\"maybe\" is not accepted"),
                                         HasSubstr("FIREHOSE_BUDGET=\"lots\" is not accepted")));
  CaptureStderr();
  read_knob(JobKnob::kIbvOdp);
  read_knob(Knob::kBudget);
  EXPECT_THAT(GetCapturedStderr(), IsEmpty()) << "once";
}

TEST_F(JobKnobs, TimeSliceBeyondTheKernelsIsReported) {
  for (const char* accepted : {"0", "1us", "100ms"}) {
    const ScopedEnv slice("HYDRANT_TIME_SLICE", accepted);
    reset_config_warnings();
    CaptureStderr();
    read_knob(JobKnob::kTimeSlice);
    EXPECT_THAT(GetCapturedStderr(), IsEmpty()) << accepted;
  }
  const ScopedEnv slice("HYDRANT_TIME_SLICE", "1h");
  reset_config_warnings();
  CaptureStderr();
  EXPECT_EQ(read_knob(JobKnob::kTimeSlice).number, 100'000u);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("HYDRANT_TIME_SLICE=\"1h\" is not accepted"));
}

// A timeout of 0 is computed, or ends a wait at once: "never" would be its opposite.
TEST_F(JobKnobs, NeverIsRefusedWhereZeroDoesNotMeanNever) {
  for_each_knob([](const KnobInfo& info) {
    if (info.type != KnobType::kDuration) return;
    const bool is_never =
        std::string_view(info.effect).find("0 means never") != std::string_view::npos;
    uint64_t value = 7;
    EXPECT_EQ(parse_knob(info, "never", &value), is_never ? Status::kOk : Status::kBadArg)
        << info.name;
    EXPECT_EQ(value, is_never ? 0U : 7U) << info.name;
    char accepted[160];
    describe_accepted(info, accepted, sizeof accepted);
    EXPECT_EQ(std::string_view(accepted).ends_with(", never"), is_never) << accepted;
  });
  const ScopedEnv max("GASNET_EXITTIMEOUT_MAX", "never");
  CaptureStderr();
  EXPECT_EQ(knob_number(JobKnob::kGasnetExitTimeoutMax), uint64_t{20} * 1'000'000'000);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("GASNET_EXITTIMEOUT_MAX=\"never\" is not accepted"));
}

TEST_F(JobKnobs, UnknownNamesWithTheirPrefixAreReported) {
  const ScopedEnv far("HYDRANT_QWERTZUIOP", "1");
  const ScopedEnv near("HYDRANT_TRANSPROT", "ibv");
  CaptureStderr();
  EXPECT_EQ(warn_unknown_names(), 2U);
  EXPECT_THAT(GetCapturedStderr(),
              AllOf(HasSubstr("HYDRANT_QWERTZUIOP is unknown and ignored; hydrant-info lists"),
                    HasSubstr("did you mean HYDRANT_TRANSPORT?")));
}

// A program that brings its settings from GASNet can learn which of them do nothing here; by default nothing
// is printed, because a runtime sets such names itself.
TEST_F(JobKnobs, GasnetsNamesWithoutEffectAreReportedWithTheReason) {
  std::vector<std::unique_ptr<ScopedEnv>> all;
  for (const IgnoredName& ignored : ignored_gasnet_names()) {
    std::string name(ignored.name);
    if (name.ends_with('_')) name += "OF_A_FAMILY";
    all.push_back(std::make_unique<ScopedEnv>(name.c_str(), "1"));
  }
  const ScopedEnv honoured("GASNET_BARRIER", "SHM");
  const ScopedEnv of_a_client("GASNET_DUMMY", "1");
  CaptureStderr();
  EXPECT_EQ(warn_unknown_names(), all.size());
  EXPECT_EQ(GetCapturedStderr(), "");
  set_log_level(LogLevel::kInfo);
  CaptureStderr();
  (void)warn_unknown_names();
  set_log_level(LogLevel::kWarning);
  const std::string text = GetCapturedStderr();
  for (const IgnoredName& ignored : ignored_gasnet_names()) {
    std::string line = "environment variable " + std::string(ignored.name);
    if (ignored.name.ends_with('_')) line += "OF_A_FAMILY";
    line += std::string(" has no effect: ") + ignored.reason + "\n";
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, AllOf(Not(HasSubstr("GASNET_BARRIER ")), Not(HasSubstr("GASNET_DUMMY"))));
}

// No name of a family is one that has an effect.
TEST_F(JobKnobs, NoKnobIsIgnored) {
  size_t knobs = 0;
  for_each_knob([&](const KnobInfo& info) {
    ++knobs;
    for (const KnobTable* table = first_knob_table(); table != nullptr; table = table->next())
      EXPECT_EQ(table->why_ignored(info.name), nullptr) << info.name;
  });
  EXPECT_GT(knobs, 50u);
}

}  // namespace
}  // namespace hydrant
