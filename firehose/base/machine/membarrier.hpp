// Full memory barriers on all threads of the process by one system call of one thread: membarrier(2). Users:
// firehose/hit/asymmetric_fence.hpp (hits and closers), base/buffer_pool.hpp (owners and thieves).
//
// Without the system call, and in ThreadSanitizer builds (which understand neither fences nor membarrier),
// both sides of such a protocol use sequentially consistent operations. Only this header makes that choice.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define HYDRANT_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HYDRANT_TSAN 1
#endif
#endif
#ifndef HYDRANT_TSAN
#define HYDRANT_TSAN 0
#endif

#include <atomic>

namespace hydrant {

// A full barrier of the calling thread. ThreadSanitizer builds reject the standard fence, so they issue the
// machine instruction, which the sanitizer does not see.
inline void full_fence() noexcept {
#if !HYDRANT_TSAN
  std::atomic_thread_fence(std::memory_order_seq_cst);
#elif defined(__x86_64__)
  asm volatile("mfence" ::: "memory");
#else
  __sync_synchronize();
#endif
}

}  // namespace hydrant

namespace hydrant::membarrier {

// Registers this process once and tries the call. Call it before any thread relies on barrier(). Returns
// is_enabled(). FIREHOSE_MEMBARRIER=0 in the environment disables it.
bool enable() noexcept;

// The result of enable(); false before it, constant afterwards.
bool is_enabled() noexcept;

// Runs a full barrier on every running thread of the process. False if the kernel refuses, which a sandbox
// may start to do later. Requires: is_enabled(). Cost: one system call, 0.3 us alone, about 12 us beside a
// running thread.
bool barrier() noexcept;

}  // namespace hydrant::membarrier
