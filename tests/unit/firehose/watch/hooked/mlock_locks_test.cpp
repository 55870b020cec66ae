// A domain over the registrar mlock in a process with the hooks, where the kernel reuses addresses of one
// thread for another: memory that a thread locks itself stays locked, whatever was at its addresses before.
#include <hydrant/pin_cache.h>

#include "firehose/registrars/mlock_calls.hpp"
#include "tests/support/mapped_memory.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/pin_cache_test_util.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::testing {
namespace {

constexpr size_t kLockBytes = 16 * kPage;
constexpr unsigned kLockThreads = 6;
constexpr int kLockRounds = 500;

bool is_locked(void* memory) {
  return kMlockCalls.find_lock({reinterpret_cast<uintptr_t>(memory), kLockBytes}) == EBUSY;
}

void* map_memory() {
  void* memory =
      mmap(nullptr, kLockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) std::memset(memory, 1, kLockBytes);
  return memory;
}

TEST(MlockLocks, UnpinOfOldMemoryKeepsLocksOfNewMemory) {
  HYDRANT_NEEDS_USERFAULTFD();
  hydrant_domain_options_t options;
  hydrant_domain_options_init(&options);
  options.registrar_name = "mlock";
  options.merge_bytes = 1;
  options.stream_bytes = 1;
  options.budget_bytes = 4 * kLockBytes;
  hydrant_domain_t domain = 0;
  if (hydrant_domain_create(&options, &domain) != GASNET_OK) GTEST_SKIP() << hydrant_error_text();
  std::atomic<int> locked{0}, lost{0}, pinned{0};
  Threads threads;
  for (unsigned t = 0; t < kLockThreads; ++t) {
    threads.start([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < kLockRounds; ++i) {
        void* memory = map_memory();
        if (memory == MAP_FAILED) continue;
        const bool own = random() % 2 == 0 && syscall(SYS_mlock, memory, kLockBytes) == 0;
        if (!own) {
          const hydrant_pin_t pin = hydrant_pin(domain, memory, kLockBytes, HYDRANT_LOCAL_WRITE);
          if (pin.region != nullptr) ++pinned;
          if (pin.region != nullptr) (void)hydrant_release(pin);
        }
        if (random() % 8 == 0) (void)hydrant_flush(domain);
        if (random() % 8 == 0) (void)hydrant_poll(domain);
        if (own) ++locked;
        if (own && !is_locked(memory)) ++lost;
        munmap(memory, kLockBytes);
      }
    });
  }
  threads.join();
  EXPECT_EQ(stats_of(domain).hits_are_checked, 0u) << "no hooks";
  EXPECT_EQ(hydrant_domain_destroy(domain, HYDRANT_FINI_UNPIN), GASNET_OK);
  if (locked == 0) GTEST_SKIP() << "the memlock limit is too small";
  EXPECT_GT(pinned, 0);
  EXPECT_EQ(lost, 0) << "of " << locked;
}

}  // namespace
}  // namespace hydrant::testing
