// Full memory barriers for all threads of the process at the cost of one of them: membarrier(2). What is
// built of them: firehose/asymmetric_fence.hpp (hits and closers), base/buffer_pool.hpp (owners and raiders).
//
// Where the kernel refuses it, and in ThreadSanitizer builds (which understand neither fences nor
// membarrier), both sides of such a protocol use sequentially consistent operations instead; this header is
// the only place that knows.
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

// A full barrier of the calling thread. In ThreadSanitizer builds, where the compiler refuses the standard
// one, it is the machine's all the same, and the sanitizer does not see it.
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

// Registers this process for it, once, and tries it; call it before the first thread relies on it. True if
// works(). FIREHOSE_MEMBARRIER=0 in the environment refuses it on purpose.
bool switch_on() noexcept;

// What switch_on() found; false before it. Constant afterwards.
bool works() noexcept;

// Every running thread of the process passes a full barrier. False if the kernel refuses, which a sandbox
// may begin to do later. Requires: works(). Cost: one system call, 0.3 us alone, some 12 us beside a running
// thread.
bool barrier() noexcept;

}  // namespace hydrant::membarrier
