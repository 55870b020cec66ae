// Implements the counts of atomic operations by path. atomic_calls.cpp counts; job_statistics.cpp reads.
#include "extended/atomics/atomic_counts.hpp"

#include "extended/event/thread_local_pool.hpp"

#include <atomic>

namespace hydrant {
namespace {

struct ThreadCounts {
  // Written by the owning thread only.
  std::array<std::atomic<uint64_t>, kAtomicPaths> of_path = {};

  void joined() noexcept {}
  void left() noexcept {}
  ThreadCounts* next_of_all = nullptr;
  ThreadCounts* next_orphan = nullptr;
};

}  // namespace

const char* atomic_path_name(AtomicPath path) noexcept {
  constexpr const char* kNames[kAtomicPaths] = {"self", "mapped", "messages", "adapter"};
  return kNames[static_cast<size_t>(path)];
}

void count_atomic(AtomicPath path) noexcept {
  ThreadCounts* const counts = ThreadLocalPool<ThreadCounts>::mine();
  if (counts == nullptr) return;
  std::atomic<uint64_t>& count = counts->of_path[static_cast<size_t>(path)];
  count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

std::array<uint64_t, kAtomicPaths> atomic_counts() noexcept {
  std::array<uint64_t, kAtomicPaths> sums = {};
  ThreadLocalPool<ThreadCounts>::for_each([&](const ThreadCounts& counts) {
    for (size_t i = 0; i < kAtomicPaths; ++i)
      sums[i] += counts.of_path[i].load(std::memory_order_relaxed);
  });
  return sums;
}

}  // namespace hydrant
