/* hydrant/alloc.h - memory that a pin cache may keep registered without watching it.
 *
 * An allocator beside the program's own: malloc, free and operator new stay unchanged in the program
 * and in every library. Memory from this library (libhydrant_alloc)
 *   - starts at a huge page from 2 MiB up, and at a page above 16 KiB. So it is registered by whole huge
 *     pages where the kernel has them, and two large allocations never share a registered page;
 *   - is announced to the process's pin caches (hydrant/monitor.h), which are notified before it is unmapped.
 *     Registered memory stays in place after hydrant_free(), so it is registered once, not at each use.
 * The allocator also works without a pin cache. Neither library requires the other.
 *
 *     double* field = hydrant_alloc(64u << 20);
 *     if (field == NULL) ...
 *     hydrant_pin_t pin = hydrant_pin(domain, field, 64u << 20, HYDRANT_LOCAL_WRITE);
 *     ...
 *     hydrant_release(pin);
 *     hydrant_free(field);     still registered: the next pin of these addresses is a hit
 *
 * There are two backends. "jemalloc" is used if its library (libhydrant_alloc_jemalloc) is linked, as
 * Hydrant::alloc and hydrant_alloc.pc do, or preloaded. It needs static thread-local storage, which a
 * process that loads this library later (dlopen, a Python module) does not have. There, and where
 * jemalloc was not built, the library's own allocator "extents" is used, which takes one mutex.
 * hydrant_alloc_backend_reason() returns why the backend was chosen.
 *
 * Threads: every function from any thread; none is async-signal-safe. The child of a fork may use all
 * functions; private memory is copied on write as usual.
 * Errors: NULL with errno ENOMEM or EINVAL. hydrant_free() preserves errno.
 * Cost: a small allocation and its free take about 30 ns with jemalloc, 60 ns with extents. The first
 * use of memory also costs the kernel's page faults. No function waits for a registration. A pointer
 * that this library did not allocate, or a second free, may end the program with a message.
 *
 * C99 and C++. Includes only <stddef.h> and <stdint.h>. hydrant/alloc.hpp adapts it to C++ containers.
 */
#ifndef HYDRANT_ALLOC_H
#define HYDRANT_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HYDRANT_ALLOC_API __attribute__((visibility("default")))
#else
#define HYDRANT_ALLOC_API
#endif

/* Allocates at least `bytes` uninitialised bytes, aligned to 16 or more (see above). 0 bytes count as 1.
 * Errors: NULL with ENOMEM. */
HYDRANT_ALLOC_API void* hydrant_alloc(size_t bytes);

/* Allocates count * bytes zeroed bytes. The zeros are written, so all pages are backed by memory on
 * return.
 * Errors: NULL with ENOMEM, also if the product overflows. */
HYDRANT_ALLOC_API void* hydrant_calloc(size_t count, size_t bytes);

/* Like hydrant_alloc(), at a multiple of `alignment`, a power of two of any size. `bytes` need not be a
 * multiple of `alignment`.
 * Errors: NULL with EINVAL or ENOMEM. */
HYDRANT_ALLOC_API void* hydrant_aligned_alloc(size_t alignment, size_t bytes);

/* Resizes an allocation to `bytes` bytes and keeps its contents; it may move. A requested alignment is
 * lost when it moves. NULL acts as hydrant_alloc(); 0 bytes count as 1, so it never frees. Shared
 * memory stays shared.
 * Errors: NULL with ENOMEM; the allocation is unchanged. */
HYDRANT_ALLOC_API void* hydrant_realloc(void* p, size_t bytes);

/* Frees an allocation; NULL has no effect. Memory that a cache has registered or held stays in place
 * until it is reused or deregistered: at most 1 us more than another free. Other memory returns to the
 * kernel by whole 2-MiB pages: with jemalloc after about 10 s, with extents when more than 64 MiB is
 * free. */
HYDRANT_ALLOC_API void hydrant_free(void* p);

/* Usable bytes of an allocation, at least the requested size; 0 for NULL. */
HYDRANT_ALLOC_API size_t hydrant_alloc_usable_size(const void* p);

/* Nonzero if the address lies in this library's address space, allocated or not. Cost: two loads. */
HYDRANT_ALLOC_API int hydrant_alloc_owns(const void* addr);

/* Returns all free memory that no cache has registered to the kernel now. Returns the number of bytes.
 * Free memory in the caches of other threads is not reached.
 * Cost: the system calls, made with the arenas locked. */
