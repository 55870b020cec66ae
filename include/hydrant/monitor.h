/* hydrant/monitor.h - the process's monitor of released memory, for allocators and interposers.
 *
 * Pin caches must forget memory before its addresses are reused. One monitor per process receives
 * release events and notifies every subscribed cache (domain). libfirehose contains a monitor and
 * exports hydrant_monitor(). If several copies are loaded, all use the one that the dynamic linker
 * finds first. An allocator finds the monitor without linking it:
 *
 *     typedef const hydrant_monitor_t* (*find_monitor)(uint32_t);
 *     find_monitor find = (find_monitor)dlsym(RTLD_DEFAULT, "hydrant_monitor");
 *     const hydrant_monitor_t* monitor = find ? find(HYDRANT_MONITOR_VERSION) : NULL;
 *
 * Threads: every function from any thread, even while the caller holds its own locks, for example an
 * allocator's. No function allocates, frees, registers, deregisters or calls back. None is
 * async-signal-safe.
 * C99 and C++. Includes only <stddef.h> and <stdint.h>.
 */
#ifndef HYDRANT_MONITOR_H
#define HYDRANT_MONITOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Incremented when a member changes its meaning; new members are added at the end. */
#define HYDRANT_MONITOR_VERSION 1u

/* Bitmap of 2 MiB blocks that were ever pinned by a watching cache: bit a >> 21, for addresses below
 * 2^47. A bit is set before the pin can be hit and stays set. Releases of memory whose bits are clear
 * need no call. */
#define HYDRANT_MONITOR_BLOCK_SHIFT 21

/* How a cache may cache a range of memory; the result of cover(). */
#define HYDRANT_COVER_NONE 0u    /* not at all: no source reports the release of this memory */
#define HYDRANT_COVER_CHECKED 1u /* releases are reported: call quiet() before each cache lookup */
#define HYDRANT_COVER_WATCHED 2u /* and new mappings pass sync(): no check needed */
#define HYDRANT_COVER_ARENA 3u   /* its owner reports every release in time: no check needed */

/* Flag of cover(): do not register with the kernel, and do not start the reader thread. */
#define HYDRANT_COVER_ONLY_ARENAS 1u
/* As above, and of arenas only those of add_kept_arena(). Pass it only if the
 * monitor's `size` extends past that member. */
#define HYDRANT_COVER_ONLY_KEPT_ARENAS 2u
/* Flag of cover(): also ask the kernel to report what happens to memory of an arena that does not keep pinned
 * memory, where the kernel can (private anonymous memory). The result is HYDRANT_COVER_ARENA all the same.
 * For a cache that has to know what was unmapped; see set_unmapped(). Older monitors ignore it. */
#define HYDRANT_COVER_REPORTED_ARENAS 4u

/* A cache that wants notifications. Its functions are called from any thread, several at a time, even
 * under an allocator's locks and in signal handlers. They must not allocate, free, register, deregister
 * or wait. They must not wait for a mutex either: its holder may be the code that the signal handler
 * interrupted. */
typedef struct hydrant_monitor_client {
  void* context;
  /* Forgets [addr, addr+len): later lookups do not find the registrations made before the call. */
  void (*forget)(void* context, uintptr_t addr, size_t len);
  /* Forgets all memory that is cached only because of hydrant_vouch(). */
  void (*forget_vouched)(void* context);
  /* Nonzero if any part of [addr, addr+len) is registered, or being registered or unpinned, or if the
   * cache remembers something else about the memory there, or if this cannot be determined now. */
  int (*pinned)(void* context, uintptr_t addr, size_t len);
} hydrant_monitor_client_t;

