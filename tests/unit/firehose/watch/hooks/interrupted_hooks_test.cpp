// Hooked calls that a signal handler interrupts with hooked calls of its own, at each instruction in turn.
#include "tests/support/sizes.hpp"
#include "tests/unit/firehose/watch/hooks/fake_monitor.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>

namespace hydrant::testing {
namespace {

#if defined(__x86_64__)

constexpr unsigned long kTrapFlag = 0x100;
// The two bytes of the instruction `syscall`.
constexpr unsigned char kSystemCall[] = {0x0f, 0x05};

// Steps through the calling thread's code one instruction at a time. Before each, the trap handler makes a
// hooked call of its own; where the next instruction is the watched system call, it reads the record.
class Stepper {
 public:
  Stepper(long number, const void* addr, size_t len, char* other) {
    s_number = number;
    s_addr = reinterpret_cast<uintptr_t>(addr);
    s_len = len;
    s_other = other;
    s_steps = s_reached = s_explained = 0;
    struct sigaction action {};
    action.sa_sigaction = &on_trap;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGTRAP, &action, &before_);
  }
  ~Stepper() { sigaction(SIGTRAP, &before_, nullptr); }
  Stepper(const Stepper&) = delete;
  Stepper& operator=(const Stepper&) = delete;

  // The handler sets the flag in the context to which it returns, and clears it there at the end.
  template <typename Call>
  void step_through(Call&& call) {
    s_is_stepping = 1;
    std::raise(SIGTRAP);
    call();
    s_is_stepping = 0;
    std::raise(SIGTRAP);
  }

  static int steps() { return s_steps; }
  static int reached() { return s_reached; }
  static int explained() { return s_explained; }

 private:
  static void on_trap(int, siginfo_t*, void* raw) {
    auto* context = static_cast<ucontext_t*>(raw);
    greg_t* registers = context->uc_mcontext.gregs;
    if (s_is_stepping == 0) {
      registers[REG_EFL] &= ~static_cast<greg_t>(kTrapFlag);
      return;
    }
    registers[REG_EFL] |= static_cast<greg_t>(kTrapFlag);
    ++s_steps;
    munmap(s_other, kPage);
    const auto* next = reinterpret_cast<const unsigned char*>(registers[REG_RIP]);
    if (std::memcmp(next, kSystemCall, sizeof kSystemCall) != 0) return;
    if (registers[REG_RAX] != s_number || static_cast<uintptr_t>(registers[REG_RDI]) != s_addr)
      return;
    ++s_reached;
    const hydrant_hooks_thread_t* record = own_record();
    if (record->entered != 0 && record->addr <= s_addr &&
        s_addr + s_len <= record->addr + record->len) {
      ++s_explained;
    }
  }

  static inline volatile sig_atomic_t s_is_stepping = 0;
  static inline long s_number = 0;
  static inline uintptr_t s_addr = 0;
  static inline size_t s_len = 0;
  static inline char* s_other = nullptr;
  static inline int s_steps = 0, s_reached = 0, s_explained = 0;
  struct sigaction before_ {};
};

class InterruptedHooks : public ::testing::Test {
 protected:
  static char* map(size_t len) {
    return static_cast<char*>(
        mmap(nullptr, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  // The record explains the system call, and is empty when the call has returned.
  static void expect_explained() {
    EXPECT_GT(Stepper::steps(), 20);
    EXPECT_EQ(Stepper::reached(), 1);
    EXPECT_EQ(Stepper::explained(), 1);
    EXPECT_EQ(own_record()->entered, 0u);
    EXPECT_EQ(own_record()->len, 0u);
    EXPECT_EQ(own_record()->inner_len, 0u);
  }

  FakeMonitor monitor_;
};

TEST_F(InterruptedHooks, RecordOfAnUnmappingNamesItsRange) {
  char* memory = map(4 * kPage);
  char* other = map(kPage);
  Stepper stepper(SYS_munmap, memory, 4 * kPage, other);
  stepper.step_through([&] { munmap(memory, 4 * kPage); });
  expect_explained();
}

TEST_F(InterruptedHooks, RecordOfAMoveNamesItsRange) {
  char* memory = map(4 * kPage);
  char* other = map(kPage);
  Stepper stepper(SYS_mremap, memory, 4 * kPage, other);
  void* moved = nullptr;
  stepper.step_through([&] { moved = mremap(memory, 4 * kPage, 64 * kPage, MREMAP_MAYMOVE); });
  expect_explained();
  munmap(moved, 64 * kPage);
}

TEST_F(InterruptedHooks, RecordOfARemovalNamesItsRange) {
  char* memory = map(4 * kPage);
  char* other = map(kPage);
  Stepper stepper(SYS_madvise, memory, 4 * kPage, other);
  stepper.step_through([&] { madvise(memory, 4 * kPage, MADV_DONTNEED); });
  expect_explained();
  munmap(memory, 4 * kPage);
}

#else

TEST(InterruptedHooks, RecordNamesTheReleasedRange) {
  GTEST_SKIP() << "stepping through instructions is written for x86-64 only";
}

#endif

}  // namespace
}  // namespace hydrant::testing
