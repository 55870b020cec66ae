#include "rdma/exit/process_exit.hpp"

#include "firehose/base/thread.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <poll.h>
#include <pthread.h>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant {
namespace {

// A child that waits until it is killed, or exits at once with a code.
pid_t make_child(int code) {
  const pid_t pid = fork();
  if (pid == 0) {
    while (code < 0) pause();
    _exit(code);
  }
  return pid;
}

void wait_until_over(int pidfd) {
  pollfd one{pidfd, POLLIN, 0};
  ASSERT_EQ(poll(&one, 1, static_cast<int>(60'000 * testing::patience())), 1);
}

TEST(ProcessExit, SignalsAndCodesAreReadWhileAndAfterTheProcessIsReaped) {
  const pid_t killed = make_child(-1);
  const pid_t exited = make_child(7);
  for (const pid_t pid : {killed, exited}) {
    const int pidfd = open_pidfd(pid);
    ASSERT_GE(pidfd, 0);
    const uint64_t start = process_start_time(pid);
    EXPECT_NE(start, 0u);
    if (pid == killed) {
      EXPECT_FALSE(process_is_ending(pid));
      kill(pid, SIGKILL);
    }
    wait_until_over(pidfd);
    EXPECT_TRUE(process_is_ending(pid));
    const auto expected = pid == killed ? ProcessExit::Kind::kKilled : ProcessExit::Kind::kExited;
    const ProcessExit end = read_process_end(pidfd, pid, start);
    EXPECT_EQ(end.kind, expected);
    EXPECT_EQ(end.code, pid == killed ? SIGKILL : 7);
    ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
    // Only newer kernels still report the exit status then.
    const ProcessExit late = read_process_end(pidfd, pid, start);
    EXPECT_TRUE(late.kind == expected || late.kind == ProcessExit::Kind::kUnknown);
    close(pidfd);
  }
}

// Its other threads keep running.
TEST(ProcessExit, ProcessWithoutItsFirstThreadIsNotExiting) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    pthread_t thread;
    static int out = ready[1];
    const auto body = [](void*) -> void* {
      while (process_start_time(getpid()) == 0) {
      }
      [[maybe_unused]] const ssize_t written = write(out, "x", 1);
      for (;;) pause();
    };
    pthread_create(&thread, nullptr, body, nullptr);
    syscall(SYS_exit, 0);  // this thread alone; pthread_exit() would unwind into the test's runner
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  // Waits until the first thread has ended; its state is 'Z' while others run.
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  for (int i = 0; i < 6000 * testing::patience(); ++i) {
    std::ifstream file(path);
    std::string text;
    std::getline(file, text);
    if (text.find(") Z ") != std::string::npos) break;
    usleep(10'000);
  }
  EXPECT_FALSE(process_is_ending(pid));
  kill(pid, SIGKILL);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(process_is_ending(pid));
  waitpid(pid, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(ProcessExit, MissingProcessHasNoStartTime) {
  const pid_t pid = make_child(0);
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_EQ(process_start_time(pid), 0u);
  EXPECT_FALSE(process_is_ending(pid));
}

}  // namespace
}  // namespace hydrant
