/* hydrant/gasnet/rma.h - put and get: one-sided copies between this process and any memory of any rank.
 *
 * Blocking calls return when the copy is complete. NB calls return an event; NBI calls count for
 * gex_NBI_Wait() of the calling thread. `bytes` may be 0 (no memory is accessed) to SIZE_MAX. Any
 * alignment is allowed; the two ranges must not overlap. No byte outside the target range is ever
 * written.
 *
 * lc_opt selects when the source of a put may be reused: GEX_EVENT_NOW (on return, at every size),
 * GEX_EVENT_DEFER (when the operation completes), GEX_EVENT_GROUP (NBI: after gex_NBI_Wait(GEX_EC_LC)),
 * or the place for a separate event. Not legal in handlers.
 *
 * GEX_FLAG_IMMEDIATE: if the call cannot start without waiting, NB returns GEX_EVENT_NO_OP and the
 * others return nonzero. Polls continue an operation that has started.
 * Errors: wrong arguments (invalid rank, null with a length, a range that wraps around) and unmapped
 * memory end the job with a one-line message. With HYDRANT_ON_FAULT=return, calls return
 * GASNET_ERR_BAD_ARG instead, if they return a code.
 * Threads: any; implicit operations belong to the calling thread.
 *
 * Cost: for memory that is mapped here (a segment of a rank of this node), copies of a constant size up
 * to HYDRANT_RMA_INLINE bytes are stores in the caller. Other copies of more than two words are a
 * memcpy() in the caller. docs/put_get.md describes the rest. Source: GASNet-EX 0.19, "RMA".
 */
#ifndef HYDRANT_GASNET_RMA_H
#define HYDRANT_GASNET_RMA_H

#include <hydrant/gasnet/events.h>
#include <hydrant/gasnet/objects.h>

#include <string.h>

HYDRANT_GASNET_BEGIN

/* The widest value that a register holds. */
typedef uint64_t gex_RMA_Value_t;
#define SIZEOF_GEX_RMA_VALUE_T 8

/* ---- what inlined calls know of mapped memory ---- */
#define HYDRANT_RMA_INLINE 64
/* The attached segment of a rank, as it is mapped here. Written once in a job, `key` last, which is 0 until
 * then, and while inlined calls are off. */
struct hydrant_mapped_segment {
  uint64_t key;    /* hydrant_segment_key() of its owner */
  uintptr_t addr;  /* in its owner's address space */
  uintptr_t small; /* offsets below it are followed by HYDRANT_RMA_INLINE bytes of the segment */
  uintptr_t size;  /* bytes */
  intptr_t shift;  /* added to an owner's address, gives the address here */
} __attribute__((__aligned__(64)));
/* A rank's segment is in the entry of its number modulo the length, or in none: of two ranks with the same
 * entry one goes without. It is an array, because a pointer to it would have to be loaded for each put. */
#define HYDRANT_MAPPED_SEGMENTS 256
extern struct hydrant_mapped_segment hydrant_mapped_segments[HYDRANT_MAPPED_SEGMENTS];
/* The rows of ranks that the calling thread knows, which the library reads. `count` is 0 until the thread's
 * first call that is not inlined, and while its next put has a handler to run
 * (gex_VIS_SetPeerCompletionHandler()). */
struct hydrant_known_peer;
struct hydrant_known_peers {
  const struct hydrant_known_peer* first;
  gex_Rank_t count;
};
extern __thread struct hydrant_known_peers hydrant_known_peers
    __attribute__((__tls_model__("initial-exec")));

#if defined(GASNET_DEBUG) || defined(HYDRANT_RMA_NO_INLINE)
#define HYDRANT_RMA_IS_SMALL(bytes) 0
#define HYDRANT_RMA_IS_COPIED(bytes) 0
#else
/* The library copies two words or less, so that an aligned word is one store; memcpy() does not
 * guarantee that. */
#define HYDRANT_RMA_IS_COPIED(bytes) ((bytes) > 16)
#define HYDRANT_RMA_IS_SMALL(bytes) \
  (__builtin_constant_p(bytes) && (bytes) != 0 && (bytes) <= HYDRANT_RMA_INLINE)
