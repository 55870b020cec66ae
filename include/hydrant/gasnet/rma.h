/* hydrant/gasnet/rma.h - put and get: one-sided copies between this process and any memory of any rank.
 *
 * Blocking calls return when the data is there; NB gives an event, NBI counts for gex_NBI_Wait() of the
 * calling thread. `bytes` may be 0 (nothing is touched) and anything up to SIZE_MAX; alignment is free; the
 * two ranges must not overlap. No byte outside the target range is ever written.
 *
 * lc_opt says when the source of a put may be used again: GEX_EVENT_NOW (on return, at every size),
 * GEX_EVENT_DEFER (with the operation itself), GEX_EVENT_GROUP (NBI: gex_NBI_Wait(GEX_EC_LC)), or where to
 * put an event of its own. Not legal in handlers.
 *
 * GEX_FLAG_IMMEDIATE: GEX_EVENT_NO_OP, or not 0 from the others, if it cannot start without waiting.
 * Errors: what is wrong about the call itself (no such rank, null with a length, a range that wraps around)
 * and memory that is not there end the job with one line, unless HYDRANT_ON_FAULT=return: then
 * GASNET_ERR_BAD_ARG, or nothing from those that return no code. Threads: any; implicit operations are the
 * calling thread's.
 *
 * Cost: to memory that is mapped here (a segment of a rank of this node), up to HYDRANT_RMA_INLINE bytes of
 * a constant size are stores in the caller, and more than two words a memcpy() there; docs/put_get.md has the
 * rest. Source: GASNet-EX 0.19, "RMA".
 */
#ifndef HYDRANT_GASNET_RMA_H
#define HYDRANT_GASNET_RMA_H

#include <hydrant/gasnet/events.h>
#include <hydrant/gasnet/objects.h>

#include <string.h>

HYDRANT_GASNET_BEGIN

/* The widest value that travels in a register. */
typedef uint64_t gex_RMA_Value_t;
#define SIZEOF_GEX_RMA_VALUE_T 8

/* ---- what inlined calls read and count ---- */
#define HYDRANT_RMA_INLINE 64
/* Operations that were inlined: by size where that is a power of two, which is one addition; else all
 * together. */
struct hydrant_small_counts {
  uint64_t of_size[7]; /* 1, 2, 4, ... 64 bytes */
  uint64_t others, other_bytes;
};
/* Operations by the path that they took: docs/put_get.md names the paths. */
#define HYDRANT_RMA_PATHS 11
struct hydrant_path_counts {
  uint64_t ops, bytes;
};
/* What a thread knows of one rank, and has done with it. Written by its thread alone. */
struct hydrant_peer {
  uintptr_t addr;  /* of the segment that is mapped here, for its owner */
  uintptr_t size;  /* bytes; 0: none, or not looked up yet */
  uintptr_t small; /* offsets below it have HYDRANT_RMA_INLINE bytes behind them; 0 if size is */
  intptr_t shift;  /* what to add to its owner's addresses to get ours */
  struct hydrant_small_counts small_counts[2];                  /* puts, gets */
  struct hydrant_path_counts path_counts[2][HYDRANT_RMA_PATHS]; /* the same */
  uint64_t unused[62];                                          /* 1024 bytes: a shift finds it */
};
/* By thread; `count` is 0 until the thread has called something that is not inlined. */
struct hydrant_peers {
  struct hydrant_peer* first;
  gex_Rank_t count;
};
extern __thread struct hydrant_peers hydrant_my_peers
    __attribute__((__tls_model__("initial-exec")));

#if defined(GASNET_DEBUG) || defined(HYDRANT_RMA_NO_INLINE)
#define HYDRANT_RMA_IS_SMALL(bytes) 0
#define HYDRANT_RMA_IS_COPIED(bytes) 0
#else
/* The library copies two words and less so that an aligned one is one store, whatever memcpy() does. */
#define HYDRANT_RMA_IS_COPIED(bytes) ((bytes) > 16)
#define HYDRANT_RMA_IS_SMALL(bytes) \
  (__builtin_constant_p(bytes) && (bytes) != 0 && (bytes) <= HYDRANT_RMA_INLINE)
#endif
#define HYDRANT_RMA_LIKELY(condition) __builtin_expect(!!(condition), 1)

/* The peer, if HYDRANT_RMA_INLINE bytes at `addr` are mapped here; else null. */
static inline struct hydrant_peer* hydrant_small_peer(gex_TM_t tm, gex_Rank_t rank,
                                                      const void* addr) {
  struct hydrant_peer* peer;
  if (tm != &hydrant_world || rank >= hydrant_my_peers.count) return NULL;
  peer = hydrant_my_peers.first + rank;
  return (uintptr_t)addr - peer->addr < peer->small ? peer : NULL;
}
/* `bytes` is a constant. */
static inline void hydrant_small_count(struct hydrant_small_counts* counts, size_t bytes) {
  if ((bytes & (bytes - 1)) == 0) {
    counts->of_size[__builtin_ctzl(bytes)] += 1;
  } else {
    counts->others += 1;
    /* One vector addition instead of two scalar ones waits for the last one's store. */
    __asm__("" : "+m"(counts->others));
    counts->other_bytes += bytes;
  }
}
/* Stores and loads of the caller's stay on their side of the copy: the processor keeps their order, the
 * compiler has to be told. */
