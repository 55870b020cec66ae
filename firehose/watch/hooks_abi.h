/* What libfirehose_hooks.so exports for libfirehose, which looks it up by name: the symbol `hydrant_hooks_1`
 * is one of these. libfirehose writes its monitor into it; until then the hooks do nothing but mark threads.
 *
 * The hooks report only what the kernel does not (monitor.invalidate, monitor.replaced). They make sure
 * that memory which the kernel handed out is not returned to the program while a release of the same
 * addresses may still be unread (monitor.sync), that a call which released memory returns only when the
 * caches know (monitor.settle), and they show which threads are inside a call that may release memory:
 * userfaultfd reports a removal (MADV_DONTNEED) before the pages are gone, so what was removed may be cached
 * again only when every call that was under way has returned.
 */
#ifndef HYDRANT_WATCH_HOOKS_ABI_H
#define HYDRANT_WATCH_HOOKS_ABI_H

#include <hydrant/monitor.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HYDRANT_HOOKS_VERSION 1u

/* Which families of functions really resolve to the hooks in this process. */
#define HYDRANT_HOOKS_MAP 1u     /* mmap, munmap, mremap, madvise, shmat, shmdt, brk, sbrk */
#define HYDRANT_HOOKS_MALLOC 2u  /* the malloc family, or another allocator, which maps by symbol */
#define HYDRANT_HOOKS_THREADS 4u /* pthread_create */
#define HYDRANT_HOOKS_LOADER 8u  /* dlopen, dlmopen, dlclose */
#define HYDRANT_HOOKS_FILES 16u  /* ftruncate, truncate, fallocate */
#define HYDRANT_HOOKS_ALL 31u

/* NOLINTBEGIN(modernize-use-using): C */
/* A thread, as far as the hooks have seen it. */
typedef struct hydrant_hooks_thread {
  uint64_t entered; /* monitor.removals when the call began that it is in, or its end; 0: in none */
  uint32_t tid;     /* 0: free. A thread that ended stays until its tid is found gone */
  uint32_t ending;
  uint64_t reserved[6];
} hydrant_hooks_thread_t;

typedef struct hydrant_hooks {
  size_t size;
  uint32_t version;
  uint32_t families; /* HYDRANT_HOOKS_*; constant once the process's constructors have run */
  hydrant_hooks_thread_t* threads; /* 64-byte records, read with atomics */
  uint32_t thread_count;           /* records ever used; grows */
  uint32_t overflowed; /* nonzero: more threads than records; then nothing can be said */
  /* 64 MiB blocks that were ever a heap of libc's malloc beside its main one: bit a >> 26. Such heaps come
   * and go inside libc, unseen. */
  const uint64_t* heap_blocks;
  /* Written by libfirehose, with release, before it watches the first range, and never changed back while
   * a cache lives; NULL until then. Threads are marked as entered from the first call on, with or without a
   * monitor (entered is 1 without), so that none is overlooked that was inside a call when this was written.
   * A second monitor finds it taken and does without the hooks. */
  const hydrant_monitor_t* monitor;
} hydrant_hooks_t;
/* NOLINTEND(modernize-use-using) */

#define HYDRANT_HOOKS_HEAP_SHIFT 26

#ifdef __cplusplus
}
#endif

#endif /* HYDRANT_WATCH_HOOKS_ABI_H */
