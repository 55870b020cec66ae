/* hydrant/monitor.h - the process's monitor of memory that goes away, for allocators and interposers.
 *
 * Pin caches must forget memory before its addresses mean something else. One monitor per process hears of it
 * and tells every cache (domain) that watches. libfirehose contains a monitor and exports hydrant_monitor();
 * the copy that the dynamic linker finds first serves all others. Who hands out memory, or takes it back,
 * finds it without linking it:
 *
 *     typedef const hydrant_monitor_t* (*find_monitor)(uint32_t);
 *     find_monitor find = (find_monitor)dlsym(RTLD_DEFAULT, "hydrant_monitor");
 *     const hydrant_monitor_t* monitor = find ? find(HYDRANT_MONITOR_VERSION) : NULL;
 *
 * Threads: every function from any thread, also while the caller holds locks of its own, an allocator's for
 * example: none allocates, frees, registers, deregisters or calls back. None is async-signal-safe.
 * C99 and C++. Includes only <stddef.h> and <stdint.h>.
 */
#ifndef HYDRANT_MONITOR_H
#define HYDRANT_MONITOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a member changes its meaning; new members are added at the end. */
#define HYDRANT_MONITOR_VERSION 1u

/* 2 MiB blocks of the address space that were ever pinned by a watching cache: one bit each, bit a >> 21 of
 * addresses below 2^47. Set for good before the pin may be hit; so memory whose bits are clear needs no
 * call. */
#define HYDRANT_MONITOR_BLOCK_SHIFT 21

/* How a cache may use what it caches of some memory. */
#define HYDRANT_COVER_NONE 0u /* not at all: nothing would say that this memory goes away */
#define HYDRANT_COVER_CHECKED \
  1u /* releases are reported: quiet() before each look into the cache */
#define HYDRANT_COVER_WATCHED 2u /* and new memory passes sync(): no check needed */
#define HYDRANT_COVER_ARENA 3u   /* its owner says everything in time: no check needed */

/* Flag of cover(): ask nothing of the kernel, start nothing. */
#define HYDRANT_COVER_ONLY_ARENAS 1u

/* A cache that wants to be told. Both functions are called from any thread, also under an allocator's locks:
 * they must not allocate, free, register, deregister, or wait for anybody who does. */
typedef struct hydrant_monitor_client {
  void* context;
  /* Forgets [addr, addr+len): afterwards no look into the cache finds what was there. */
  void (*forget)(void* context, uintptr_t addr, size_t len);
  /* Forgets all that is cached on the client's word alone. */
  void (*forget_vouched)(void* context);
  /* Nonzero if any of [addr, addr+len) is registered or being registered. */
  int (*pinned)(void* context, uintptr_t addr, size_t len);
} hydrant_monitor_client_t;

typedef struct hydrant_monitor_s {
  size_t size;      /* sizeof(hydrant_monitor_t) of the library that made it */
  uint32_t version; /* HYDRANT_MONITOR_VERSION */
  uint32_t reserved;

  const uint64_t* blocks; /* see HYDRANT_MONITOR_BLOCK_SHIFT; NULL while nothing was ever pinned */
  /* Odd while the reader has taken changes from the kernel and the caches have not forgotten them all. */
  const uint64_t* sequence;
  /* Number of the last removal (MADV_DONTNEED and the like) that the reader took; starts at 1. */
  const uint64_t* removals;

  /* Makes every watching cache forget [addr, addr+len), which is about to go away or has gone. An
   * allocator calls it before it discards pages that stay its own, and again afterwards: a registration of
   * neighbouring memory may have been extended over them in between. Registrations end later, from the
   * caches' own calls. Cost: about 50 ns and 100 ns per region forgotten. */
  void (*invalidate)(uintptr_t addr, size_t len);

  /* Nonzero if some watching cache has [addr, addr+len) or part of it registered or held. */
  int (*pinned)(uintptr_t addr, size_t len);

  /* Says that [addr, addr+len) is an allocator's that calls invalidate() before any of it is unmapped,
   * punched, purged or moved, until drop_arena(). 0, or nonzero when no more ranges (4096) can be noted:
   * such memory is then treated as any other. Whole pages. drop_arena() comes before the range is
   * unmapped, and invalidates. */
  int (*add_arena)(uintptr_t addr, size_t len);
  void (*drop_arena)(uintptr_t addr, size_t len);

  /* Returns when the caches have forgotten all that the kernel had reported before: *sequence was even once.
   * Enough after a call that released memory has returned, because the kernel lets it return only then. */
  void (*settle)(void);
  /* The same, and no release is under way in any other thread: what the caller got from the kernel before is
   * new memory to every cache afterwards. Cost: one system call, 0.3 us, when all is quiet. */
  void (*sync)(void);
  /* Forgets all that is cached on the client's word, because a file may have shrunk under it. */
  void (*files_changed)(void);

  /* ---- for caches ---- */

  /* Tells this cache from now on; the struct is copied. A number from 0 up, or -1: 64 caches are told
   * already. */
  int (*subscribe)(const hydrant_monitor_client_t* client);
  /* Returns when none of the client's functions is running or will be called. */
  void (*unsubscribe)(int number);
  /* Has the kernel report releases of [addr, addr+len) and answers how it may be cached:
   * HYDRANT_COVER_*. Call it after the registration is known as pending to forget(), and before it
   * begins. Starts the reader thread, unless flags is HYDRANT_COVER_ONLY_ARENAS.
   * Cost: 50 ns; some 5 us for a mapping seen for the first time. */
  uint32_t (*cover)(uintptr_t addr, size_t len, uint32_t flags);
  /* Sets the bits of `blocks`. Before quiet() at the end of a registration. */
  void (*note_pinned)(uintptr_t addr, size_t len);
  /* As sync(), but gives up after timeout_ns: nonzero then, and nothing cached may be used or made now. */
  int (*quiet)(uint64_t timeout_ns);
  /* Starts the reader if it can be. 0, or nonzero: reason() says why the kernel's reports are not to be
   * had. */
  int (*start)(void);
  /* "" while the kernel's reports are to be had or were not asked for. Static text. */
  const char* (*reason)(void);

  /* ---- for hooks ---- */

  /* Other memory was mapped over [addr, addr+len), and the kernel does not report that: as invalidate(), and
   * what was known of the mappings there is found out anew. Where `size` ends before it: invalidate(). */
  void (*replaced)(uintptr_t addr, size_t len);
} hydrant_monitor_t;

/* NULL when this library has no monitor of that version. The answer is valid until the process ends. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const hydrant_monitor_t*
hydrant_monitor(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif /* HYDRANT_MONITOR_H */
