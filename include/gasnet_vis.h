/* gasnet_vis.h - vector, indexed and strided put and get (VIS): many pieces of memory in one operation. */
#ifndef _INCLUDED_GASNET_VIS_H
#define _INCLUDED_GASNET_VIS_H

#include <gasnetex.h>

HYDRANT_GASNET_BEGIN

/* Each call copies the bytes of the source, in the order in which its arguments list them, to the bytes of
 * the destination in the order of theirs. Puts copy to memory of (tm, rank), gets from there; `tm` may be
 * any team or a pair (gex_TM_Pair()). Both sides have the same length in all; the pieces may differ. Sources
 * may overlap each other; destinations overlap nothing. Lists and pieces may be empty.
 *
 *   vector   a list of ranges; the address of an empty one may be null
 *   indexed  a list of addresses of ranges of equal length
 *   strided  elements of `elemsz` bytes in a grid of `stridelevels` dimensions: element (i0, i1, ...) is at
 *            the address + i0 * strides[0] + i1 * strides[1] ..., with i0 below count[0] and so on. Strides
 *            are bytes, of either sign, in any order; those of a source may be 0.
 *
 * Blocking calls return when the operation is complete; NB returns an event, NBI counts for gex_NBI_Wait().
 * Lists and memory stay unchanged until the operation is complete; the strides and counts of a strided one
 * only until the call returns. Flags:
 *   GEX_FLAG_IMMEDIATE       if the call would have to wait, NB returns GEX_EVENT_NO_OP and the others
 *                            nonzero, and nothing was started
 *   GEX_FLAG_ENABLE_LEAF_LC  NB and NBI puts: the source may be reused on return; the event has a leaf
 *                            (gex_Event_QueryLeaf()), which is complete
 *
 * Not legal in handlers. Errors: wrong arguments end the job with a text (docs/vis.md, "Checks").
 * Threads: any. Source: GASNet-EX 0.19, "Vector/Indexed/Strided". */

/* The library's part of all calls. `mode` is a sum of the first two, or 0 for a put that blocks. */
#define HYDRANT_VIS_GET 1
#define HYDRANT_VIS_NBI 2
int hydrant_vis_vector(unsigned mode, gex_TM_t tm, gex_Rank_t rank, size_t dstcount,
                       gex_Memvec_t const dstlist[], size_t srccount, gex_Memvec_t const srclist[],
                       gex_Flags_t flags);
gex_Event_t hydrant_vis_vector_nb(unsigned mode, gex_TM_t tm, gex_Rank_t rank, size_t dstcount,
                                  gex_Memvec_t const dstlist[], size_t srccount,
                                  gex_Memvec_t const srclist[], gex_Flags_t flags);
int hydrant_vis_indexed(unsigned mode, gex_TM_t tm, gex_Rank_t rank, size_t dstcount,
                        void* const dstlist[], size_t dstlen, size_t srccount,
                        void* const srclist[], size_t srclen, gex_Flags_t flags);
gex_Event_t hydrant_vis_indexed_nb(unsigned mode, gex_TM_t tm, gex_Rank_t rank, size_t dstcount,
                                   void* const dstlist[], size_t dstlen, size_t srccount,
                                   void* const srclist[], size_t srclen, gex_Flags_t flags);
int hydrant_vis_strided(unsigned mode, gex_TM_t tm, gex_Rank_t rank, void* dstaddr,
                        const ptrdiff_t dststrides[], void* srcaddr, const ptrdiff_t srcstrides[],
                        size_t elemsz, const size_t count[], size_t stridelevels,
                        gex_Flags_t flags);
gex_Event_t hydrant_vis_strided_nb(unsigned mode, gex_TM_t tm, gex_Rank_t rank, void* dstaddr,
                                   const ptrdiff_t dststrides[], void* srcaddr,
                                   const ptrdiff_t srcstrides[], size_t elemsz,
                                   const size_t count[], size_t stridelevels, gex_Flags_t flags);

