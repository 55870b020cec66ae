#include "firehose/base/log.hpp"

#include "tests/unit/firehose/base/scoped_env.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace hydrant {
namespace {

// Standard error becomes one end of a datagram socket, so that each write(2) arrives on its own.
class LogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    reset_log_level();
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends_), 0);
    saved_ = dup(STDERR_FILENO);
    dup2(ends_[0], STDERR_FILENO);
  }
  void TearDown() override {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    close(ends_[0]);
    close(ends_[1]);
    reset_log_level();
  }
  std::vector<std::string> writes() {
    std::vector<std::string> all;
    char buffer[4096];
    for (;;) {
      const ssize_t got = recv(ends_[1], buffer, sizeof buffer, MSG_DONTWAIT);
      if (got < 0) return all;
      all.emplace_back(buffer, static_cast<size_t>(got));
    }
  }

 private:
  int ends_[2] = {-1, -1};
  int saved_ = -1;
};

using Lines = std::vector<std::string>;

TEST_F(LogTest, MessageIsOneWriteOfOneLine) {
  const ScopedEnv level("HYDRANT_LOG", nullptr);
  log_warning("slot %d of %s", 7, "ring");
  EXPECT_EQ(writes(), Lines{"hydrant: warning: slot 7 of ring\n"});
}

TEST_F(LogTest, DefaultShowsErrorsAndWarningsOnly) {
  const ScopedEnv level("HYDRANT_LOG", nullptr);
  log_error("e");
  log_warning("w");
  log_info("i");
  log_debug("d");
  EXPECT_EQ(writes(), (Lines{"hydrant: error: e\n", "hydrant: warning: w\n"}));
}

TEST_F(LogTest, LevelComesFromTheEnvironment) {
  const ScopedEnv level("HYDRANT_LOG", "debug");
  log_info("i");
  log_debug("d");
  EXPECT_EQ(writes(), (Lines{"hydrant: info: i\n", "hydrant: debug: d\n"}));
  EXPECT_TRUE(log_enabled(LogLevel::kDebug));
}

TEST_F(LogTest, ErrorLevelSilencesWarnings) {
  const ScopedEnv level("HYDRANT_LOG", "error");
  log_warning("w");
  log_error("e");
  EXPECT_EQ(writes(), Lines{"hydrant: error: e\n"});
}

TEST_F(LogTest, SetLevelOverridesTheEnvironment) {
  const ScopedEnv level("HYDRANT_LOG", "error");
  set_log_level(LogLevel::kInfo);
  log_info("i");
  EXPECT_EQ(writes(), Lines{"hydrant: info: i\n"});
}

TEST_F(LogTest, LineBreaksAndControlCharactersBecomeBlanks) {
  log_error("a\nb\tc\x1b[31m");
  EXPECT_EQ(writes(), Lines{"hydrant: error: a b c [31m\n"});
}

TEST_F(LogTest, LongMessagesAreCutAndStillEndTheLine) {
  log_error("%s", std::string(5000, 'x').c_str());
  const auto lines = writes();
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].size(), 1024U);
  EXPECT_EQ(lines[0].back(), '\n');
  EXPECT_EQ(lines[0].find('\0'), std::string::npos);
}

TEST_F(LogTest, ErrnoIsPreserved) {
  errno = ENOMEM;
  log_error("%s", "x");
  EXPECT_EQ(errno, ENOMEM);
}

TEST_F(LogTest, LimitedWarningPassesOnce) {
  set_log_level(LogLevel::kWarning);
  static RateLimit once(RateLimit::kOnce);
  for (int i = 0; i < 5; ++i) log_warning(once, "try %d", i);
  EXPECT_EQ(writes(), Lines{"hydrant: warning: try 0\n"});
}

TEST_F(LogTest, SuppressedBelowTheLevelDoesNotSpendTheLimit) {
  static RateLimit once(RateLimit::kOnce);
  set_log_level(LogLevel::kError);
  log_warning(once, "unseen");
  set_log_level(LogLevel::kWarning);
  log_warning(once, "seen");
  EXPECT_EQ(writes(), Lines{"hydrant: warning: seen\n"});
}

TEST_F(LogTest, HeldBackMessagesAreCountedInTheNext) {
  set_log_level(LogLevel::kWarning);
  // An interval of 1 ns is over by the next call; the two in between are held back by hand.
  static RateLimit limit(1);
  log_warning(limit, "first");
  uint64_t ignored = 0;
  EXPECT_FALSE(limit.pass(0, &ignored));
  EXPECT_FALSE(limit.pass(0, &ignored));
  log_warning(limit, "next");
  EXPECT_EQ(writes(),
            (Lines{"hydrant: warning: first\n", "hydrant: warning: next (2 more not shown)\n"}));
}

TEST(RateLimit, PassesOncePerIntervalAndCountsTheRest) {
  RateLimit limit(100);
  uint64_t suppressed = 99;
  EXPECT_TRUE(limit.pass(1000, &suppressed));
  EXPECT_EQ(suppressed, 0U);
  EXPECT_FALSE(limit.pass(1001, &suppressed));
  EXPECT_FALSE(limit.pass(1099, &suppressed));
  EXPECT_TRUE(limit.pass(1100, &suppressed));
  EXPECT_EQ(suppressed, 2U);
}

TEST(RateLimit, OneOfManyConcurrentThreadsPasses) {
  RateLimit limit(RateLimit::kSecond);
  std::atomic<int> passed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        uint64_t suppressed = 0;
        if (limit.pass(5000, &suppressed)) passed.fetch_add(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(passed.load(), 1);
}

TEST_F(LogTest, LinesOfSeveralThreadsDoNotMix) {
  set_log_level(LogLevel::kWarning);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 2; ++i)
        log_warning("%s", std::string(500, static_cast<char>('a' + t)).c_str());
    });
  }
  for (auto& thread : threads) thread.join();
  const auto lines = writes();
  EXPECT_EQ(lines.size(), 8U);
  for (const auto& line : lines) {
    const char letter = line[line.size() - 2];
    EXPECT_EQ(line, "hydrant: warning: " + std::string(500, letter) + "\n");
  }
}

}  // namespace
}  // namespace hydrant
