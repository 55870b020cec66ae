/* What libhydrant_alloc and libhydrant_alloc_jemalloc say to each other. Not installed: both are built
 * together, and the version in the symbol's name keeps strangers apart.
 *
 * They are two libraries because jemalloc has static thread-local storage, more than a running process
 * has room for: a library that contains it cannot be loaded later. So libhydrant_alloc contains none and
 * always loads; it uses the other if that came with the program, or can still be loaded, and its own heap
 * if not. */
#ifndef HYDRANT_ALLOC_JEMALLOC_ABI_H
#define HYDRANT_ALLOC_JEMALLOC_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HYDRANT_ALLOC_JEMALLOC_ABI 1u
#define HYDRANT_ALLOC_JEMALLOC_SYMBOL "hydrant_alloc_jemalloc_1"

/* Where jemalloc's pages come from: a PageStore. Called with jemalloc's locks held. */
typedef struct hydrant_alloc_pages {
  void* (*grow)(size_t bytes, size_t alignment); /* fresh, zero, not in use; NULL when refused */
  void (*commit)(void* addr, size_t bytes);
  void (*decommit)(void* addr, size_t bytes);
  int (*together)(const void* a, const void* b); /* nonzero: in one reservation, may be joined */
} hydrant_alloc_pages_t;

typedef struct hydrant_alloc_jemalloc {
  uint32_t abi; /* HYDRANT_ALLOC_JEMALLOC_ABI */
  uint32_t reserved;
  const char* version; /* of jemalloc */
  /* Makes the arenas. 0, or an errno. Any number of times, from any thread; the pages of the first count. */
  int (*start)(const hydrant_alloc_pages_t* pages);
  void* (*allocate)(size_t bytes, size_t alignment);
  void* (*reallocate)(void* p, size_t bytes, size_t alignment);
  void (*release)(void* p);
  size_t (*usable_bytes)(const void* p);
  /* Decommits all that is free. */
  void (*purge)(void);
  size_t (*in_use_bytes)(void);
} hydrant_alloc_jemalloc_t;

#ifdef __cplusplus
}
#endif

#endif /* HYDRANT_ALLOC_JEMALLOC_ABI_H */
