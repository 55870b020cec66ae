/* hydrant/gasnet/formatters.h - texts for the arguments of vector, indexed and strided transfers, and
 * for sets of data types, operations and token fields. For messages of programs that also include
 * gasnetex.h.
 *
 * gasnett_format_X(buf, ...) needs a buffer of gasnett_format_X_bufsz(counts) bytes, final zero
 * included. gasnett_format_{dt,op,ti}(buf, value) return the bytes that they need; with a null buffer
 * they write nothing.
 *
 * Errors   none. Threads: any. Cost: one snprintf() per element; nothing is left out of long lists.
 */
#ifndef HYDRANT_GASNET_FORMATTERS_H
#define HYDRANT_GASNET_FORMATTERS_H

#include <hydrant/gasnet/annotations.h>

#include <stddef.h>
#include <stdint.h>

HYDRANT_TOOLS_BEGIN

/* Summary of a list of blocks. Sizes in bytes; maxaddr is the last byte of the last block; all fields
 * are 0 for an empty list. */
typedef struct {
  size_t minsz;
  size_t maxsz;
  size_t totalsz;
  const void* minaddr;
  const void* maxaddr;
} hydrant_tools_blocks_t;

/* A set of one or several bits and its name. */
typedef struct {
  uint64_t bits;
  const char* name;
} hydrant_tools_bit_name_t;

/* A list of gex_Memvec_t is passed as a pointer to its first field, an address, which a size_t length
 * follows. */
size_t hydrant_tools_format_memveclist_bufsz(size_t count);
hydrant_tools_blocks_t hydrant_tools_format_memveclist(char* buf, size_t count, const void* list);
size_t hydrant_tools_format_putvgetv_bufsz(size_t dstcount, size_t srccount);
/* Return the bytes that the transfer moves. `tm` and `rank` are only shown. */
size_t hydrant_tools_format_putvgetv(char* buf, const void* tm, uint32_t rank, size_t dstcount,
                                     const void* dstlist, size_t srccount, const void* srclist);

size_t hydrant_tools_format_addrlist_bufsz(size_t count);
hydrant_tools_blocks_t hydrant_tools_format_addrlist(char* buf, size_t count, void* const* list,
                                                     size_t len);
size_t hydrant_tools_format_putigeti_bufsz(size_t dstcount, size_t srccount);
size_t hydrant_tools_format_putigeti(char* buf, const void* tm, uint32_t rank, size_t dstcount,
                                     void* const dstlist[], size_t dstlen, size_t srccount,
                                     void* const srclist[], size_t srclen);

size_t hydrant_tools_format_strides_bufsz(size_t count);
void hydrant_tools_format_strides(char* buf, size_t count, const ptrdiff_t* list);
size_t hydrant_tools_format_putsgets_bufsz(size_t stridelevels);
/* `stats` is unused; GASNet's signature has it. */
size_t hydrant_tools_format_putsgets(char* buf, void* stats, const void* tm, uint32_t rank,
                                     const void* dstaddr, const ptrdiff_t dststrides[],
                                     const void* srcaddr, const ptrdiff_t srcstrides[],
                                     size_t elemsz, const size_t count[], size_t stridelevels);

/* Formats "NAME|NAME|0x40": the names whose bits are all in `value`, and the remaining bits; "0" for 0.
 * Returns the bytes needed. */
size_t hydrant_tools_format_bits(char* buf, uint64_t value, const hydrant_tools_bit_name_t* names,
                                 size_t name_count);

HYDRANT_TOOLS_END

#ifdef _INCLUDED_GASNETEX_H

#define gasnett_format_memveclist_bufsz hydrant_tools_format_memveclist_bufsz
#define gasnett_format_memveclist hydrant_tools_format_memveclist
#define gasnett_format_putvgetv_bufsz hydrant_tools_format_putvgetv_bufsz
#define gasnett_format_putvgetv hydrant_tools_format_putvgetv
#define gasnett_format_addrlist_bufsz hydrant_tools_format_addrlist_bufsz
#define gasnett_format_addrlist hydrant_tools_format_addrlist
#define gasnett_format_putigeti_bufsz hydrant_tools_format_putigeti_bufsz
#define gasnett_format_putigeti hydrant_tools_format_putigeti
#define gasnett_format_strides_bufsz hydrant_tools_format_strides_bufsz
#define gasnett_format_strides hydrant_tools_format_strides
#define gasnett_format_putsgets_bufsz hydrant_tools_format_putsgets_bufsz
#define gasnett_format_putsgets hydrant_tools_format_putsgets