/* A compiler counts the arguments of these calls and would not inline them. */
#define HYDRANT_VIS_INLINE static inline __attribute__((__always_inline__))
/* A single piece in mapped memory is a put or get of the caller's own, as in rma.h. */
HYDRANT_VIS_INLINE int hydrant_vis_copy_if_mapped(unsigned mode, gex_TM_t tm, gex_Rank_t rank,
                                                  void* dst, void* src, size_t bytes) {
  if (hydrant_known_peers.count == 0) return 0; /* the next put may have a handler to run */
  return (mode & HYDRANT_VIS_GET) != 0 ? hydrant_get_if_mapped(tm, rank, dst, src, bytes)
                                       : hydrant_put_if_mapped(tm, rank, dst, src, bytes);
}
HYDRANT_VIS_INLINE int hydrant_vis_copy_vector_if_mapped(unsigned mode, gex_TM_t tm,
                                                         gex_Rank_t rank, size_t dstcount,
                                                         gex_Memvec_t const dstlist[],
                                                         size_t srccount,
                                                         gex_Memvec_t const srclist[]) {
  return dstcount == 1 && srccount == 1 && dstlist != NULL && srclist != NULL &&
         dstlist->gex_len == srclist->gex_len &&
         hydrant_vis_copy_if_mapped(mode, tm, rank, dstlist->gex_addr, srclist->gex_addr,
                                    srclist->gex_len);
}
HYDRANT_VIS_INLINE int hydrant_vis_copy_indexed_if_mapped(unsigned mode, gex_TM_t tm,
                                                          gex_Rank_t rank, size_t dstcount,
                                                          void* const dstlist[], size_t dstlen,
                                                          size_t srccount, void* const srclist[],
                                                          size_t srclen) {
  return dstcount == 1 && srccount == 1 && dstlist != NULL && srclist != NULL && dstlen == srclen &&
         hydrant_vis_copy_if_mapped(mode, tm, rank, *dstlist, *srclist, srclen);
}

HYDRANT_VIS_INLINE int gex_VIS_VectorPutBlocking(gex_TM_t tm, gex_Rank_t dstrank, size_t dstcount,
                                                 gex_Memvec_t const dstlist[], size_t srccount,
                                                 gex_Memvec_t const srclist[], gex_Flags_t flags) {
  if (hydrant_vis_copy_vector_if_mapped(0, tm, dstrank, dstcount, dstlist, srccount, srclist))
    return 0;
  return hydrant_vis_vector(0, tm, dstrank, dstcount, dstlist, srccount, srclist, flags);
}
HYDRANT_VIS_INLINE gex_Event_t gex_VIS_VectorPutNB(gex_TM_t tm, gex_Rank_t dstrank, size_t dstcount,
                                                   gex_Memvec_t const dstlist[], size_t srccount,
                                                   gex_Memvec_t const srclist[],
                                                   gex_Flags_t flags) {
  if (hydrant_vis_copy_vector_if_mapped(0, tm, dstrank, dstcount, dstlist, srccount, srclist))
    return GEX_EVENT_INVALID;
  return hydrant_vis_vector_nb(0, tm, dstrank, dstcount, dstlist, srccount, srclist, flags);
}
HYDRANT_VIS_INLINE int gex_VIS_VectorPutNBI(gex_TM_t tm, gex_Rank_t dstrank, size_t dstcount,
                                            gex_Memvec_t const dstlist[], size_t srccount,
                                            gex_Memvec_t const srclist[], gex_Flags_t flags) {
  if (hydrant_vis_copy_vector_if_mapped(HYDRANT_VIS_NBI, tm, dstrank, dstcount, dstlist, srccount,
                                        srclist))
    return 0;
  return hydrant_vis_vector(HYDRANT_VIS_NBI, tm, dstrank, dstcount, dstlist, srccount, srclist,
                            flags);
}
HYDRANT_VIS_INLINE int gex_VIS_VectorGetBlocking(gex_TM_t tm, size_t dstcount,
                                                 gex_Memvec_t const dstlist[], gex_Rank_t srcrank,
                                                 size_t srccount, gex_Memvec_t const srclist[],
                                                 gex_Flags_t flags) {
  if (hydrant_vis_copy_vector_if_mapped(HYDRANT_VIS_GET, tm, srcrank, dstcount, dstlist, srccount,
                                        srclist))
    return 0;
  return hydrant_vis_vector(HYDRANT_VIS_GET, tm, srcrank, dstcount, dstlist, srccount, srclist,
                            flags);
}
HYDRANT_VIS_INLINE gex_Event_t gex_VIS_VectorGetNB(gex_TM_t tm, size_t dstcount,
                                                   gex_Memvec_t const dstlist[], gex_Rank_t srcrank,
                                                   size_t srccount, gex_Memvec_t const srclist[],
                                                   gex_Flags_t flags) {
  if (hydrant_vis_copy_vector_if_mapped(HYDRANT_VIS_GET, tm, srcrank, dstcount, dstlist, srccount,
                                        srclist))
    return GEX_EVENT_INVALID;
  return hydrant_vis_vector_nb(HYDRANT_VIS_GET, tm, srcrank, dstcount, dstlist, srccount, srclist,
                               flags);
}
HYDRANT_VIS_INLINE int gex_VIS_VectorGetNBI(gex_TM_t tm, size_t dstcount,
                                            gex_Memvec_t const dstlist[], gex_Rank_t srcrank,
                                            size_t srccount, gex_Memvec_t const srclist[],
                                            gex_Flags_t flags) {
  if (hydrant_vis_copy_vector_if_mapped(HYDRANT_VIS_GET | HYDRANT_VIS_NBI, tm, srcrank, dstcount,
                                        dstlist, srccount, srclist))
    return 0;
  return hydrant_vis_vector(HYDRANT_VIS_GET | HYDRANT_VIS_NBI, tm, srcrank, dstcount, dstlist,
                            srccount, srclist, flags);
}

