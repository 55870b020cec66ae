/* hydrant/gasnet/membars.h - memory barriers between the threads of a process.
 *
 * gasnett_local_wmb()  orders stores before it ahead of stores after it, as every processor sees them
 *   gasnett_local_rmb()  orders loads before it ahead of loads after it
 *   gasnett_local_mb()   orders all loads and stores, including a store before it and a load after it
 *   gasnett_weak_*()     the same, and no effect in a program without threads
 *   gasnett_compiler_fence()  prevents compiler reordering only
 *
 * They order plain loads and stores, not non-temporal ones, which bypass the caches.
 * Threads  any, also in signal handlers.
 * Cost     x86-64: wmb and rmb no instruction (the processor keeps these orders), mb one locked instruction
 *          on the stack, about 5 ns. Elsewhere the compiler's fences.
 */
#ifndef HYDRANT_GASNET_MEMBARS_H
#define HYDRANT_GASNET_MEMBARS_H

#include <hydrant/gasnet/annotations.h>

#include <gasnet_config.h>

#define GASNETT_MEMBAR_CONFIG HYDRANT_CONFIG_MEMBARS

HYDRANT_TOOLS_BEGIN

GASNETT_INLINE(hydrant_tools_compiler_fence)
void hydrant_tools_compiler_fence(void) { __asm__ __volatile__("" ::: "memory"); }

#if defined(__x86_64__)
GASNETT_INLINE(hydrant_tools_local_wmb)
void hydrant_tools_local_wmb(void) { hydrant_tools_compiler_fence(); }
GASNETT_INLINE(hydrant_tools_local_rmb)
void hydrant_tools_local_rmb(void) { hydrant_tools_compiler_fence(); }
GASNETT_INLINE(hydrant_tools_local_mb)
void hydrant_tools_local_mb(void) {
  __asm__ __volatile__("lock; orl $0, (%%rsp)" ::: "memory", "cc");
}
#else
GASNETT_INLINE(hydrant_tools_local_wmb)
void hydrant_tools_local_wmb(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
GASNETT_INLINE(hydrant_tools_local_rmb)
void hydrant_tools_local_rmb(void) { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
GASNETT_INLINE(hydrant_tools_local_mb)
void hydrant_tools_local_mb(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#endif

GASNETT_INLINE(hydrant_tools_spinloop_hint)
void hydrant_tools_spinloop_hint(void) {
#if defined(__x86_64__) || defined(__i386__)
  __asm__ __volatile__("pause" ::: "memory");
#elif defined(__aarch64__)
  __asm__ __volatile__("isb" ::: "memory");
#else
  hydrant_tools_compiler_fence();
#endif
}

HYDRANT_TOOLS_END

#define gasnett_compiler_fence() hydrant_tools_compiler_fence()
#define gasnett_local_wmb() hydrant_tools_local_wmb()
#define gasnett_local_rmb() hydrant_tools_local_rmb()
#define gasnett_local_mb() hydrant_tools_local_mb()
#if HYDRANT_TOOLS_THREADS
#define gasnett_weak_wmb() hydrant_tools_local_wmb()
#define gasnett_weak_rmb() hydrant_tools_local_rmb()
#define gasnett_weak_mb() hydrant_tools_local_mb()
#else
#define gasnett_weak_wmb() ((void)0)
#define gasnett_weak_rmb() ((void)0)
#define gasnett_weak_mb() ((void)0)
#endif
/* For the body of a loop that waits for another thread's store: one `pause` and a compiler fence. */
#define gasnett_spinloop_hint() hydrant_tools_spinloop_hint()

#endif
