#include "firehose/base/status.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <sched.h>
#include <set>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr Status kEvery[] = {Status::kOk,      Status::kNotInit,  Status::kResource,
                             Status::kBadArg,  Status::kNotReady, Status::kBarrierMismatch,
                             Status::kRefused, Status::kBroken,   Status::kUnsupported};

TEST(Status, NumbersAreThoseOfTheHeader) {
  EXPECT_EQ(to_c(Status::kOk), GASNET_OK);
  EXPECT_EQ(to_c(Status::kBadArg), 10003);
  EXPECT_EQ(to_c(Status::kNotReady), 10004);
  EXPECT_EQ(to_c(Status::kRefused), 10100);
}

TEST(Status, EveryStatusHasItsOwnNameAndDescription) {
  std::set<std::string> names;
  std::set<std::string> descriptions;
  for (const Status status : kEvery) {
    names.insert(status_name(status));
    descriptions.insert(status_description(status));
  }
  EXPECT_EQ(names.size(), std::size(kEvery));
  EXPECT_EQ(descriptions.size(), std::size(kEvery));
  EXPECT_FALSE(names.contains("(unknown status)"));
}

TEST(Status, ForeignNumberIsNamedUnknown) {
  EXPECT_STREQ(status_name(static_cast<Status>(4711)), "(unknown status)");
  EXPECT_STREQ(status_description(static_cast<Status>(4711)), "unknown status");
}

TEST(Status, FailRecordsTheTextAndReturnsTheStatus) {
  EXPECT_EQ(fail(Status::kBadArg, "len is %d", 0), Status::kBadArg);
  EXPECT_STREQ(last_error_text(), "len is 0");
  EXPECT_EQ(fail(Status::kBroken, "second"), Status::kBroken);
  EXPECT_STREQ(last_error_text(), "second");
}

TEST(Status, ContextIsAppended) {
  static_cast<void>(fail(Status::kBroken, "ring is gone"));
  EXPECT_EQ(add_context(Status::kBroken, "while pinning %d pages", 3), Status::kBroken);
  EXPECT_STREQ(last_error_text(), "ring is gone; while pinning 3 pages");
}

TEST(Status, ContextAloneIsTheWholeText) {
  clear_error_text();
  static_cast<void>(add_context(Status::kBroken, "alone"));
  EXPECT_STREQ(last_error_text(), "alone");
}

TEST(Status, LiteralReplacesTheTextAndIsReplaced) {
  static_cast<void>(fail(Status::kBroken, "formatted"));
  EXPECT_EQ(fail_literal(Status::kNotReady, "nothing there"), Status::kNotReady);
  EXPECT_STREQ(last_error_text(), "nothing there");
  static_cast<void>(add_context(Status::kNotReady, "waited %d us", 5));
  EXPECT_STREQ(last_error_text(), "nothing there; waited 5 us");
  static_cast<void>(fail_literal(Status::kNotReady, "nothing there"));
  static_cast<void>(fail(Status::kBroken, "formatted"));
  EXPECT_STREQ(last_error_text(), "formatted");
  static_cast<void>(fail_literal(Status::kNotReady, "nothing there"));
  clear_error_text();
  EXPECT_STREQ(last_error_text(), "");
}

TEST(Status, FreshTextHidesALiteralAndGivesItBack) {
  static_cast<void>(fail_literal(Status::kNotReady, "before"));
  {
    const ScopedErrorText fresh;
    EXPECT_STREQ(last_error_text(), "");
  }
  EXPECT_STREQ(last_error_text(), "before");
  {
    const ScopedErrorText fresh;
    static_cast<void>(fail_literal(Status::kBroken, "inside"));
  }
  EXPECT_STREQ(last_error_text(), "inside");
}

TEST(Status, LongTextsAreCutAndTerminated) {
  const std::string text(2000, 'x');
  static_cast<void>(fail(Status::kBroken, "%s", text.c_str()));
  EXPECT_EQ(std::string(last_error_text()), std::string(511, 'x'));
  static_cast<void>(add_context(Status::kBroken, "no room for this"));
  EXPECT_EQ(std::string(last_error_text()).size(), 511U);
}

TEST(Status, ClearForgetsTheText) {
  static_cast<void>(fail(Status::kBroken, "something"));
  clear_error_text();
  EXPECT_STREQ(last_error_text(), "");
}

TEST(Status, EachThreadHasItsOwnText) {
  static_cast<void>(fail(Status::kBroken, "mine"));
  std::string before;
  std::string after;
  std::thread other([&] {
    before = last_error_text();
    static_cast<void>(fail(Status::kBadArg, "theirs"));
    after = last_error_text();
  });
  other.join();
  EXPECT_EQ(before, "");
  EXPECT_EQ(after, "theirs");
  EXPECT_STREQ(last_error_text(), "mine");
}

// Takes all memory that malloc() can give.
void exhaust_memory() {
  const rlimit none{1 << 20, 1 << 20};
  (void)setrlimit(RLIMIT_AS, &none);
  for (size_t bytes = size_t{1} << 30; bytes >= 16; bytes /= 2) {
    while (std::malloc(bytes) != nullptr) {
    }
  }
}

TEST(Status, AThreadWithoutMemoryHasATextToo) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers do not run under a limit of addresses";
#endif
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> step{0};
    std::string_view found;
    std::string_view next;
    std::string_view cleared;
    std::thread other([&] {
      while (step != 1) sched_yield();
      (void)fail(Status::kResource, "number %d", 5);
      found = last_error_text();
      (void)fail_literal(Status::kRefused, "another");
      next = last_error_text();
      clear_error_text();
      cleared = last_error_text();
      step = 2;
    });
    exhaust_memory();
    step = 1;
    while (step != 2) sched_yield();
    _exit(found == "no memory was left for the text of this GASNET_ERR_RESOURCE" &&
                  next == "no memory was left for the text of this HYDRANT_ERR_REFUSED" &&
                  cleared.empty()
              ? 0
              : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Status, TextMayBeFormattedFromItself) {
  (void)fail(Status::kResource, "no room for %d", 7);
  (void)fail(Status::kBroken, "%s", last_error_text());
  EXPECT_STREQ(last_error_text(), "no room for 7");
}

}  // namespace
}  // namespace hydrant
