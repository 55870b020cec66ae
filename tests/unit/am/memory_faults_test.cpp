// The text printed for faults in memory that ranks share, and the handler that runs afterwards.
#include "am/segment/memory_faults.hpp"

#include "rdma/transport/guarded_memory.hpp"
#include "tests/support/patience.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr size_t kFaultyBytes = 4 * 4096;

struct End {
  int status = 0;
  std::string text;
};

// Runs act() in a child; returns how it ended and what it wrote to standard error.
template <typename Act>
End in_child(Act act) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(ends[1], STDERR_FILENO);
    for (const int number : {SIGSEGV, SIGBUS}) (void)std::signal(number, SIG_DFL);
    hydrant_test_alarm(60);
    act();
    _exit(0);
  }
  close(ends[1]);
  End end;
  char piece[512];
  for (ssize_t bytes = 0; (bytes = read(ends[0], piece, sizeof piece)) > 0;)
    end.text.append(piece, static_cast<size_t>(bytes));
  close(ends[0]);
  EXPECT_EQ(waitpid(child, &end.status, 0), child);
  return end;
}

std::byte* segment(int fd) {
  std::byte* start = nullptr;
  if (reserve_guarded(kFaultyBytes, 4096, GuardSize::kMin, {"segment", 5}, &start) != Status::kOk)
    _exit(2);
  const int flags = MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  if (mmap(start, kFaultyBytes, PROT_READ | PROT_WRITE, flags, fd, 0) != start) _exit(3);
  return start;
}
void touch(std::byte* at) { *static_cast<volatile std::byte*>(at) = std::byte{1}; }

TEST(MemoryFaults, StoreIntoAGuardIsExplained) {
  const End end = in_child([] {
    catch_memory_faults();
    touch(segment(-1) + kFaultyBytes + 99);
  });
  EXPECT_TRUE(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGSEGV) << end.status;
  EXPECT_NE(end.text.find(", 100 bytes past the end of the segment of rank 5 [0x"),
            std::string::npos)
      << end.text;
}

// The kernel's SIGBUS for a page without memory; here the page lies beyond the end of the file.
TEST(MemoryFaults, PageWithoutMemoryIsExplained) {
  const End end = in_child([] {
    catch_memory_faults();
    touch(segment(memfd_create("empty", MFD_CLOEXEC)) + 4096);
  });
  EXPECT_TRUE(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGBUS) << end.status;
  EXPECT_NE(end.text.find("in the segment of rank 5 [0x"), std::string::npos) << end.text;
  EXPECT_NE(end.text.find("there is no memory left for that page"), std::string::npos) << end.text;
  EXPECT_NE(end.text.find("HYDRANT_SEGMENT_COMMIT=y"), std::string::npos) << end.text;
}

TEST(MemoryFaults, FaultsInOtherMemoryAreNotExplained) {
  const End end = in_child([] {
    catch_memory_faults();
    (void)segment(-1);
    touch(static_cast<std::byte*>(
        mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)));
  });
  EXPECT_TRUE(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGSEGV) << end.status;
  EXPECT_EQ(end.text.find("***"), std::string::npos) << end.text;
}

// A program may protect pages of its segment itself, for example for a garbage collector. It handles
// their faults.
TEST(MemoryFaults, ProgramsOwnProtectedPagesAreNotExplained) {
  static std::byte* start;
  const End end = in_child([] {
    struct sigaction action {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t* info, void*) {
      if (info->si_addr == start) mprotect(start, 4096, PROT_READ | PROT_WRITE);
    };
    sigaction(SIGSEGV, &action, nullptr);
    catch_memory_faults();
    start = segment(-1);
    mprotect(start, 4096, PROT_NONE);
    touch(start);
    touch(start + 1);
    mprotect(start, 4096, PROT_NONE);
    touch(start);
  });
  EXPECT_TRUE(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0) << end.status << end.text;
  EXPECT_EQ(end.text, "");
}

TEST(MemoryFaults, OneShotHandlerRunsOnce) {
  const End end = in_child([] {
    struct sigaction action {};
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    action.sa_handler = [](int) { (void)!write(STDERR_FILENO, "once\n", 5); };
    sigaction(SIGSEGV, &action, nullptr);
    catch_memory_faults();
    touch(segment(-1) - 1);
  });
  EXPECT_TRUE(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGSEGV) << end.status;
  EXPECT_NE(end.text.find("once\n"), std::string::npos) << end.text;
  EXPECT_EQ(end.text.find("once\n"), end.text.rfind("once\n")) << end.text;
}

TEST(MemoryFaults, SentSignalStillEndsTheProcess) {
  const End end = in_child([] {
    catch_memory_faults();
    kill(getpid(), SIGSEGV);
  });
  EXPECT_TRUE(WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGSEGV) << end.status;
  EXPECT_EQ(end.text.find("***"), std::string::npos) << end.text;
}

}  // namespace
}  // namespace hydrant