typedef struct hydrant_monitor_s {
  size_t size;      /* sizeof(hydrant_monitor_t) of the library that made it */
  uint32_t version; /* HYDRANT_MONITOR_VERSION */
  uint32_t reserved;

  const uint64_t* blocks; /* see HYDRANT_MONITOR_BLOCK_SHIFT; NULL before the first pin */
  /* Odd while the reader has read events from the kernel that the caches have not all processed. */
  const uint64_t* sequence;
  /* Number of the last removal (MADV_DONTNEED and similar) that the reader has read; starts at 1. */
  const uint64_t* removals;

  /* Makes every watching cache forget [addr, addr+len), which is about to be released or was released. An
   * allocator that discards its own pages calls it before the discard and again afterwards: in between,
   * a registration of neighbouring memory may have been extended over them. The caches deregister
   * later, from their own calls.
   * Cost: about 50 ns, and 100 ns per region forgotten. */
  void (*invalidate)(uintptr_t addr, size_t len);

  /* Nonzero if a watching cache has any part of [addr, addr+len) registered or held, also while a
   * registration is being made or undone, or if this cannot be determined now. */
  int (*pinned)(uintptr_t addr, size_t len);

  /* Declares [addr, addr+len), whole pages, as an arena, until drop_arena(). The allocator then calls
   * invalidate() before any part of it is unmapped, hole-punched, purged or moved. Call drop_arena()
   * before the range is unmapped; it invalidates the range.
   * Returns 0, or nonzero if the table of 4096 arenas is full: such memory is treated like any other. */
  int (*add_arena)(uintptr_t addr, size_t len);
  void (*drop_arena)(uintptr_t addr, size_t len);

  /* Returns when the caches have processed every event that the kernel had reported before: *sequence
   * was even once. This suffices after a releasing system call, because the kernel returns from it only
   * then. */
  void (*settle)(void);
  /* Like settle(), and also waits until no release is under way in another thread. Afterwards every
   * cache treats memory that the caller had received from the kernel before as new.
   * Cost: one system call, 0.3 us, without pending events. */
  void (*sync)(void);
  /* Forgets all memory cached because of hydrant_vouch(), because a file may have shrunk under it. */
  void (*files_changed)(void);

  /* ---- for caches ---- */

  /* Subscribes a cache; the struct is copied. Returns a number from 0 up, or -1 if 64 caches are
   * subscribed. */
  int (*subscribe)(const hydrant_monitor_client_t* client);
  /* Unsubscribes; returns when no function of the client is running or will be called. */
  void (*unsubscribe)(int number);
  /* Asks the kernel to report releases of [addr, addr+len) and returns how the range may be cached:
   * HYDRANT_COVER_*. Call it after forget() can see the pending registration, and before the
   * registration begins. Starts the reader thread, unless flags has a HYDRANT_COVER_ONLY_*.
   * Cost: 50 ns; about 5 us for a mapping seen for the first time. */
  uint32_t (*cover)(uintptr_t addr, size_t len, uint32_t flags);
  /* Sets the bits of `blocks`. Call it before quiet() at the end of a registration. */
  void (*note_pinned)(uintptr_t addr, size_t len);
  /* Like sync(), but gives up after timeout_ns and returns nonzero: no cached registration may then be
   * used or added. */
  int (*quiet)(uint64_t timeout_ns);
  /* Starts the reader thread if possible, also after a shortage. Returns 0, or nonzero if the kernel cannot
   * report releases (now); reason() returns the cause. */
  int (*start)(void);
  /* "" while the kernel's reports are available or were not requested. Static text. */
  const char* (*reason)(void);

  /* ---- for hooks ---- */

  /* Like invalidate(), for other memory mapped over [addr, addr+len) by a call that the kernel does not
   * report. Also discards what the monitor knew of the mappings there. Call invalidate() instead if
   * `size` ends before this member. */
  void (*replaced)(uintptr_t addr, size_t len);

  /* ---- for caches; present only if `size` extends past them ---- */

  /* Stops the kernel's reports for memory of which no cache has a registration, so that the program may
   * register it with a userfaultfd of its own. Cost: 1 to 2 us for each mapping, and the kernel walks its
   * page tables: 50 ms for each GiB of small pages that was touched, in which no thread maps or unmaps. */
  void (*unwatch_unused)(void);

  /* Nonzero permanently from the first release on that the hooks missed, and from the start with
   * FIREHOSE_HITS=checked. HYDRANT_COVER_WATCHED memory then counts as HYDRANT_COVER_CHECKED. */
  const uint32_t* checked;
  /* Number of releases that the hooks missed; counted only until `checked` is set. */
  const uint64_t* raw_changes;
  /* Registers end_free_hits(context), called once when `checked` is set; `context` is that of the
   * subscribe() struct. After it returns, lookups that do not call quiet() must not find memory covered
   * as WATCHED. It must not wait for a lock. Without it, forget() is called for all memory.
   * Returns nonzero if there is no such number. */
  int (*set_end_free_hits)(int number, void (*end_free_hits)(void* context));

  /* Like quiet(), but only for releases of [addr, addr+len). For the end of a registration of that range. */
  int (*quiet_range)(uintptr_t addr, size_t len, uint64_t timeout_ns);

  /* ---- for hooks; present only if `size` extends past it ---- */

  /* Like sync(), for the memory [addr, addr+len) alone, which the caller has just received from the kernel.
   * Does not wait for other threads' calls: while a release is under way, every cache forgets the range, as
   * memory that was unmapped. */
  void (*sync_range)(uintptr_t addr, size_t len);

  /* ---- for caches; present only if `size` extends past it ---- */

  /* Registers unmapped(context, addr, len) for the cache that subscribe() has given `number`; `context` is
   * that of its struct. It replaces forget() for memory [addr, addr+len), in bytes and whole pages, that was
   * unmapped or moved, or over which other memory was mapped: what is at these addresses afterwards is not
   * what was registered. Emptied pages keep their mapping: forget() reports them.
   * Also called by drop_arena(), since such memory is unmapped next, and by sync_range(); if the range of
   * that begins inside a page, forget() reports this page. invalidate() calls forget().
   * unmapped() obeys the rules of forget(), and forgets the range as well. NULL, the initial value: forget()
   * is called for all. Returns 0, or nonzero if `number` is not subscribed. */
  int (*set_unmapped)(int number, void (*unmapped)(void* context, uintptr_t addr, size_t len));

  /* ---- for allocators; present only if `size` extends past it ---- */

  /* Like add_arena(), with a further promise: memory that is pinned stays where it is. Before the allocator
   * unmaps, replaces, moves or empties any part, it calls invalidate() for that part, or drop_arena() for the
   * whole range, and then pinned(). If that returns nonzero, it leaves the memory alone and calls pinned()
   * again later. Returns as add_arena(); drop_arena() ends both kinds. If a registration may not outlive its
   * memory (HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE in pin_cache.h), only such arenas are cached. */
  int (*add_kept_arena)(uintptr_t addr, size_t len);

  /* ---- for hooks and clients; present only if `size` extends past it ---- */

  /* Stops the kernel's reports for [addr, addr+len), whole pages, so that the program may register them with
   * a userfaultfd of its own: UFFDIO_REGISTER fails with EBUSY before. Every cache forgets its regions there,
   * and the call waits timeout_ns nanoseconds until they are deregistered, or up to 2 s while it makes
   * progress. Memory that is held stays watched. Afterwards memory that is registered with another
   * userfaultfd is pinned while held, and not cached. Returns 0 if no part of the range is watched any more,
   * else -1; also -1 for a range that is empty, wraps around or divides a watched page, and if no monitor
   * runs.
   * Threads: any, in signal handlers too; not inside a call of a registrar. Cost: as unwatch_unused() for the
   * mappings in the range; what is cached there takes as long as its deregistration by another thread. */
  int (*unwatch_range)(uintptr_t addr, size_t len, uint64_t timeout_ns);

  /* ---- for caches; present only if `size` extends past it ---- */

  /* For a cache that has become empty: like unwatch_unused(), but only for mappings of up to 16 MiB, which
   * cost little. Does nothing if the hooks call unwatch_range() when another userfaultfd registers memory. */
  void (*unwatch_idle)(void);

  /* ---- for hooks; present only if `size` extends past it ---- */

  /* Something else has ended registrations with userfaultfds in [addr, addr+len), bytes (Linux before 6.17
   * then ends those of other userfaultfds, too): every cache forgets the range. Threads: any, in signal
   * handlers too. */
  void (*not_watched)(uintptr_t addr, size_t len);

  /* ---- for caches; present only if `size` extends past it ---- */

  /* Registers wanted(context) for the cache that subscribe() has given `number`: unwatch_range() waits for
   * registrations that the cache has forgotten, and calls it so that they end at once, in another thread.
   * It obeys the rules of forget(). NULL, the initial value: they end in a later call of the cache. Returns
   * 0, or nonzero if `number` is not subscribed. */
  int (*set_wanted)(int number, void (*wanted)(void* context));

  /* ---- for hooks; present only if `size` extends past it ---- */

  /* The calling thread ends. `descriptor` is its pthread_self(), an address on a stack that libc has mapped,
   * and unmaps inside calls without hooks, such as pthread_join(): that does not count as a release that the
   * hooks missed. Cost: some 50 ns. */
  void (*stack_ends)(uintptr_t descriptor);
} hydrant_monitor_t;

/* Returns NULL if this library has no monitor of that version. The result is valid until the process
 * ends. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const hydrant_monitor_t*
hydrant_monitor(uint32_t version);

#ifdef __cplusplus
}
#endif

#endif /* HYDRANT_MONITOR_H */