HYDRANT_ALLOC_API size_t hydrant_alloc_trim(void);

/* ---- memory for other processes --------------------------------------------------------------- */

/* Like hydrant_aligned_alloc(), backed by a memory file that another process can map. Free it with
 * hydrant_free(). Always served by "extents".
 *
 * After a fork the child cannot access the parent's shared memory, so that it cannot write into the
 * parent's heap: its addresses fault in the child, hydrant_free() ignores them, and hydrant_realloc()
 * fails with EINVAL. The child's own allocations belong to the child.
 *
 * An address keeps its place in the file for ever. While a cache has the memory registered for a peer
 * that maps it, the pages stay: the next allocation there is visible to the peer. At most 1 GiB of free
 * memory is kept registered. Beyond it, caches are requested to release memory (hydrant/monitor.h,
 * invalidate()), which then returns to the kernel.
 * Errors: NULL with EINVAL or ENOMEM; ENOMEM also if `bytes` exceeds the limit on file sizes (ulimit -f),
 * which HYDRANT_LOG=info names in one line on standard error. */
HYDRANT_ALLOC_API void* hydrant_alloc_shared(size_t alignment, size_t bytes);

typedef struct hydrant_alloc_location {
  int32_t fd; /* owned by the library, never closed; duplicate it to keep it */
  uint32_t reserved;
  uint64_t offset;     /* of the address in the file, bytes */
  uint64_t file_bytes; /* constant: the file is sealed against shrinking and growing */
} hydrant_alloc_location_t;

/* Finds the file and offset of an address of shared memory. The descriptor can be sent by SCM_RIGHTS or
 * pidfd_getfd(). Security: the file also contains other memory of this process, so give it only to
 * trusted processes.
 * Errors: GASNET_ERR_BAD_ARG: not shared memory, or the parent's; else 0 (GASNET_OK). */
HYDRANT_ALLOC_API int hydrant_alloc_shared_location(const void* addr,
                                                    hydrant_alloc_location_t* location);

/* ---- backend and statistics ------------------------------------------------------------------- */

/* The backend of private memory in this process: "jemalloc" or "extents". Decided at the first use and
 * constant afterwards; the environment variable HYDRANT_ALLOC_BACKEND=extents forces "extents". */
HYDRANT_ALLOC_API const char* hydrant_alloc_backend(void);
/* Why this backend was chosen: jemalloc's version, or why it cannot be used. Never NULL, never changes. */
HYDRANT_ALLOC_API const char* hydrant_alloc_backend_reason(void);

/* Looks for a pin cache's monitor and announces all arenas to it. The library does this whenever it
 * reserves address space. Only programs that load libfirehose with dlopen() after allocating need this
 * call. Cost: 1 us. */
HYDRANT_ALLOC_API void hydrant_alloc_announce(void);

typedef struct hydrant_alloc_arena_stats {
  uint64_t in_use_bytes;      /* allocated, rounded up; includes the caches of threads */
  uint64_t touched_bytes;     /* whole 2-MiB blocks that may hold memory */
  uint64_t idle_bytes;        /* of touched_bytes: blocks without used or cached memory */
  uint64_t reserved_bytes;    /* address space; never returned to the kernel */
  uint64_t unannounced_bytes; /* of reserved_bytes: not announced to any monitor */
  uint64_t emptied_bytes;     /* returned to the kernel, total */
  uint64_t kept_blocks; /* blocks kept instead of returned because a cache had them registered */
} hydrant_alloc_arena_stats_t;

typedef struct hydrant_alloc_stats {
  size_t size;          /* set it to sizeof(hydrant_alloc_stats_t); returns the bytes filled in */
  uint32_t has_monitor; /* nonzero: connected to a pin cache's monitor */
  uint32_t reserved;
  hydrant_alloc_arena_stats_t own;    /* private memory */
  hydrant_alloc_arena_stats_t shared; /* hydrant_alloc_shared() */
  /* Free shared memory kept because a cache had it registered, at the last check; and the total of
   * 2-MiB blocks that caches were requested to release. */
  uint64_t shared_kept_bytes;
  uint64_t shared_recalled_blocks;
} hydrant_alloc_stats_t;

/* Reads a snapshot; fields may be from slightly different times. Cost: about 10 us with jemalloc. */
HYDRANT_ALLOC_API void hydrant_alloc_get_stats(hydrant_alloc_stats_t* stats);

#ifdef __cplusplus
}
#endif

#endif /* HYDRANT_ALLOC_H */
