/* The object that libfirehose_hooks.so exports as `hydrant_hooks_1`; libfirehose looks it up by that name and
 * writes its monitor into it. Until then the hooks only mark threads. With a monitor they do the following:
 *  - They report the releases that the kernel does not report (monitor.invalidate, monitor.replaced).
 *  - They do not return memory from the kernel to the program while a release of the same addresses may be
 *    unread (monitor.sync).
 *  - A call that released memory returns only when the caches have forgotten it (monitor.settle).
 *  - They show which threads are inside a call that may release memory, and which memory. userfaultfd reports
 *    a removal (MADV_DONTNEED) before the pages are gone, so removed memory may be cached again only when
 *    every call that was under way has returned. A change that no such call explains bypassed the hooks.
 */
#ifndef HYDRANT_WATCH_HOOKS_ABI_H
#define HYDRANT_WATCH_HOOKS_ABI_H

#include <hydrant/monitor.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HYDRANT_HOOKS_VERSION 3u

/* Which families of functions really resolve to the hooks in this process. */
#define HYDRANT_HOOKS_MAP 1u     /* mmap, munmap, mremap, madvise, shmat, shmdt, brk, sbrk */
#define HYDRANT_HOOKS_MALLOC 2u  /* the malloc family, or another allocator, which maps by symbol */
#define HYDRANT_HOOKS_THREADS 4u /* pthread_create */
#define HYDRANT_HOOKS_LOADER 8u  /* dlopen, dlmopen, dlclose */
#define HYDRANT_HOOKS_FILES 16u  /* ftruncate, truncate, fallocate */
#define HYDRANT_HOOKS_ALL 31u

/* A note of this length: the call may release memory at any address. */
#define HYDRANT_HOOKS_ANYTHING UINT64_MAX

/* NOLINTBEGIN(modernize-use-using): C */
/* The record of a thread that has called a hook. The notes (address and length) say what its current call may
 * release, beside memory of libc's own heaps, which any call may release. They stay until the caches have
 * forgotten what the call released, so the reader of a change finds its caller's note. Length 0: no note. */
typedef struct hydrant_hooks_thread {
  uint64_t entered; /* monitor.removals when its current call, or its end, began; 0: in no call */
  uint32_t tid;     /* 0: free. Stays until the kernel no longer knows the tid */
  uint32_t ending;
  uint64_t addr, len; /* range of the outermost call */
  uint64_t inner_addr,
      inner_len;    /* range of a call inside it, made by an allocator or a signal handler */
  uint32_t loading; /* depth of calls of the dynamic loader, which may release anything */
  uint32_t reserved;
  /* Its pthread_self(), which libc keeps at the end of a stack that it has mapped. 0: the first thread, or a
   * thread on a stack from the program. Stays when the thread has ended. */
  uint64_t stack;
} hydrant_hooks_thread_t;

typedef struct hydrant_hooks {
  size_t size;
  uint32_t version;
  uint32_t families; /* HYDRANT_HOOKS_*; constant once the process's constructors have run */
  hydrant_hooks_thread_t* threads; /* 64-byte records, read with atomics */
  uint32_t thread_count;           /* records ever used; grows */
  uint32_t overflowed; /* nonzero: more threads than records; the records then prove nothing */
  /* 64 MiB blocks that were ever memory of libc's malloc that no hook sees being mapped: bit a >> 26. */
  const uint64_t* heap_blocks;
  /* Written by libfirehose, with release, before it watches the first range, and never changed back while
   * a cache lives; NULL until then. Threads are marked as entered from the first call on, also without a
   * monitor (entered is then 1), so that a thread inside a call at the time of the write is not overlooked.
   * A second monitor finds it set and works without the hooks. */
  const hydrant_monitor_t* monitor;
  /* Memory that libc's malloc may release inside any call: 64 MiB blocks that were ever one of its heaps, and
   * the addresses of its main heap, as far as they are known. */
  const uint64_t* libc_blocks;
  const uintptr_t* main_heap_low;
  const uintptr_t* main_heap_high;
  /* `stack` of ended threads whose records other threads have claimed; 0: none. libc may keep such a stack
   * mapped for a later thread. A full table loses entries. */
  const uint64_t* ended_stacks;
  uint32_t ended_stack_count;
  /* Counts of `ending` being set, and of such records being freed or claimed by other threads. A thread
   * releases memory after it has set `ending`, and may have exited when the reader looks for the caller. */
  uint32_t endings;
  uint32_t endings_over;
  uint32_t reserved;
  const char*
      malloc_fault; /* why the malloc family is missing, if a trial of malloc has shown it; or NULL */
} hydrant_hooks_t;
/* NOLINTEND(modernize-use-using) */

#define HYDRANT_HOOKS_HEAP_SHIFT 26

#ifdef __cplusplus
}
#endif

#endif /* HYDRANT_WATCH_HOOKS_ABI_H */