#endif
#define HYDRANT_RMA_LIKELY(condition) __builtin_expect(!!(condition), 1)

/* Team and rank in one number: no other team's address ends with the 32 bits of hydrant_world's. */
static inline uint64_t hydrant_segment_key(gex_TM_t tm, gex_Rank_t rank) {
  return (uint64_t)(uintptr_t)tm << 32 | rank;
}
/* Returns the entry if it is that of `rank` in the job's own team, else null. What the caller loads from it
 * is loaded after the key. On x86-64 the compiler alone has to keep that order; an atomic load would not be
 * part of the comparison. */
static inline const struct hydrant_mapped_segment* hydrant_segment_entry(gex_TM_t tm,
                                                                         gex_Rank_t rank) {
  const struct hydrant_mapped_segment* entry =
      &hydrant_mapped_segments[rank % HYDRANT_MAPPED_SEGMENTS];
  const uint64_t key = hydrant_segment_key(tm, rank);
  __asm__("" : "+r"(entry)); /* otherwise the compiler makes one address for each member */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
  if (entry->key != key) return NULL;
  __asm__ __volatile__("" ::: "memory");
#else
  if (__atomic_load_n(&entry->key, __ATOMIC_ACQUIRE) != key) return NULL;
#endif
  return entry;
}
/* Returns the entry if HYDRANT_RMA_INLINE bytes of `rank` at `addr` are mapped here, else null. */
static inline const struct hydrant_mapped_segment* hydrant_small_segment(gex_TM_t tm,
                                                                         gex_Rank_t rank,
                                                                         const void* addr) {
  const struct hydrant_mapped_segment* entry = hydrant_segment_entry(tm, rank);
  return entry != NULL && (uintptr_t)addr - entry->addr < entry->small ? entry : NULL;
}
/* Keeps the caller's stores and loads on their side of the copy. The processor keeps their order; the
 * compiler needs this fence. */
#define HYDRANT_RMA_FENCE() __asm__ __volatile__("" ::: "memory")
static inline void hydrant_small_put(const struct hydrant_mapped_segment* entry, void* dest,
                                     const void* source, size_t bytes) {
  HYDRANT_RMA_FENCE();
  memcpy((char*)dest + entry->shift, source, bytes);
  HYDRANT_RMA_FENCE();
}
static inline void hydrant_small_get(const struct hydrant_mapped_segment* entry, void* dest,
                                     const void* source, size_t bytes) {
  HYDRANT_RMA_FENCE();
  memcpy(dest, (const char*)source + entry->shift, bytes);
  HYDRANT_RMA_FENCE();
}

/* For any size: returns the entry if the whole range is mapped here and `local` is not null, else null. */
static inline const struct hydrant_mapped_segment* hydrant_segment_of(gex_TM_t tm, gex_Rank_t rank,
                                                                      const void* addr,
                                                                      const void* local,
                                                                      size_t bytes) {
  const struct hydrant_mapped_segment* entry = hydrant_segment_entry(tm, rank);
  uintptr_t offset;
  if (entry == NULL || local == NULL) return NULL;
  offset = (uintptr_t)addr - entry->addr;
  return offset < entry->size && bytes <= entry->size - offset ? entry : NULL;
}
/* Hides a pointer's object from the compiler. Otherwise it warns about a small variable with an unknown
 * length, although such copies never get here. */
