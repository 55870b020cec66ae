/* hydrant/gasnet/vis1.h - GASNet-1's prototype of vector, indexed and strided put and get: other names for
 * the calls of gasnet_vis.h, over all ranks of the job.
 *
 * Puts take (rank, destination, source), gets (destination, rank, source). _bulk waits, _nb_bulk returns a
 * handle, _nbi_bulk counts for gasnet_wait_syncnbi_*(). Strided: count[0] is the bytes of an element, and
 * count[1] to count[stridelevels] are the counts of the dimensions. Source: GASNet 2025.8.0, gasnet.h.
 */
#ifndef HYDRANT_GASNET_VIS1_H
#define HYDRANT_GASNET_VIS1_H

#include <hydrant/gasnet/rma1.h>

#include <gasnet_vis.h>

HYDRANT_GASNET_BEGIN

typedef struct {
  void* addr;
  size_t len;
} gasnet_memvec_t;

/* Both names of a range have the same layout, and those of a stride the same size. */
#define HYDRANT_MEMVECS(list) ((const gex_Memvec_t*)(const void*)(list))
#define HYDRANT_STRIDES(list) ((const ptrdiff_t*)(const void*)(list))

/* ---- vector ---- */
static inline void gasnet_putv_bulk(gasnet_node_t dstnode, size_t dstcount,
                                    gasnet_memvec_t const dstlist[], size_t srccount,
                                    gasnet_memvec_t const srclist[]) {
  (void)gex_VIS_VectorPutBlocking(&hydrant_world, dstnode, dstcount, HYDRANT_MEMVECS(dstlist),
                                  srccount, HYDRANT_MEMVECS(srclist), 0);
}
static inline gasnet_handle_t gasnet_putv_nb_bulk(gasnet_node_t dstnode, size_t dstcount,
                                                  gasnet_memvec_t const dstlist[], size_t srccount,
                                                  gasnet_memvec_t const srclist[]) {
  return gex_VIS_VectorPutNB(&hydrant_world, dstnode, dstcount, HYDRANT_MEMVECS(dstlist), srccount,
                             HYDRANT_MEMVECS(srclist), 0);
}
static inline void gasnet_putv_nbi_bulk(gasnet_node_t dstnode, size_t dstcount,
                                        gasnet_memvec_t const dstlist[], size_t srccount,
                                        gasnet_memvec_t const srclist[]) {
  (void)gex_VIS_VectorPutNBI(&hydrant_world, dstnode, dstcount, HYDRANT_MEMVECS(dstlist), srccount,
                             HYDRANT_MEMVECS(srclist), 0);
}
static inline void gasnet_getv_bulk(size_t dstcount, gasnet_memvec_t const dstlist[],
                                    gasnet_node_t srcnode, size_t srccount,
                                    gasnet_memvec_t const srclist[]) {
  (void)gex_VIS_VectorGetBlocking(&hydrant_world, dstcount, HYDRANT_MEMVECS(dstlist), srcnode,
                                  srccount, HYDRANT_MEMVECS(srclist), 0);
}
static inline gasnet_handle_t gasnet_getv_nb_bulk(size_t dstcount, gasnet_memvec_t const dstlist[],
                                                  gasnet_node_t srcnode, size_t srccount,
                                                  gasnet_memvec_t const srclist[]) {
  return gex_VIS_VectorGetNB(&hydrant_world, dstcount, HYDRANT_MEMVECS(dstlist), srcnode, srccount,
                             HYDRANT_MEMVECS(srclist), 0);
}
static inline void gasnet_getv_nbi_bulk(size_t dstcount, gasnet_memvec_t const dstlist[],
                                        gasnet_node_t srcnode, size_t srccount,
                                        gasnet_memvec_t const srclist[]) {
  (void)gex_VIS_VectorGetNBI(&hydrant_world, dstcount, HYDRANT_MEMVECS(dstlist), srcnode, srccount,
                             HYDRANT_MEMVECS(srclist), 0);
}

