/* hydrant/alloc.h - memory that a pin cache may keep registered without watching it.
 *
 * An allocator beside the program's own: malloc, free and operator new stay what they are, here and in
 * whatever is loaded with this library (libhydrant_alloc). Memory from here
 *   - starts at a huge page from 2 MiB up, and at a page above 16 KiB, so that it is registered by whole
 *     huge pages where the kernel has them, and two large allocations never share a registered page;
 *   - is announced to the process's pin caches (hydrant/monitor.h): they are told before it goes away,
 *     and what they have registered stays where it is when it is freed, so that it is registered once and
 *     not each time it is used.
 * It works without a pin cache, too; libfirehose does not need it, and is not needed.
 *
 *     double* field = hydrant_alloc(64u << 20);
 *     if (field == NULL) ...
 *     hydrant_pin_t pin = hydrant_pin(domain, field, 64u << 20, HYDRANT_LOCAL_WRITE);
 *     ...
 *     hydrant_release(pin);
 *     hydrant_free(field);     still registered: whoever gets these addresses next is hit at once
 *
 * Two allocators stand behind it. "jemalloc" is used where its library (libhydrant_alloc_jemalloc) came
 * with the program: linked, as Hydrant::alloc and hydrant_alloc.pc do, or preloaded. It needs static
 * thread-local storage, for which a process that loads this library later (dlopen, a Python module) has
 * no room; there, and where it was not built, "extents" serves, an allocator of our own behind one mutex.
 * hydrant_alloc_backend_reason() says which, why.
 *
 * Threads: every function from any thread; none is async-signal-safe. The child of a fork may use all of
 * it: its private memory is its own copy, as of any memory.
 * Errors: NULL and errno: ENOMEM, EINVAL. hydrant_free() keeps errno.
 * Cost: some 30 ns for a small one and its free with jemalloc, 60 with extents; memory that is used for the
 * first time costs what the kernel takes for its pages. No function waits for a registration.
 * A pointer that did not come from here, or is freed twice, may end the program with a message.
 *
 * C99 and C++. Includes only <stddef.h> and <stdint.h>. hydrant/alloc.hpp has it for containers.
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

/* At least `bytes` bytes with anything in them, aligned to 16 and more, see above; 0 bytes are 1.
 * NULL with ENOMEM. */
HYDRANT_ALLOC_API void* hydrant_alloc(size_t bytes);

/* count * bytes zeroes. They are written, so that all of it is real memory afterwards.
 * NULL with ENOMEM, also where the product is no size. */
HYDRANT_ALLOC_API void* hydrant_calloc(size_t count, size_t bytes);

/* As hydrant_alloc(), starting at a multiple of `alignment`: a power of two, of any size; `bytes` need
 * not be a multiple of it. NULL with EINVAL or ENOMEM. */
HYDRANT_ALLOC_API void* hydrant_aligned_alloc(size_t alignment, size_t bytes);

/* Makes an allocation hold `bytes` bytes, elsewhere if need be, with what it had in it; an alignment that
 * was asked for is lost when it moves. NULL is as hydrant_alloc(), 0 bytes are 1: it never frees. Shared
 * memory stays shared. NULL with ENOMEM, and the allocation is as it was. */
HYDRANT_ALLOC_API void* hydrant_realloc(void* p, size_t bytes);

/* Ends an allocation; NULL is nothing. Memory that a cache has registered or held stays as it is until it
 * is used again, or not registered any more: at most 1 us more than a free of other memory. The rest goes
 * back to the kernel by whole 2-MiB pages, some 10 s later with jemalloc, beyond 64 MiB of it with
 * extents. */
HYDRANT_ALLOC_API void hydrant_free(void* p);

/* Bytes that may be used of an allocation, at least those asked for; 0 for NULL. */
HYDRANT_ALLOC_API size_t hydrant_alloc_usable_size(const void* p);

/* Nonzero if the address lies in this library's address space, in use or not. Cost: two loads. */
HYDRANT_ALLOC_API int hydrant_alloc_owns(const void* addr);

/* Gives back to the kernel all free memory that can be and that no cache has registered, now. Answers
 * bytes. Free memory in the caches of other threads is not reached. Cost: that of the system calls, with
 * the arenas locked. */
