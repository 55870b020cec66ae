#include "firehose/base/quiet_write.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <pthread.h>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hydrant {
namespace {

volatile sig_atomic_t g_handled = 0;
void count_signal(int) { g_handled = g_handled + 1; }

sigset_t only(int number) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  return set;
}

bool is_pending(int number) {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, number) == 1;
}

// A kind of file whose next write raises the signal.
class Refusing {
 public:
  explicit Refusing(int number) {
    if (number == SIGPIPE) {
      int ends[2] = {-1, -1};
      EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
      close(ends[0]);
      fd_ = ends[1];
      return;
    }
    char path[] = "quiet_write_test.XXXXXX";
    fd_ = mkostemp(path, O_CLOEXEC);
    unlink(path);
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit small = {.rlim_cur = kLimit, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    is_limited_ = true;
    const std::string full(kLimit, 'x');
    EXPECT_EQ(::write(fd_, full.data(), full.size()), static_cast<ssize_t>(full.size()));
  }
  ~Refusing() {
    close(fd_);
    if (is_limited_) setrlimit(RLIMIT_FSIZE, &before_);
  }
  Refusing(const Refusing&) = delete;
  Refusing& operator=(const Refusing&) = delete;
  int fd() const { return fd_; }

 private:
  static constexpr size_t kLimit = 100;
  int fd_ = -1;
  bool is_limited_ = false;
  rlimit before_ = {};
};

class QuietWrite : public ::testing::TestWithParam<int> {
 protected:
  void TearDown() override { signal(GetParam(), SIG_DFL); }
  void expect_refused(int fd) const {
    errno = EDOM;
    const Written done = write_quietly(fd, "text", 4);
    EXPECT_EQ(errno, EDOM);
    EXPECT_EQ(done.bytes, 0u);
    EXPECT_EQ(done.error, GetParam() == SIGPIPE ? EPIPE : EFBIG);
  }
};

TEST_P(QuietWrite, NoSignalWhateverTheProgramDoesWithIt) {
  const Refusing file(GetParam());
  for (void (*action)(int) : {SIG_DFL, SIG_IGN, count_signal}) {
    signal(GetParam(), action);
    expect_refused(file.fd());
    EXPECT_FALSE(is_pending(GetParam()));
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    EXPECT_EQ(sigismember(&mask, GetParam()), 0);
  }
  EXPECT_EQ(g_handled, 0);
  signal(GetParam(), count_signal);
  raise(GetParam());
  EXPECT_EQ(g_handled, 1) << "the program's own signals arrive as before";
}

TEST_P(QuietWrite, PendingSignalStaysPending) {
  const Refusing file(GetParam());
  const sigset_t set = only(GetParam());
  const timespec at_once = {};
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  expect_refused(file.fd());
  EXPECT_FALSE(is_pending(GetParam()));
  raise(GetParam());
  expect_refused(file.fd());
  EXPECT_EQ(sigtimedwait(&set, nullptr, &at_once), GetParam());
  EXPECT_FALSE(is_pending(GetParam()));
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Signals, QuietWrite, ::testing::Values(SIGPIPE, SIGXFSZ),
                         [](const auto& one) {
                           return std::string(one.param == SIGPIPE ? "Pipe" : "FileSize");
                         });

TEST(QuietWriteWhole, PartThatFitsIsWritten) {
  char path[] = "quiet_write_test.XXXXXX";
  const int fd = mkostemp(path, O_CLOEXEC);
  unlink(path);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small = {.rlim_cur = 3, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Written done = write_quietly(fd, "text", 4);
  setrlimit(RLIMIT_FSIZE, &before);
  close(fd);
  EXPECT_EQ(done.bytes, 3u);
  EXPECT_EQ(done.error, EFBIG);
}

TEST(QuietWriteWhole, PendingCancellationWaits) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  pthread_t thread;
  const auto body = [](void* fd) -> void* {
    pthread_cancel(pthread_self());
    const Written done = write_quietly(*static_cast<int*>(fd), "text", 4);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    return done.bytes == 4 ? fd : nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, nullptr, body, &ends[1]), 0);
  void* result = nullptr;
  pthread_join(thread, &result);
  EXPECT_EQ(result, &ends[1]);
  close(ends[0]);
  close(ends[1]);
}

TEST(QuietOpen, PipeWithoutReaderIsAnError) {
  const std::string path = "quiet_write_test.fifo." + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(open_quietly(path.c_str(), O_APPEND), -ENXIO);
  EXPECT_TRUE(is_pipe(path.c_str()));
  const int reads = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  const int fd = open_quietly(path.c_str(), O_APPEND);
  EXPECT_GE(fd, 0);
  EXPECT_EQ(fcntl(fd, F_GETFL) & (O_NONBLOCK | O_APPEND), O_APPEND) << "its writes block";
  close(fd);
  close(reads);
  unlink(path.c_str());
  EXPECT_EQ(open_quietly("/nonexistent/file", 0), -ENOENT);
  EXPECT_FALSE(is_pipe("/dev/null"));
}

}  // namespace
}  // namespace hydrant