HYDRANT_VIS_INLINE int gex_VIS_IndexedPutBlocking(gex_TM_t tm, gex_Rank_t dstrank, size_t dstcount,
                                                  void* const dstlist[], size_t dstlen,
                                                  size_t srccount, void* const srclist[],
                                                  size_t srclen, gex_Flags_t flags) {
  if (hydrant_vis_copy_indexed_if_mapped(0, tm, dstrank, dstcount, dstlist, dstlen, srccount,
                                         srclist, srclen))
    return 0;
  return hydrant_vis_indexed(0, tm, dstrank, dstcount, dstlist, dstlen, srccount, srclist, srclen,
                             flags);
}
HYDRANT_VIS_INLINE gex_Event_t gex_VIS_IndexedPutNB(gex_TM_t tm, gex_Rank_t dstrank,
                                                    size_t dstcount, void* const dstlist[],
                                                    size_t dstlen, size_t srccount,
                                                    void* const srclist[], size_t srclen,
                                                    gex_Flags_t flags) {
  if (hydrant_vis_copy_indexed_if_mapped(0, tm, dstrank, dstcount, dstlist, dstlen, srccount,
                                         srclist, srclen))
    return GEX_EVENT_INVALID;
  return hydrant_vis_indexed_nb(0, tm, dstrank, dstcount, dstlist, dstlen, srccount, srclist,
                                srclen, flags);
}
HYDRANT_VIS_INLINE int gex_VIS_IndexedPutNBI(gex_TM_t tm, gex_Rank_t dstrank, size_t dstcount,
                                             void* const dstlist[], size_t dstlen, size_t srccount,
                                             void* const srclist[], size_t srclen,
                                             gex_Flags_t flags) {
  if (hydrant_vis_copy_indexed_if_mapped(HYDRANT_VIS_NBI, tm, dstrank, dstcount, dstlist, dstlen,
                                         srccount, srclist, srclen))
    return 0;
  return hydrant_vis_indexed(HYDRANT_VIS_NBI, tm, dstrank, dstcount, dstlist, dstlen, srccount,
                             srclist, srclen, flags);
}
HYDRANT_VIS_INLINE int gex_VIS_IndexedGetBlocking(gex_TM_t tm, size_t dstcount,
                                                  void* const dstlist[], size_t dstlen,
                                                  gex_Rank_t srcrank, size_t srccount,
                                                  void* const srclist[], size_t srclen,
                                                  gex_Flags_t flags) {
  if (hydrant_vis_copy_indexed_if_mapped(HYDRANT_VIS_GET, tm, srcrank, dstcount, dstlist, dstlen,
                                         srccount, srclist, srclen))
    return 0;
  return hydrant_vis_indexed(HYDRANT_VIS_GET, tm, srcrank, dstcount, dstlist, dstlen, srccount,
                             srclist, srclen, flags);
}
HYDRANT_VIS_INLINE gex_Event_t gex_VIS_IndexedGetNB(gex_TM_t tm, size_t dstcount,
                                                    void* const dstlist[], size_t dstlen,
                                                    gex_Rank_t srcrank, size_t srccount,
                                                    void* const srclist[], size_t srclen,
                                                    gex_Flags_t flags) {
  if (hydrant_vis_copy_indexed_if_mapped(HYDRANT_VIS_GET, tm, srcrank, dstcount, dstlist, dstlen,
                                         srccount, srclist, srclen))
    return GEX_EVENT_INVALID;
  return hydrant_vis_indexed_nb(HYDRANT_VIS_GET, tm, srcrank, dstcount, dstlist, dstlen, srccount,
                                srclist, srclen, flags);
}
HYDRANT_VIS_INLINE int gex_VIS_IndexedGetNBI(gex_TM_t tm, size_t dstcount, void* const dstlist[],
                                             size_t dstlen, gex_Rank_t srcrank, size_t srccount,
                                             void* const srclist[], size_t srclen,
                                             gex_Flags_t flags) {
  if (hydrant_vis_copy_indexed_if_mapped(HYDRANT_VIS_GET | HYDRANT_VIS_NBI, tm, srcrank, dstcount,
                                         dstlist, dstlen, srccount, srclist, srclen))
    return 0;
  return hydrant_vis_indexed(HYDRANT_VIS_GET | HYDRANT_VIS_NBI, tm, srcrank, dstcount, dstlist,
                             dstlen, srccount, srclist, srclen, flags);
}

