// The fence between hits and threads that close regions: free for the hit, paid by the closer.
//
// A hit posts its hold with a plain store and then reads the region's gate; a closer shuts the gate
// and then reads the holds. Store-then-load on both sides needs a full fence on both sides, or a
// fence that one side executes on behalf of the other: membarrier(PRIVATE_EXPEDITED) makes every
// running thread of the process pass a full barrier (0.3 us alone, about 12 us beside a running
// thread, so closers batch their work). docs/pin_cache.md has the whole argument.
//
// A sandbox may refuse membarrier only later, when hits rely on it. Then the closer interrupts the
// other processors by a change of its page tables, which works on x86-64 without INVLPGB; elsewhere it
// visits each processor; and if that is refused as well, the process is aborted, because the library cannot
// tell which pins are in use.
//
// If the kernel refuses membarrier, and in ThreadSanitizer builds (base/membarrier.hpp), both sides use
// sequentially consistent operations instead.
#pragma once

#include "firehose/base/machine/membarrier.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant::asymmetric_fence {

// Registers this process for membarrier, once; call before any hold. True if the light side is free.
// FIREHOSE_MEMBARRIER=0 in the environment refuses it on purpose.
inline bool setup() noexcept { return membarrier::enable(); }

// The result of setup(); false before it. Constant afterwards.
inline bool asymmetric() noexcept { return membarrier::is_enabled(); }

// The closer's side: afterwards every hold posted before the call is visible to the caller, and every
// hold posted later sees what the caller wrote before the call. Cost: one system call.
void heavy() noexcept;

// Runs the calling thread on each processor that this process may use: a thread that was running there has
// passed a context switch, and so a full barrier; one that runs there later comes after it. Requires: no
// thread of the process is confined to processors that the calling one may not use. False if the kernel
// refuses. Cost: some 10 us for each processor.
bool visit_processors() noexcept;

// The holder's side, between posting and checking, when asymmetric() is false.
inline void light_symmetric() noexcept {
#if !HYDRANT_TSAN
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace hydrant::asymmetric_fence