#define HYDRANT_RMA_ANY_OBJECT(pointer) __asm__("" : "+r"(pointer))
/* Copies if the memory is mapped here, else returns 0. */
static inline int hydrant_put_if_mapped(gex_TM_t tm, gex_Rank_t rank, void* dest,
                                        const void* source, size_t bytes) {
  const struct hydrant_mapped_segment* entry = hydrant_segment_of(tm, rank, dest, source, bytes);
  if (!HYDRANT_RMA_LIKELY(entry != NULL)) return 0;
  HYDRANT_RMA_ANY_OBJECT(source);
  HYDRANT_RMA_FENCE();
  memcpy((char*)dest + entry->shift, source, bytes);
  HYDRANT_RMA_FENCE();
  return 1;
}
static inline int hydrant_get_if_mapped(gex_TM_t tm, gex_Rank_t rank, void* dest,
                                        const void* source, size_t bytes) {
  const struct hydrant_mapped_segment* entry = hydrant_segment_of(tm, rank, source, dest, bytes);
  if (!HYDRANT_RMA_LIKELY(entry != NULL)) return 0;
  HYDRANT_RMA_ANY_OBJECT(dest);
  HYDRANT_RMA_FENCE();
  memcpy(dest, (const char*)source + entry->shift, bytes);
  HYDRANT_RMA_FENCE();
  return 1;
}
/* Both inlined ways; `bytes` is usually a constant. Returns 0 if the library must do the copy. */
static inline int hydrant_inlined_put(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                                      size_t bytes) {
  if (HYDRANT_RMA_IS_SMALL(bytes)) {
    const struct hydrant_mapped_segment* entry = hydrant_small_segment(tm, rank, dest);
    if (!HYDRANT_RMA_LIKELY(entry != NULL)) return 0;
    hydrant_small_put(entry, dest, source, bytes);
    return 1;
  }
  return HYDRANT_RMA_IS_COPIED(bytes) && hydrant_put_if_mapped(tm, rank, dest, source, bytes);
}
static inline int hydrant_inlined_get(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                                      size_t bytes) {
  if (HYDRANT_RMA_IS_SMALL(bytes)) {
    const struct hydrant_mapped_segment* entry = hydrant_small_segment(tm, rank, source);
    if (!HYDRANT_RMA_LIKELY(entry != NULL)) return 0;
    hydrant_small_get(entry, dest, source, bytes);
    return 1;
  }
  return HYDRANT_RMA_IS_COPIED(bytes) && hydrant_get_if_mapped(tm, rank, dest, source, bytes);
}
/* `value` is copied to this function's parameter. The original, whose address the library may take,
 * would live in memory. */
static inline int hydrant_inlined_value(gex_TM_t tm, gex_Rank_t rank, void* dest,
                                        gex_RMA_Value_t value, size_t bytes) {
  return HYDRANT_RMA_IS_SMALL(bytes) && bytes <= SIZEOF_GEX_RMA_VALUE_T &&
         hydrant_inlined_put(tm, rank, dest, &value, bytes);
}

/* ---- library functions for all other cases ---- */
int hydrant_put_blocking(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes,
                         gex_Flags_t flags);
gex_Event_t hydrant_put_nb(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                           size_t bytes, gex_Event_t* lc_opt, gex_Flags_t flags);
int hydrant_put_nbi(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes,
                    gex_Event_t* lc_opt, gex_Flags_t flags);
int hydrant_get_blocking(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source, size_t bytes,
                         gex_Flags_t flags);
gex_Event_t hydrant_get_nb(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source,
                           size_t bytes, gex_Flags_t flags);
int hydrant_get_nbi(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source, size_t bytes,
                    gex_Flags_t flags);

/* ---- put ---- */
static inline int gex_RMA_PutBlocking(gex_TM_t tm, gex_Rank_t rank, gex_Addr_t dest,
                                      const void* source, size_t bytes, gex_Flags_t flags) {
  if (hydrant_inlined_put(tm, rank, dest, source, bytes)) return GASNET_OK;
  return hydrant_put_blocking(tm, rank, dest, source, bytes, flags);
}
static inline gex_Event_t gex_RMA_PutNB(gex_TM_t tm, gex_Rank_t rank, gex_Addr_t dest,
                                        const void* source, size_t bytes, gex_Event_t* lc_opt,
                                        gex_Flags_t flags) {
  if (hydrant_inlined_put(tm, rank, dest, source, bytes)) {
    if ((uintptr_t)lc_opt > (uintptr_t)GEX_EVENT_GROUP) *lc_opt = GEX_EVENT_INVALID;
    return GEX_EVENT_INVALID;
  }
  return hydrant_put_nb(tm, rank, dest, source, bytes, lc_opt, flags);
}
static inline int gex_RMA_PutNBI(gex_TM_t tm, gex_Rank_t rank, gex_Addr_t dest, const void* source,
                                 size_t bytes, gex_Event_t* lc_opt, gex_Flags_t flags) {
  if (hydrant_inlined_put(tm, rank, dest, source, bytes)) {
    if ((uintptr_t)lc_opt > (uintptr_t)GEX_EVENT_GROUP) *lc_opt = GEX_EVENT_INVALID;
    return GASNET_OK;
  }
  return hydrant_put_nbi(tm, rank, dest, source, bytes, lc_opt, flags);
}