/* ---- indexed ---- */
static inline void gasnet_puti_bulk(gasnet_node_t dstnode, size_t dstcount, void* const dstlist[],
                                    size_t dstlen, size_t srccount, void* const srclist[],
                                    size_t srclen) {
  (void)gex_VIS_IndexedPutBlocking(&hydrant_world, dstnode, dstcount, dstlist, dstlen, srccount,
                                   srclist, srclen, 0);
}
static inline gasnet_handle_t gasnet_puti_nb_bulk(gasnet_node_t dstnode, size_t dstcount,
                                                  void* const dstlist[], size_t dstlen,
                                                  size_t srccount, void* const srclist[],
                                                  size_t srclen) {
  return gex_VIS_IndexedPutNB(&hydrant_world, dstnode, dstcount, dstlist, dstlen, srccount, srclist,
                              srclen, 0);
}
static inline void gasnet_puti_nbi_bulk(gasnet_node_t dstnode, size_t dstcount,
                                        void* const dstlist[], size_t dstlen, size_t srccount,
                                        void* const srclist[], size_t srclen) {
  (void)gex_VIS_IndexedPutNBI(&hydrant_world, dstnode, dstcount, dstlist, dstlen, srccount, srclist,
                              srclen, 0);
}
static inline void gasnet_geti_bulk(size_t dstcount, void* const dstlist[], size_t dstlen,
                                    gasnet_node_t srcnode, size_t srccount, void* const srclist[],
                                    size_t srclen) {
  (void)gex_VIS_IndexedGetBlocking(&hydrant_world, dstcount, dstlist, dstlen, srcnode, srccount,
                                   srclist, srclen, 0);
}
static inline gasnet_handle_t gasnet_geti_nb_bulk(size_t dstcount, void* const dstlist[],
                                                  size_t dstlen, gasnet_node_t srcnode,
                                                  size_t srccount, void* const srclist[],
                                                  size_t srclen) {
  return gex_VIS_IndexedGetNB(&hydrant_world, dstcount, dstlist, dstlen, srcnode, srccount, srclist,
                              srclen, 0);
}
static inline void gasnet_geti_nbi_bulk(size_t dstcount, void* const dstlist[], size_t dstlen,
                                        gasnet_node_t srcnode, size_t srccount,
                                        void* const srclist[], size_t srclen) {
  (void)gex_VIS_IndexedGetNBI(&hydrant_world, dstcount, dstlist, dstlen, srcnode, srccount, srclist,
                              srclen, 0);
}

/* ---- strided ---- */
static inline void gasnet_puts_bulk(gasnet_node_t dstnode, void* dstaddr, const size_t dststrides[],
                                    void* srcaddr, const size_t srcstrides[], const size_t count[],
                                    size_t stridelevels) {
  (void)gex_VIS_StridedPutBlocking(&hydrant_world, dstnode, dstaddr, HYDRANT_STRIDES(dststrides),
                                   srcaddr, HYDRANT_STRIDES(srcstrides), count[0], count + 1,
                                   stridelevels, 0);
}
static inline gasnet_handle_t gasnet_puts_nb_bulk(gasnet_node_t dstnode, void* dstaddr,
                                                  const size_t dststrides[], void* srcaddr,
                                                  const size_t srcstrides[], const size_t count[],
                                                  size_t stridelevels) {
  return gex_VIS_StridedPutNB(&hydrant_world, dstnode, dstaddr, HYDRANT_STRIDES(dststrides),
                              srcaddr, HYDRANT_STRIDES(srcstrides), count[0], count + 1,
                              stridelevels, 0);
}
static inline void gasnet_puts_nbi_bulk(gasnet_node_t dstnode, void* dstaddr,
                                        const size_t dststrides[], void* srcaddr,
                                        const size_t srcstrides[], const size_t count[],
                                        size_t stridelevels) {
  (void)gex_VIS_StridedPutNBI(&hydrant_world, dstnode, dstaddr, HYDRANT_STRIDES(dststrides),
                              srcaddr, HYDRANT_STRIDES(srcstrides), count[0], count + 1,
                              stridelevels, 0);
}
static inline void gasnet_gets_bulk(void* dstaddr, const size_t dststrides[], gasnet_node_t srcnode,
                                    void* srcaddr, const size_t srcstrides[], const size_t count[],
                                    size_t stridelevels) {
  (void)gex_VIS_StridedGetBlocking(&hydrant_world, dstaddr, HYDRANT_STRIDES(dststrides), srcnode,
                                   srcaddr, HYDRANT_STRIDES(srcstrides), count[0], count + 1,
                                   stridelevels, 0);
}
static inline gasnet_handle_t gasnet_gets_nb_bulk(void* dstaddr, const size_t dststrides[],
                                                  gasnet_node_t srcnode, void* srcaddr,
                                                  const size_t srcstrides[], const size_t count[],
                                                  size_t stridelevels) {
  return gex_VIS_StridedGetNB(&hydrant_world, dstaddr, HYDRANT_STRIDES(dststrides), srcnode,
                              srcaddr, HYDRANT_STRIDES(srcstrides), count[0], count + 1,
                              stridelevels, 0);
}
static inline void gasnet_gets_nbi_bulk(void* dstaddr, const size_t dststrides[],
                                        gasnet_node_t srcnode, void* srcaddr,
                                        const size_t srcstrides[], const size_t count[],
                                        size_t stridelevels) {
  (void)gex_VIS_StridedGetNBI(&hydrant_world, dstaddr, HYDRANT_STRIDES(dststrides), srcnode,
                              srcaddr, HYDRANT_STRIDES(srcstrides), count[0], count + 1,
                              stridelevels, 0);
}

HYDRANT_GASNET_END

#endif