/* elemsz 0, or a count of 0: nothing is copied; rank, addresses and strides have no meaning then.
 * stridelevels 0: one element. */
HYDRANT_VIS_INLINE int gex_VIS_StridedPutBlocking(gex_TM_t tm, gex_Rank_t dstrank, void* dstaddr,
                                                  const ptrdiff_t dststrides[], void* srcaddr,
                                                  const ptrdiff_t srcstrides[], size_t elemsz,
                                                  const size_t count[], size_t stridelevels,
                                                  gex_Flags_t flags) {
  return hydrant_vis_strided(0, tm, dstrank, dstaddr, dststrides, srcaddr, srcstrides, elemsz,
                             count, stridelevels, flags);
}
HYDRANT_VIS_INLINE gex_Event_t gex_VIS_StridedPutNB(gex_TM_t tm, gex_Rank_t dstrank, void* dstaddr,
                                                    const ptrdiff_t dststrides[], void* srcaddr,
                                                    const ptrdiff_t srcstrides[], size_t elemsz,
                                                    const size_t count[], size_t stridelevels,
                                                    gex_Flags_t flags) {
  return hydrant_vis_strided_nb(0, tm, dstrank, dstaddr, dststrides, srcaddr, srcstrides, elemsz,
                                count, stridelevels, flags);
}
HYDRANT_VIS_INLINE int gex_VIS_StridedPutNBI(gex_TM_t tm, gex_Rank_t dstrank, void* dstaddr,
                                             const ptrdiff_t dststrides[], void* srcaddr,
                                             const ptrdiff_t srcstrides[], size_t elemsz,
                                             const size_t count[], size_t stridelevels,
                                             gex_Flags_t flags) {
  return hydrant_vis_strided(HYDRANT_VIS_NBI, tm, dstrank, dstaddr, dststrides, srcaddr, srcstrides,
                             elemsz, count, stridelevels, flags);
}
HYDRANT_VIS_INLINE int gex_VIS_StridedGetBlocking(gex_TM_t tm, void* dstaddr,
                                                  const ptrdiff_t dststrides[], gex_Rank_t srcrank,
                                                  void* srcaddr, const ptrdiff_t srcstrides[],
                                                  size_t elemsz, const size_t count[],
                                                  size_t stridelevels, gex_Flags_t flags) {
  return hydrant_vis_strided(HYDRANT_VIS_GET, tm, srcrank, dstaddr, dststrides, srcaddr, srcstrides,
                             elemsz, count, stridelevels, flags);
}
HYDRANT_VIS_INLINE gex_Event_t gex_VIS_StridedGetNB(gex_TM_t tm, void* dstaddr,
                                                    const ptrdiff_t dststrides[],
                                                    gex_Rank_t srcrank, void* srcaddr,
                                                    const ptrdiff_t srcstrides[], size_t elemsz,
                                                    const size_t count[], size_t stridelevels,
                                                    gex_Flags_t flags) {
  return hydrant_vis_strided_nb(HYDRANT_VIS_GET, tm, srcrank, dstaddr, dststrides, srcaddr,
                                srcstrides, elemsz, count, stridelevels, flags);
}
HYDRANT_VIS_INLINE int gex_VIS_StridedGetNBI(gex_TM_t tm, void* dstaddr,
                                             const ptrdiff_t dststrides[], gex_Rank_t srcrank,
                                             void* srcaddr, const ptrdiff_t srcstrides[],
                                             size_t elemsz, const size_t count[],
                                             size_t stridelevels, gex_Flags_t flags) {
  return hydrant_vis_strided(HYDRANT_VIS_GET | HYDRANT_VIS_NBI, tm, srcrank, dstaddr, dststrides,
                             srcaddr, srcstrides, elemsz, count, stridelevels, flags);
}

/* The longest payload of a peer completion handler. */
#define GEX_VIS_MAX_PEERCOMPLETION ((size_t)127)
/* Asks that the calling thread's next put of this header runs a handler at its target, when all its data is
 * there: a Medium reply handler without arguments, registered there with GEX_FLAG_AM_MEDIUM and
 * GEX_FLAG_AM_REPLY, which gets the `bytes` bytes at `source`. They stay unchanged until the put is
 * complete. That put must not have GEX_FLAG_IMMEDIATE. Handler 0 takes the request back. */
void gex_VIS_SetPeerCompletionHandler(gex_AM_Index_t handler, const void* source, size_t bytes,
                                      gex_Flags_t flags);

HYDRANT_GASNET_END

#endif