/* ---- get ---- */
static inline int gex_RMA_GetBlocking(gex_TM_t tm, void* dest, gex_Rank_t rank, gex_Addr_t source,
                                      size_t bytes, gex_Flags_t flags) {
  if (hydrant_inlined_get(tm, rank, dest, source, bytes)) return GASNET_OK;
  return hydrant_get_blocking(tm, dest, rank, source, bytes, flags);
}
static inline gex_Event_t gex_RMA_GetNB(gex_TM_t tm, void* dest, gex_Rank_t rank, gex_Addr_t source,
                                        size_t bytes, gex_Flags_t flags) {
  if (hydrant_inlined_get(tm, rank, dest, source, bytes)) return GEX_EVENT_INVALID;
  return hydrant_get_nb(tm, dest, rank, source, bytes, flags);
}
static inline int gex_RMA_GetNBI(gex_TM_t tm, void* dest, gex_Rank_t rank, gex_Addr_t source,
                                 size_t bytes, gex_Flags_t flags) {
  if (hydrant_inlined_get(tm, rank, dest, source, bytes)) return GASNET_OK;
  return hydrant_get_nbi(tm, dest, rank, source, bytes, flags);
}

/* ---- values: the `bytes` (1 to 8) low-order bytes of an integer ---- */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error the first bytes of an integer have to be its low-order ones
#endif
/* Ends the job, or reports the wrong size and returns 0 (HYDRANT_ON_FAULT). */
size_t hydrant_wrong_value(size_t bytes);
static inline size_t hydrant_value_bytes(size_t bytes) {
  return HYDRANT_RMA_LIKELY(bytes - 1 < SIZEOF_GEX_RMA_VALUE_T) ? bytes
                                                                : hydrant_wrong_value(bytes);
}
static inline int gex_RMA_PutBlockingVal(gex_TM_t tm, gex_Rank_t rank, gex_Addr_t dest,
                                         gex_RMA_Value_t value, size_t bytes, gex_Flags_t flags) {
  if (hydrant_inlined_value(tm, rank, dest, value, bytes)) return GASNET_OK;
  return hydrant_put_blocking(tm, rank, dest, &value, hydrant_value_bytes(bytes), flags);
}
static inline gex_Event_t gex_RMA_PutNBVal(gex_TM_t tm, gex_Rank_t rank, gex_Addr_t dest,
                                           gex_RMA_Value_t value, size_t bytes, gex_Flags_t flags) {
  if (hydrant_inlined_value(tm, rank, dest, value, bytes)) return GEX_EVENT_INVALID;
  return hydrant_put_nb(tm, rank, dest, &value, hydrant_value_bytes(bytes), GEX_EVENT_NOW, flags);
}
static inline int gex_RMA_PutNBIVal(gex_TM_t tm, gex_Rank_t rank, gex_Addr_t dest,
                                    gex_RMA_Value_t value, size_t bytes, gex_Flags_t flags) {
  if (hydrant_inlined_value(tm, rank, dest, value, bytes)) return GASNET_OK;
  return hydrant_put_nbi(tm, rank, dest, &value, hydrant_value_bytes(bytes), GEX_EVENT_NOW, flags);
}
static inline gex_RMA_Value_t gex_RMA_GetBlockingVal(gex_TM_t tm, gex_Rank_t rank,
                                                     gex_Addr_t source, size_t bytes,
                                                     gex_Flags_t flags) {
  gex_RMA_Value_t value = 0;
  if (HYDRANT_RMA_IS_SMALL(bytes) && bytes <= SIZEOF_GEX_RMA_VALUE_T) {
    /* A separate variable, so that `value` does not live in memory: see hydrant_inlined_value(). */
    gex_RMA_Value_t loaded = 0;
    if (hydrant_inlined_get(tm, rank, &loaded, source, bytes)) return loaded;
  }
  (void)hydrant_get_blocking(tm, &value, rank, source, hydrant_value_bytes(bytes), flags);
  return value;
}

HYDRANT_GASNET_END
#endif
