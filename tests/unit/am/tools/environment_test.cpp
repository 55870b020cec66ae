#define GASNETT_THREAD_SAFE 1
#include "am/tools/job_hooks.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <gasnet_tools.h>
#include <string>

namespace {

class Environment : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override {
    hydrant::set_tools_job(nullptr);
    gasnett_unsetenv("GASNET_VERBOSEENV");
    gasnett_unsetenv("GASNET_TOOLS_TEST");
  }
  static void set(const char* value) { gasnett_setenv("GASNET_TOOLS_TEST", value); }

  // Returns what `body` writes to standard error.
  template <typename Body>
  static std::string written_by(Body body) {
    ::testing::internal::CaptureStderr();
    body();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(Environment, SetAndUnset) {
  EXPECT_EQ(gasnett_getenv("GASNET_TOOLS_TEST"), nullptr);
  set("a");
  set("b");
  EXPECT_STREQ(gasnett_getenv("GASNET_TOOLS_TEST"), "b");
  gasnett_unsetenv("GASNET_TOOLS_TEST");
  EXPECT_STREQ(gasnett_getenv_withdefault("GASNET_TOOLS_TEST", "otherwise"), "otherwise");
  EXPECT_EQ(gasnett_getenv_withdefault("GASNET_TOOLS_TEST", nullptr), nullptr);
}

TEST_F(Environment, YesAndNo) {
  for (const char* yes : {"y", "Y", "yes", "YES", "1"}) {
    set(yes);
    EXPECT_EQ(gasnett_getenv_yesno_withdefault("GASNET_TOOLS_TEST", 0), 1) << yes;
  }
  for (const char* no : {"n", "N", "no", "NO", "0"}) {
    set(no);
    EXPECT_EQ(gasnett_getenv_yesno_withdefault("GASNET_TOOLS_TEST", 1), 0) << no;
  }
  gasnett_unsetenv("GASNET_TOOLS_TEST");
  EXPECT_EQ(gasnett_getenv_yesno_withdefault("GASNET_TOOLS_TEST", 1), 1);
}

TEST_F(Environment, NeitherYesNorNoEndsTheProgram) {
  set("perhaps");
  EXPECT_EXIT((void)gasnett_getenv_yesno_withdefault("GASNET_TOOLS_TEST", 1),
              ::testing::KilledBySignal(SIGABRT),
              "FATAL ERROR: GASNET_TOOLS_TEST=perhaps: invalid value");
}

TEST_F(Environment, Integers) {
  EXPECT_EQ(gasnett_getenv_int_withdefault("GASNET_TOOLS_TEST", -3, 0), -3);
  set("4 MB");
  EXPECT_EQ(gasnett_getenv_int_withdefault("GASNET_TOOLS_TEST", -3, 1), 4 << 20);
}

TEST_F(Environment, TextAfterANumberCausesOneWarning) {
  set("12 monkeys");
  const auto ask = [] { EXPECT_EQ(gasnett_getenv_int_withdefault("GASNET_TOOLS_TEST", 1, 0), 12); };
  EXPECT_NE(written_by(ask).find("WARNING: GASNET_TOOLS_TEST=12 monkeys: 'monkeys'"),
            std::string::npos);
  EXPECT_EQ(written_by(ask), "");
}

TEST_F(Environment, Doubles) {
  EXPECT_DOUBLE_EQ(gasnett_getenv_dbl_withdefault("GASNET_TOOLS_TEST", 0.5), 0.5);
  set("3/8");
  EXPECT_DOUBLE_EQ(gasnett_getenv_dbl_withdefault("GASNET_TOOLS_TEST", 0.5), 0.375);
  set("half");
  EXPECT_EXIT((void)gasnett_getenv_dbl_withdefault("GASNET_TOOLS_TEST", 0),
              ::testing::KilledBySignal(SIGABRT), "GASNET_TOOLS_TEST=half: neither a number");
}

TEST_F(Environment, DisplaysNothingByDefault) {
  EXPECT_FALSE(gasnett_verboseenv());
  EXPECT_EQ(written_by([] {
              gasnett_envstr_display("GASNET_QUIET", "x", 0);
              gasnett_envint_display("GASNET_QUIET", 1, 1, 1);
              gasnett_envdbl_display("GASNET_QUIET", 1, 1);
            }),
            "");
}

TEST_F(Environment, EverySettingIsDisplayedOnce) {
  gasnett_setenv("GASNET_VERBOSEENV", "1");
  EXPECT_TRUE(gasnett_verboseenv());
  set("4 MB");
  const auto ask = [] { (void)gasnett_getenv_int_withdefault("GASNET_TOOLS_TEST", 1, 1); };
  EXPECT_EQ(written_by(ask), "ENV parameter: GASNET_TOOLS_TEST = 4 MB\n");
  EXPECT_EQ(written_by(ask), "");
  const std::string text = written_by([] {
    gasnett_envint_display("GASNET_SHOWN_DEFAULT", 2048, 1, 1);
    gasnett_envstr_display("GASNET_SHOWN_NULL", nullptr, 1);
    gasnett_envstr_display("GASNET_SHOWN_EMPTY", "", 0);
    gasnett_setenv("GASNET_SHOWN_DOUBLE", "1/4");
    EXPECT_DOUBLE_EQ(gasnett_getenv_dbl_withdefault("GASNET_SHOWN_DOUBLE", 0), 0.25);
    gasnett_unsetenv("GASNET_SHOWN_DOUBLE");
  });
  EXPECT_NE(text.find("GASNET_SHOWN_DEFAULT = 2 KB "), std::string::npos) << text;
  EXPECT_NE(text.find("(default)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("GASNET_SHOWN_NULL = *not set*"), std::string::npos) << text;
  EXPECT_NE(text.find("GASNET_SHOWN_EMPTY = *empty*\n"), std::string::npos) << text;
  EXPECT_NE(text.find("GASNET_SHOWN_DOUBLE = 1/4 (0.25)\n"), std::string::npos) << text;
}

int g_displays = -1;

TEST_F(Environment, JobSuppliesEnvironmentAndRank) {
  static constexpr hydrant::ToolsJob kJob{
      .get_environment = [](const char* name) noexcept -> char* {
        static char value[] = "the job's";
        return std::string(name) == "GASNET_TOOLS_TEST" ? value : nullptr;
      },
      .displays_environment = []() noexcept { return g_displays; },
      .rank = []() noexcept { return 3; }};
  hydrant::set_tools_job(&kJob);
  EXPECT_STREQ(gasnett_getenv("GASNET_TOOLS_TEST"), "the job's");
  EXPECT_EQ(gasnett_getenv("PATH"), nullptr);
  EXPECT_EQ(hydrant::tools_rank(), 3);
  // Queued while it is unknown whether this rank displays settings, then written with the next one.
  EXPECT_EQ(written_by([] { gasnett_envstr_display("GASNET_EARLY", "1", 0); }), "");
  g_displays = 1;
  EXPECT_EQ(written_by([] { gasnett_envstr_display("GASNET_LATE", "2", 0); }),
            "ENV parameter: GASNET_EARLY = 1\nENV parameter: GASNET_LATE = 2\n");
  g_displays = 0;
  EXPECT_EQ(written_by([] { gasnett_envstr_display("GASNET_ELSEWHERE", "2", 0); }), "");
  EXPECT_EXIT(
      {
        hydrant::set_tools_job(&kJob);
        gasnett_fatalerror_nopos("enough");
      },
      ::testing::KilledBySignal(SIGABRT), "FATAL ERROR \\(rank 3\\): enough");
}

}  // namespace