HYDRANT_ALLOC_API size_t hydrant_alloc_trim(void);

/* ---- memory for other processes --------------------------------------------------------------- */

/* As hydrant_aligned_alloc(), backed by a memory file that another process can map. Ends with hydrant_free().
 * After a fork the child has no access to it (it would write into its parent's heap): addresses of it
 * fault there, hydrant_free() of it does nothing, hydrant_realloc() answers EINVAL; what the child
 * allocates is the child's. NULL with EINVAL or ENOMEM. Always from "extents".
 * An address has the same place in its file for ever, and while a cache has it registered, for a peer that
 * has it mapped, its pages stay: whoever gets freed memory next sees what the peer sees. More than 1 GiB of
 * free memory is not kept so: caches are told to give up what exceeds it (hydrant/monitor.h, invalidate()),
 * and it goes back to the kernel when they have. */
HYDRANT_ALLOC_API void* hydrant_alloc_shared(size_t alignment, size_t bytes);

typedef struct hydrant_alloc_location {
  int32_t
      fd; /* the library's; duplicate it to keep it, send it by SCM_RIGHTS or pidfd_getfd(). Never closed */
  uint32_t reserved;
  uint64_t offset;     /* of the address in the file */
  uint64_t file_bytes; /* constant: the file is sealed against shrinking and growing */
} hydrant_alloc_location_t;

/* Where an address of shared memory lies. 0 (GASNET_OK), or GASNET_ERR_BAD_ARG: not shared memory, or the
 * parent's. What lies beside the allocation in the file is other memory of this process: who maps it must
 * be trusted with that. */
HYDRANT_ALLOC_API int hydrant_alloc_shared_location(const void* addr,
                                                    hydrant_alloc_location_t* location);

/* ---- what it does ----------------------------------------------------------------------------- */

/* "jemalloc" or "extents": where private memory comes from in this process. Decided at the first use, for
 * good; the environment variable HYDRANT_ALLOC_BACKEND=extents asks for the second. */
HYDRANT_ALLOC_API const char* hydrant_alloc_backend(void);
/* Why that one: what is wrong with jemalloc here, or its version. Never NULL, never changes. */
HYDRANT_ALLOC_API const char* hydrant_alloc_backend_reason(void);

/* Looks for a pin cache's monitor and announces all there is to it. It is looked for whenever address
 * space is reserved, so this is for programs that load libfirehose with dlopen() after they have
 * allocated. Cost: 1 us. */
HYDRANT_ALLOC_API void hydrant_alloc_announce(void);

typedef struct hydrant_alloc_arena_stats {
  uint64_t in_use_bytes;      /* allocated, rounded up; with what threads keep in their caches */
  uint64_t touched_bytes;     /* 2-MiB blocks that may hold memory, whole */
  uint64_t idle_bytes;        /* of these, the ones of which nothing is in use or waiting for use */
  uint64_t reserved_bytes;    /* address space; never given back */
  uint64_t unannounced_bytes; /* of it, what no monitor knows */
  uint64_t emptied_bytes;     /* given back to the kernel, ever */
  uint64_t
      kept_blocks; /* how often a block was to go back and stayed, because a cache has it registered */
} hydrant_alloc_arena_stats_t;

typedef struct hydrant_alloc_stats {
  size_t size; /* set it to sizeof(hydrant_alloc_stats_t); answers how much was filled in */
  uint32_t has_monitor; /* nonzero: a pin cache's monitor is told */
  uint32_t reserved;
  hydrant_alloc_arena_stats_t own;    /* private memory */
  hydrant_alloc_arena_stats_t shared; /* hydrant_alloc_shared() */
  /* Free shared memory that stayed because a cache had it registered, when it was last looked at; and
   * 2-MiB blocks of it that caches were told to give up, ever. */
  uint64_t shared_kept_bytes;
  uint64_t shared_recalled_blocks;
} hydrant_alloc_stats_t;

/* A snapshot, part by part. Cost: some 10 us with jemalloc. */
HYDRANT_ALLOC_API void hydrant_alloc_get_stats(hydrant_alloc_stats_t* stats);

#ifdef __cplusplus
}
#endif

#endif /* HYDRANT_ALLOC_H */