#define HYDRANT_RMA_FENCE() __asm__ __volatile__("" ::: "memory")
static inline void hydrant_small_put(struct hydrant_peer* peer, void* dest, const void* source,
                                     size_t bytes) {
  HYDRANT_RMA_FENCE();
  memcpy((char*)dest + peer->shift, source, bytes);
  HYDRANT_RMA_FENCE();
  hydrant_small_count(&peer->small_counts[0], bytes);
}
static inline void hydrant_small_get(struct hydrant_peer* peer, void* dest, const void* source,
                                     size_t bytes) {
  HYDRANT_RMA_FENCE();
  memcpy(dest, (const char*)source + peer->shift, bytes);
  HYDRANT_RMA_FENCE();
  hydrant_small_count(&peer->small_counts[1], bytes);
}

/* Of any size: the peer, if all of it is mapped here and there is a `local`; else null. */
static inline struct hydrant_peer* hydrant_mapped_peer(gex_TM_t tm, gex_Rank_t rank,
                                                       const void* addr, const void* local,
                                                       size_t bytes) {
  struct hydrant_peer* peer;
  uintptr_t offset;
  if (tm != &hydrant_world || rank >= hydrant_my_peers.count || local == NULL) return NULL;
  peer = hydrant_my_peers.first + rank;
  offset = (uintptr_t)addr - peer->addr;
  return offset < peer->size && bytes <= peer->size - offset ? peer : NULL;
}
#define HYDRANT_RMA_MAPPED 2 /* its place in path_counts */
static inline void hydrant_path_count(struct hydrant_path_counts* counts, size_t bytes) {
  counts->ops += bytes != 0;
  /* As above. */
  __asm__("" : "+m"(counts->ops));
  counts->bytes += bytes;
}
/* A pointer whose object the compiler does not know: a small variable beside a length that is none of the
 * compiler's business would be a warning, because copies of this way are longer. */
#define HYDRANT_RMA_ANY_OBJECT(pointer) __asm__("" : "+r"(pointer))
/* Copies if it can; 0 if it cannot. Counted first: nothing has to be kept across the call. */
static inline int hydrant_copied_put(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                                     size_t bytes) {
  struct hydrant_peer* peer = hydrant_mapped_peer(tm, rank, dest, source, bytes);
  if (!HYDRANT_RMA_LIKELY(peer != NULL)) return 0;
  hydrant_path_count(&peer->path_counts[0][HYDRANT_RMA_MAPPED], bytes);
  HYDRANT_RMA_ANY_OBJECT(source);
  HYDRANT_RMA_FENCE();
  memcpy((char*)dest + peer->shift, source, bytes);
  HYDRANT_RMA_FENCE();
  return 1;
}
static inline int hydrant_copied_get(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                                     size_t bytes) {
  struct hydrant_peer* peer = hydrant_mapped_peer(tm, rank, source, dest, bytes);
  if (!HYDRANT_RMA_LIKELY(peer != NULL)) return 0;
  hydrant_path_count(&peer->path_counts[1][HYDRANT_RMA_MAPPED], bytes);
  HYDRANT_RMA_ANY_OBJECT(dest);
  HYDRANT_RMA_FENCE();
  memcpy(dest, (const char*)source + peer->shift, bytes);
  HYDRANT_RMA_FENCE();
  return 1;
}
/* The inlined ways together; `bytes` is most often a constant. 0 if the library has to. */
static inline int hydrant_inlined_put(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                                      size_t bytes) {
  if (HYDRANT_RMA_IS_SMALL(bytes)) {
    struct hydrant_peer* peer = hydrant_small_peer(tm, rank, dest);
    if (!HYDRANT_RMA_LIKELY(peer != NULL)) return 0;
    hydrant_small_put(peer, dest, source, bytes);
    return 1;
  }
  return HYDRANT_RMA_IS_COPIED(bytes) && hydrant_copied_put(tm, rank, dest, source, bytes);
}
static inline int hydrant_inlined_get(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                                      size_t bytes) {
  if (HYDRANT_RMA_IS_SMALL(bytes)) {
    struct hydrant_peer* peer = hydrant_small_peer(tm, rank, source);
    if (!HYDRANT_RMA_LIKELY(peer != NULL)) return 0;
    hydrant_small_get(peer, dest, source, bytes);
    return 1;
  }
  return HYDRANT_RMA_IS_COPIED(bytes) && hydrant_copied_get(tm, rank, dest, source, bytes);
}
/* From a variable of its own: `value`, whose address the library gets, would go through memory. */
static inline int hydrant_inlined_value(gex_TM_t tm, gex_Rank_t rank, void* dest,
                                        gex_RMA_Value_t value, size_t bytes) {
  return HYDRANT_RMA_IS_SMALL(bytes) && bytes <= SIZEOF_GEX_RMA_VALUE_T &&
         hydrant_inlined_put(tm, rank, dest, &value, bytes);
}

/* ---- the library's part ---- */
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
/* Ends the job, or says what is wrong and answers 0 (HYDRANT_ON_FAULT). */
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
    /* As above. */
    gex_RMA_Value_t loaded = 0;
    if (hydrant_inlined_get(tm, rank, &loaded, source, bytes)) return loaded;
  }
  (void)hydrant_get_blocking(tm, &value, rank, source, hydrant_value_bytes(bytes), flags);
  return value;
}

HYDRANT_GASNET_END
#endif
