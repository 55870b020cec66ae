/* What libfirehose_hooks.so exports for libfirehose, which looks it up by name: the symbol `hydrant_hooks_1`
 * is one of these. libfirehose writes its monitor into it; until then the hooks do nothing but mark threads.
 *
 * The hooks report only what the kernel does not (monitor.invalidate, monitor.replaced). They make sure
 * that memory which the kernel handed out is not returned to the program while a release of the same
 * addresses may still be unread (monitor.sync), that a call which released memory returns only when the
 * caches know (monitor.settle), and they show which threads are inside a call that may release memory, and
 * which: userfaultfd reports a removal (MADV_DONTNEED) before the pages are gone, so what was removed may be
 * cached again only when every call that was under way has returned; and a change that no such call explains
 * was made past the hooks.
 */
#ifndef HYDRANT_WATCH_HOOKS_ABI_H
#define HYDRANT_WATCH_HOOKS_ABI_H

#include <hydrant/monitor.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HYDRANT_HOOKS_VERSION 2u

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
/* A thread, as far as the hooks have seen it. The notes say what the call that it is in may release, beside
 * memory of libc's own heaps, which any call may release. They stay until the caches have forgotten what the
 * call released: the reader of a change finds the note of its caller. A length of 0 adds nothing. */
typedef struct hydrant_hooks_thread {
  uint64_t entered; /* monitor.removals when the call began that it is in, or its end; 0: in none */
  uint32_t tid;     /* 0: free. A thread that ended stays until its tid is found gone */
  uint32_t ending;
  uint64_t addr, len;             /* of the outermost call */
  uint64_t inner_addr, inner_len; /* of a call inside it: an allocator's, a signal handler's */
  uint32_t loading; /* calls of the dynamic loader it is in, which may release anything */
  uint32_t reserved;
  /* Its pthread_self(), which libc keeps at the end of a stack that it has mapped. 0: the first thread, or
   * a stack of the program's. Stays when the thread has ended. */
  uint64_t stack;
} hydrant_hooks_thread_t;

typedef struct hydrant_hooks {
  size_t size;
  uint32_t version;
  uint32_t families; /* HYDRANT_HOOKS_*; constant once the process's constructors have run */
  hydrant_hooks_thread_t* threads; /* 64-byte records, read with atomics */
  uint32_t thread_count;           /* records ever used; grows */
  uint32_t overflowed; /* nonzero: more threads than records; then nothing can be said */
  /* 64 MiB blocks that were ever memory of libc's malloc that no hook sees being mapped: bit a >> 26. */
  const uint64_t* heap_blocks;
  /* Written by libfirehose, with release, before it watches the first range, and never changed back while
   * a cache lives; NULL until then. Threads are marked as entered from the first call on, with or without a
   * monitor (entered is 1 without), so that none is overlooked that was inside a call when this was written.
   * A second monitor finds it taken and does without the hooks. */
  const hydrant_monitor_t* monitor;
  /* Where libc's malloc may release memory inside any call: 64 MiB blocks that were ever a heap of it, and
   * the addresses of its main one, as far as they are known. */
  const uint64_t* libc_blocks;
  const uintptr_t* main_heap_low;
  const uintptr_t* main_heap_high;
  /* `stack` of ended threads whose records others have taken; 0: none. libc may keep such a stack mapped for
   * a later thread. A full table loses some. */
  const uint64_t* ended_stacks;
  uint32_t ended_stack_count;
  /* How often `ending` was set, and how many of these records have been freed or given to other threads.
   * A thread releases memory after it has set `ending`, and may be gone when the reader looks for the
   * caller. */
  uint32_t endings;
  uint32_t endings_over;
  uint32_t
      malloc_untried; /* nonzero: that family is missing because no memory was left to try malloc */
} hydrant_hooks_t;
/* NOLINTEND(modernize-use-using) */

#define HYDRANT_HOOKS_HEAP_SHIFT 26

#ifdef __cplusplus
}
#endif

#endif /* HYDRANT_WATCH_HOOKS_ABI_H */
