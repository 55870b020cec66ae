// The fence when the kernel begins to refuse membarrier after hits have come to rely on it.
#include "firehose/hit/asymmetric_fence.hpp"

#include "tests/support/child_process.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>

namespace hydrant::testing {
namespace {

// From now on this process may not call membarrier. False where filters are not allowed.
bool refuse_membarrier() {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_membarrier, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  sock_fprog program{4, code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(AsymmetricFence, VisitingProcessorsLeavesTheThreadWhereItMayRun) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_TRUE(asymmetric_fence::visit_processors());
  cpu_set_t after;
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

// Dekker's algorithm: of two threads that each store and then load, at least one sees the other's store, if
// the closer's fence orders both sides.
std::string play(uint32_t rounds, void (*heavy)()) {
  std::atomic<uint32_t> post{0}, gate{0}, round{0}, looked{0};
  std::atomic<bool> saw_gate{false};
  Threads threads;
  threads.start([&] {
    for (uint32_t i = 1; i <= rounds; ++i) {
      while (round.load(std::memory_order_acquire) < i) sched_yield();
      post.store(i, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      saw_gate.store(gate.load(std::memory_order_relaxed) == i, std::memory_order_relaxed);
      looked.store(i, std::memory_order_release);
    }
  });
  std::string wrong;
  for (uint32_t i = 1; i <= rounds; ++i) {
    round.store(i, std::memory_order_release);
    gate.store(i, std::memory_order_relaxed);
    heavy();
    const bool saw_post = post.load(std::memory_order_relaxed) == i;
    while (looked.load(std::memory_order_acquire) < i) sched_yield();
    if (!saw_post && !saw_gate.load(std::memory_order_relaxed)) wrong = "neither saw the other";
  }
  threads.join();
  return wrong;
}

TEST(AsymmetricFence, VisitingProcessorsIsABarrierForAllOfThem) {
  EXPECT_EQ(play(200, [] { (void)asymmetric_fence::visit_processors(); }), "");
}

TEST(AsymmetricFence, HoldsOnWhenMembarrierIsRefusedLater) {
  const auto child = []() -> std::string {
    if (!asymmetric_fence::setup()) return "SKIP: membarrier is refused from the start";
    if (!refuse_membarrier()) return "SKIP: no seccomp filters here";
    return play(300, &asymmetric_fence::heavy);
  };
  const std::string result = run_in_child(child);
  if (result.rfind("SKIP: ", 0) == 0) GTEST_SKIP() << result.substr(6);
  EXPECT_EQ(result, "");
}

}  // namespace
}  // namespace hydrant::testing
