// Fatal errors, backtraces, freezing and signals.
#define GASNETT_THREAD_SAFE 1
#define GASNET_DEBUG 1
#include "am/tools/rank_list.hpp"
#include "am/tools/settings.hpp"
#include "am/tools/signal_names.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <gasnet_tools.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern "C" volatile int hydrant_tools_frozen;

namespace {

std::atomic<bool> g_client_works{true};
int client_backtrace(int fd) {
  static constexpr char kText[] = "the client's own\n";
  if (!g_client_works) return 1;
  return write(fd, kText, sizeof kText - 1) > 0 ? 0 : 1;
}

}  // namespace

gasnett_backtrace_type_t gasnett_backtrace_user = {"CLIENT", &client_backtrace, 1};

namespace {

class Debugging : public ::testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    g_client_works = true;
  }
  void TearDown() override {
    for (const char* name : {"GASNET_BACKTRACE", "GASNET_BACKTRACE_TYPE", "GASNET_BACKTRACE_SIGNAL",
                             "GASNET_FREEZE_ON_ERROR"}) {
      unsetenv(name);
    }
  }
};

// Returns what print_backtrace() writes into a pipe.
std::string printed(int* answer) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  *answer = gasnett_print_backtrace(ends[1]);
  close(ends[1]);
  std::string text;
  char part[512];
  for (ssize_t len; (len = read(ends[0], part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(len));
  }
  close(ends[0]);
  return text;
}

TEST_F(Debugging, FatalErrorPrintsItsPosition) {
  EXPECT_EXIT(
      gasnett_fatalerror("%d is wrong", 17), ::testing::KilledBySignal(SIGABRT),
      "\\*\\*\\* FATAL ERROR: in .*TestBody\\(\\) at debugging_test.cpp:[0-9]+: 17 is wrong\n"
      ".*set GASNET_BACKTRACE=1");
  EXPECT_EXIT(gasnett_fatalerror_nopos("no %s", "place"), ::testing::KilledBySignal(SIGABRT),
              "\\*\\*\\* FATAL ERROR: no place\n");
}

TEST_F(Debugging, FatalErrorPrintsABacktraceOnRequest) {
  setenv("GASNET_BACKTRACE", "1", 1);
  EXPECT_EXIT(gasnett_fatalerror("x"), ::testing::KilledBySignal(SIGABRT),
              "FATAL ERROR.*\n.*#0 +0x[0-9a-f]+.*\n.*#1 ");
}

TEST_F(Debugging, LongMessagesAreCut) {
  const std::string longer(5000, 'x');
  EXPECT_EXIT(gasnett_fatalerror("%s", longer.c_str()), ::testing::KilledBySignal(SIGABRT),
              "xxxxx\n");
}

TEST_F(Debugging, AssumptionsAreChecked) {
  const int one = std::atoi("1");
  gasnett_assume(one == 1);
  EXPECT_EXIT(gasnett_assume(one == 2), ::testing::KilledBySignal(SIGABRT),
              "Assumption does not hold: one == 2");
  EXPECT_EXIT(gasnett_unreachable(), ::testing::KilledBySignal(SIGABRT), "gasnett_unreachable");
}