/* These tables are in the header because the constants are defined by gasnetex.h. */
#define HYDRANT_TOOLS_BIT(constant) \
  { HYDRANT_TOOLS_CAST(uint64_t, constant), #constant }
#define HYDRANT_TOOLS_FORMAT_BITS(buf, value, names)                         \
  hydrant_tools_format_bits(buf, HYDRANT_TOOLS_CAST(uint64_t, value), names, \
                            sizeof(names) / sizeof((names)[0]))

static inline size_t hydrant_tools_format_dt(char* buf, gex_DT_t dt) {
  static const hydrant_tools_bit_name_t names[] = {
      HYDRANT_TOOLS_BIT(GEX_DT_I32), HYDRANT_TOOLS_BIT(GEX_DT_U32), HYDRANT_TOOLS_BIT(GEX_DT_I64),
      HYDRANT_TOOLS_BIT(GEX_DT_U64), HYDRANT_TOOLS_BIT(GEX_DT_FLT), HYDRANT_TOOLS_BIT(GEX_DT_DBL),
      HYDRANT_TOOLS_BIT(GEX_DT_USER)};
  return HYDRANT_TOOLS_FORMAT_BITS(buf, dt, names);
}

static inline size_t hydrant_tools_format_op(char* buf, gex_OP_t op) {
  static const hydrant_tools_bit_name_t names[] = {
      HYDRANT_TOOLS_BIT(GEX_OP_AND),    HYDRANT_TOOLS_BIT(GEX_OP_OR),
      HYDRANT_TOOLS_BIT(GEX_OP_XOR),    HYDRANT_TOOLS_BIT(GEX_OP_ADD),
      HYDRANT_TOOLS_BIT(GEX_OP_SUB),    HYDRANT_TOOLS_BIT(GEX_OP_MULT),
      HYDRANT_TOOLS_BIT(GEX_OP_MIN),    HYDRANT_TOOLS_BIT(GEX_OP_MAX),
      HYDRANT_TOOLS_BIT(GEX_OP_INC),    HYDRANT_TOOLS_BIT(GEX_OP_DEC),
      HYDRANT_TOOLS_BIT(GEX_OP_SET),    HYDRANT_TOOLS_BIT(GEX_OP_CAS),
      HYDRANT_TOOLS_BIT(GEX_OP_FAND),   HYDRANT_TOOLS_BIT(GEX_OP_FOR),
      HYDRANT_TOOLS_BIT(GEX_OP_FXOR),   HYDRANT_TOOLS_BIT(GEX_OP_FADD),
      HYDRANT_TOOLS_BIT(GEX_OP_FSUB),   HYDRANT_TOOLS_BIT(GEX_OP_FMULT),
      HYDRANT_TOOLS_BIT(GEX_OP_FMIN),   HYDRANT_TOOLS_BIT(GEX_OP_FMAX),
      HYDRANT_TOOLS_BIT(GEX_OP_FINC),   HYDRANT_TOOLS_BIT(GEX_OP_FDEC),
      HYDRANT_TOOLS_BIT(GEX_OP_SWAP),   HYDRANT_TOOLS_BIT(GEX_OP_FCAS),
      HYDRANT_TOOLS_BIT(GEX_OP_GET),    HYDRANT_TOOLS_BIT(GEX_OP_USER),
      HYDRANT_TOOLS_BIT(GEX_OP_USER_NC)};
  return HYDRANT_TOOLS_FORMAT_BITS(buf, op, names);
}

static inline size_t hydrant_tools_format_ti(char* buf, gex_TI_t ti) {
  static const hydrant_tools_bit_name_t names[] = {
      HYDRANT_TOOLS_BIT(GEX_TI_SRCRANK), HYDRANT_TOOLS_BIT(GEX_TI_EP),
      HYDRANT_TOOLS_BIT(GEX_TI_ENTRY), HYDRANT_TOOLS_BIT(GEX_TI_IS_REQ),
      HYDRANT_TOOLS_BIT(GEX_TI_IS_LONG)};
  return HYDRANT_TOOLS_FORMAT_BITS(buf, ti, names);
}

#define gasnett_format_dt hydrant_tools_format_dt
#define gasnett_format_op hydrant_tools_format_op
#define gasnett_format_ti hydrant_tools_format_ti

#endif /* _INCLUDED_GASNETEX_H */

#endif