TEST_F(Debugging, KillMyProcessEndsAtOnce) {
  EXPECT_EXIT(
      {
        std::atexit([] { _exit(1); });
        gasnett_killmyprocess(7);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST_F(Debugging, CurrentLocation) {
  char* const text = gasnett_current_loc;
  EXPECT_NE(std::string(text).find("TestBody() at "), std::string::npos) << text;
  std::free(text);
}

TEST_F(Debugging, BacktraceNamesFramesAndFiles) {
  gasnett_backtrace_init(gasnett_exe_name());
  int answer = -1;
  const std::string text = printed(&answer);
  EXPECT_EQ(answer, 0);
  EXPECT_EQ(text.rfind("#0", 0), 0u) << text;
  EXPECT_NE(text.find("unit_am_tools"), std::string::npos) << text;
}

TEST_F(Debugging, ClientsMechanismIsUsedIfNamed) {
  setenv("GASNET_BACKTRACE_TYPE", "NONSENSE,client,EXECINFO", 1);
  int answer = -1;
  EXPECT_EQ(printed(&answer), "the client's own\n");
  EXPECT_EQ(answer, 0);
  g_client_works = false;
  EXPECT_EQ(printed(&answer).rfind("#0", 0), 0u) << "the next mechanism is tried";
  setenv("GASNET_BACKTRACE_TYPE", "CLIENT", 1);
  EXPECT_EQ(printed(&answer), "");
  EXPECT_NE(answer, 0) << "no mechanism worked";
}

TEST_F(Debugging, UnknownMechanismsCauseAWarning) {
  setenv("GASNET_BACKTRACE_TYPE", "PSTACK,CLIENT", 1);
  ::testing::internal::CaptureStderr();
  gasnett_backtrace_init("");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("unknown backtrace mechanism 'PSTACK'"), std::string::npos) << text;
  EXPECT_EQ(text.find("CLIENT"), std::string::npos) << text;
}

TEST_F(Debugging, BacktraceFunctionCanBeReplaced) {
  const auto before = gasnett_print_backtrace_ifenabled;
  EXPECT_NE(before(STDERR_FILENO), 0) << "not enabled";
  gasnett_print_backtrace_ifenabled = &client_backtrace;
  EXPECT_EXIT(
      {
        gasnett_print_backtrace_ifenabled = &client_backtrace;
        gasnett_fatalerror("x");
      },
      ::testing::KilledBySignal(SIGABRT), "the client's own");
  gasnett_print_backtrace_ifenabled = before;
}

TEST_F(Debugging, SignalPrintsABacktraceAndContinues) {
  setenv("GASNET_BACKTRACE_SIGNAL", "USR2", 1);
  EXPECT_EXIT(
      {
        gasnett_backtrace_init("");
        std::raise(SIGUSR2);
        std::exit(3);
      },
      ::testing::ExitedWithCode(3), "SIGUSR2: backtrace follows\n.*#0 ");
  setenv("GASNET_BACKTRACE_SIGNAL", "SIGNONE", 1);
  EXPECT_EXIT(
      {
        gasnett_backtrace_init("");
        std::exit(3);
      },
      ::testing::ExitedWithCode(3), "GASNET_BACKTRACE_SIGNAL=SIGNONE: invalid value");
}

TEST_F(Debugging, SwitchesAreThoseOfKnobs) {
  int answer = -1;
  for (const char* on : {"y", "Yes", "1", "true", "ON"}) {
    setenv("GASNET_BACKTRACE", on, 1);
    EXPECT_TRUE(hydrant::is_switched_on(on, false)) << on;
    ::testing::internal::CaptureStderr();
    answer = gasnett_print_backtrace_ifenabled(STDERR_FILENO);
    EXPECT_NE(::testing::internal::GetCapturedStderr(), "") << on;
    EXPECT_EQ(answer, 0) << on;
  }
  for (const char* off : {"n", "No", "0", "false", "OFF", "", "maybe"}) {
    setenv("GASNET_BACKTRACE", off, 1);
    EXPECT_FALSE(hydrant::is_switched_on(off, false)) << off;
    EXPECT_NE(gasnett_print_backtrace_ifenabled(STDERR_FILENO), 0) << off;
  }
}

TEST_F(Debugging, InvalidSwitchesCauseOneWarning) {
  setenv("GASNET_BACKTRACE", "maybe", 1);
  setenv("GASNET_BACKTRACE_MT", "", 1);
  ::testing::internal::CaptureStderr();
  gasnett_backtrace_init("");
  gasnett_backtrace_init("");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(
      text,
      "*** WARNING: GASNET_BACKTRACE=maybe: invalid value; set y or n; the default is used\n");
  EXPECT_TRUE(hydrant::switch_of("GASNET_TOOLS_TEST", "", true));
  EXPECT_TRUE(hydrant::switch_of("GASNET_TOOLS_TEST", nullptr, true));
}

TEST_F(Debugging, FreezesUntilTheFlagIsCleared) {
  static volatile int flag = 0;
  std::thread debugger([] {
    while (__atomic_load_n(&flag, __ATOMIC_RELAXED) == 0) std::this_thread::yield();
    __atomic_store_n(&flag, 0, __ATOMIC_RELAXED);
  });
  gasnett_freezeForDebuggerNow(&flag, "flag");
  debugger.join();
  gasnett_freezeForDebuggerErr();  // not requested
}

TEST_F(Debugging, FreezesOnErrorUntilSigcont) {
  setenv("GASNET_FREEZE_ON_ERROR", "1", 1);
  EXPECT_EXIT(
      {
        std::thread([] {
          for (;;) {
            kill(getpid(), SIGCONT);
            usleep(50'000);
          }
        }).detach();
        gasnett_fatalerror("stop here");
      },
      ::testing::KilledBySignal(SIGABRT), "stop here\n.*frozen for debugger.*pid=[0-9]+");
}

// The first failing thread stays frozen for its debugger.
TEST_F(Debugging, SecondFailingThreadWaitsForTheFirst) {
  setenv("GASNET_FREEZE_ON_ERROR", "1", 1);
  EXPECT_EXIT(
      {
        std::thread([] { gasnett_fatalerror("the first"); }).detach();
        while (hydrant_tools_frozen == 0) std::this_thread::yield();
        std::thread([] { gasnett_fatalerror("the second"); }).detach();
        usleep(500'000);
        static constexpr char kText[] = "no thread has exited\n";
        (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
        for (;;) {
          kill(getpid(), SIGCONT);
          usleep(50'000);
        }
      },
      ::testing::KilledBySignal(SIGABRT), "no thread has exited\n");
}

TEST_F(Debugging, RegisteringReturnsThePreviousHandler) {
  static volatile sig_atomic_t caught = 0;
  const auto before = gasnett_reghandler(SIGUSR1, [](int signal) { caught = signal; });
  std::raise(SIGUSR1);
  EXPECT_EQ(caught, SIGUSR1);
  EXPECT_NE(gasnett_reghandler(SIGUSR1, before), before);
  EXPECT_EXIT((void)gasnett_reghandler(SIGKILL, SIG_IGN), ::testing::KilledBySignal(SIGABRT),
              "signal 9 \\(SIGKILL\\)");
}

TEST(SignalNames, NamesAndNumbersConvertBothWays) {
  EXPECT_STREQ(gasnett_signame_fromval(SIGSEGV), "SIGSEGV");
  EXPECT_STREQ(gasnett_signame_fromval(12345), "*unknown signal*");
  EXPECT_EQ(hydrant::signal_of_name("sigterm"), SIGTERM);
  EXPECT_EQ(hydrant::signal_of_name("USR1"), SIGUSR1);
  EXPECT_EQ(hydrant::signal_of_name("15"), 15);
  for (const char* bad : {"", "SIG", "-1", "0", "99999", "15x"}) {
    EXPECT_EQ(hydrant::signal_of_name(bad), 0) << bad;
  }
}

TEST(RankList, RangesAndAllRanks) {
  for (const char* all : {"", "*"}) EXPECT_TRUE(hydrant::rank_list_contains(all, 5)) << all;
  EXPECT_TRUE(hydrant::rank_list_contains(nullptr, 5));
  for (const int rank : {0, 2, 3, 4, 6}) EXPECT_TRUE(hydrant::rank_list_contains("0,2-4,6", rank));
  for (const int rank : {1, 5, 7}) EXPECT_FALSE(hydrant::rank_list_contains("0,2-4,6", rank));
  EXPECT_FALSE(hydrant::rank_list_contains("few", 0));
  EXPECT_FALSE(hydrant::rank_list_contains("1-", 1));
  for (const char* good : {"", "*", "3", "0,2-4,6", "2-2", "0, 2"})
    EXPECT_TRUE(hydrant::is_rank_list(good)) << good;
  for (const char* bad : {"few", "1-", "-1", "3-1", "0,4-2", "0;1", "1x", ",1"})
    EXPECT_FALSE(hydrant::is_rank_list(bad)) << bad;
}

}  // namespace
