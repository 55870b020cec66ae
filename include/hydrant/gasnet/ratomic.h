/* hydrant/gasnet/ratomic.h - the parts of gasnet_ratomic.h that are not for clients: the object behind
 * gex_AD_t, and the operations that are inlined.
 *
 * Operations on memory that is mapped here are executed in the caller: by one locked instruction if the type
 * is an integer and the opcode a constant, else by hydrant_atomic_apply(). docs/atomics.md has the rest.
 */
#ifndef HYDRANT_GASNET_RATOMIC_H
#define HYDRANT_GASNET_RATOMIC_H

#include <hydrant/gasnet/events.h>
#include <hydrant/gasnet/objects.h>

#include <string.h>

HYDRANT_GASNET_BEGIN

/* The segment of a member, if it is mapped here. */
struct hydrant_atomic_row {
  uintptr_t addr;  /* in its owner */
  uintptr_t size;  /* bytes; 0: not mapped here */
  uintptr_t shift; /* added to an owner's address, gives the address here */
};
/* Constant from gex_AD_Create() to gex_AD_Destroy(), but for cdata. The rows follow it. */
struct hydrant_atomic_domain {
  gex_TM_t tm;
  gex_DT_t type;
  gex_OP_t ops;
  gex_Flags_t flags;
  gex_Rank_t rows; /* of the members with the lowest ranks */
  const void* cdata;
  /* By type: operations that may be inlined. 0 but for the domain's own type. */
  gex_OP_t inlined[6];
  gex_Flags_t inlined_flags; /* that inlined calls may have */
  uint32_t all_mapped; /* every member has mapped the segments of all: the same on every member */
  /* The library's: the adapter executes operations, if not null; all of them if adapter_alone. */
  const void* adapter_keys;
  uint32_t adapter_alone;
};

/* The library's functions. Operands are bits, the lower ones for types of 32 bits. */
gex_Event_t hydrant_atomic_nb(struct hydrant_atomic_domain* ad, gex_DT_t type, void* result,
                              gex_Rank_t rank, void* target, gex_OP_t op, uint64_t operand1,
                              uint64_t operand2, gex_Flags_t flags);
int hydrant_atomic_nbi(struct hydrant_atomic_domain* ad, gex_DT_t type, void* result,
                       gex_Rank_t rank, void* target, gex_OP_t op, uint64_t operand1,
                       uint64_t operand2, gex_Flags_t flags);

/* Executes an operation on the word at `here`, and returns its old value as bits. `type` is the index of its
 * bit. */
uint64_t hydrant_atomic_apply(unsigned int type, gex_OP_t op, void* here, uint64_t operand1,
                              uint64_t operand2);

/* Operations that are one instruction: of integers, and of floats. */
#define HYDRANT_ATOMIC_MOVES (GEX_OP_SET | GEX_OP_GET | GEX_OP_SWAP | GEX_OP_CAS | GEX_OP_FCAS)
#define HYDRANT_ATOMIC_INSTRUCTIONS                                                              \
  (GEX_OP_SET | GEX_OP_GET | GEX_OP_SWAP | GEX_OP_CAS | GEX_OP_FCAS | GEX_OP_ADD | GEX_OP_FADD | \
   GEX_OP_SUB | GEX_OP_FSUB | GEX_OP_INC | GEX_OP_FINC | GEX_OP_DEC | GEX_OP_FDEC | GEX_OP_AND | \
   GEX_OP_OR | GEX_OP_XOR)
/* Operations that are loops: of both, and of floats alone. */
#define HYDRANT_ATOMIC_LOOPS \
  (GEX_OP_MULT | GEX_OP_FMULT | GEX_OP_MIN | GEX_OP_FMIN | GEX_OP_MAX | GEX_OP_FMAX)
#define HYDRANT_ATOMIC_SUMS                                                                      \
  (GEX_OP_ADD | GEX_OP_FADD | GEX_OP_SUB | GEX_OP_FSUB | GEX_OP_INC | GEX_OP_FINC | GEX_OP_DEC | \
   GEX_OP_FDEC)
#define HYDRANT_ATOMIC_FETCHING                                                        \
  (GEX_OP_GET | GEX_OP_SWAP | GEX_OP_FCAS | GEX_OP_FADD | GEX_OP_FSUB | GEX_OP_FMULT | \
   GEX_OP_FMIN | GEX_OP_FMAX | GEX_OP_FINC | GEX_OP_FDEC | GEX_OP_FAND | GEX_OP_FOR | GEX_OP_FXOR)
#if defined(GASNET_DEBUG) || defined(HYDRANT_RMA_NO_INLINE)
#define HYDRANT_ATOMIC_IS_INLINED 0
#else
#define HYDRANT_ATOMIC_IS_INLINED 1
#endif

/* The address here of a target of `bytes` bytes; 0: the library has to look. A segment consists of pages, so
 * that an aligned target is inside if its first byte is. */
static inline uintptr_t hydrant_atomic_here(const struct hydrant_atomic_domain* ad, gex_OP_t ops,
                                            gex_Rank_t rank, const void* target, gex_OP_t op,
                                            size_t bytes, gex_Flags_t flags) {
  const struct hydrant_atomic_row* row;
  const uintptr_t at = (uintptr_t)target;
  if ((ops & op) == 0 || (op & (op - 1)) != 0 || (flags & ~ad->inlined_flags) != 0 ||
      rank >= ad->rows)
    return 0;
  row = (const struct hydrant_atomic_row*)(ad + 1) + rank;
  if (at - row->addr >= row->size || at % bytes != 0) return 0;
  return at + row->shift;
}

/* Executes one of HYDRANT_ATOMIC_INSTRUCTIONS. All operations are sequentially consistent: on x86-64 only SET
 * would be cheaper with less (decision 0050). */
#define HYDRANT_ATOMIC_INSTRUCTION(code, type)                                                 \
  static inline type hydrant_atomic_instruction_##code(type* here, gex_OP_t op, type operand1, \
                                                       type operand2) {                        \
    type old = operand1;                                                                       \
    switch (op) {                                                                              \
      case GEX_OP_SET: __atomic_store_n(here, operand1, __ATOMIC_SEQ_CST); return 0;           \
      case GEX_OP_GET: return __atomic_load_n(here, __ATOMIC_SEQ_CST);                         \
      case GEX_OP_SWAP: return __atomic_exchange_n(here, operand1, __ATOMIC_SEQ_CST);          \
      case GEX_OP_ADD:                                                                         \
      case GEX_OP_FADD: return __atomic_fetch_add(here, operand1, __ATOMIC_SEQ_CST);           \
      case GEX_OP_SUB:                                                                         \
      case GEX_OP_FSUB: return __atomic_fetch_sub(here, operand1, __ATOMIC_SEQ_CST);           \
      case GEX_OP_INC:                                                                         \
      case GEX_OP_FINC: return __atomic_fetch_add(here, 1, __ATOMIC_SEQ_CST);                  \
      case GEX_OP_DEC:                                                                         \
      case GEX_OP_FDEC: return __atomic_fetch_sub(here, 1, __ATOMIC_SEQ_CST);                  \
      case GEX_OP_AND: (void)__atomic_fetch_and(here, operand1, __ATOMIC_SEQ_CST); return 0;   \
      case GEX_OP_OR: (void)__atomic_fetch_or(here, operand1, __ATOMIC_SEQ_CST); return 0;     \
      case GEX_OP_XOR: (void)__atomic_fetch_xor(here, operand1, __ATOMIC_SEQ_CST); return 0;   \
      default: /* CAS, FCAS */                                                                 \
        (void)__atomic_compare_exchange_n(here, &old, operand2, 0, __ATOMIC_SEQ_CST,           \
                                          __ATOMIC_SEQ_CST);                                   \
        return old;                                                                            \
    }                                                                                          \
  }
HYDRANT_ATOMIC_INSTRUCTION(I32, int32_t)
HYDRANT_ATOMIC_INSTRUCTION(U32, uint32_t)
HYDRANT_ATOMIC_INSTRUCTION(I64, int64_t)
HYDRANT_ATOMIC_INSTRUCTION(U64, uint64_t)
#define HYDRANT_ATOMIC_INSTRUCTION_FLOAT(code, type)                                           \
  static inline type hydrant_atomic_instruction_##code(type* here, gex_OP_t op, type operand1, \
                                                       type operand2) {                        \
    type old = operand1; /* CAS and FCAS compare its bits */                                   \
    if (op == GEX_OP_SET)                                                                      \
      __atomic_store(here, &operand1, __ATOMIC_SEQ_CST);                                       \
    else if (op == GEX_OP_GET)                                                                 \
      __atomic_load(here, &old, __ATOMIC_SEQ_CST);                                             \
    else if (op == GEX_OP_SWAP)                                                                \
      __atomic_exchange(here, &operand1, &old, __ATOMIC_SEQ_CST);                              \
    else                                                                                       \
      (void)__atomic_compare_exchange(here, &old, &operand2, 0, __ATOMIC_SEQ_CST,              \
                                      __ATOMIC_SEQ_CST);                                       \
    return old;                                                                                \
  }
HYDRANT_ATOMIC_INSTRUCTION_FLOAT(FLT, float)
HYDRANT_ATOMIC_INSTRUCTION_FLOAT(DBL, double)

/* Executes one of HYDRANT_ATOMIC_LOOPS, again if another operation came between. */
#define HYDRANT_ATOMIC_LOOP(code, type, wrapping)                                              \
  static inline type hydrant_atomic_loop_##code(type* here, gex_OP_t op, type operand) {       \
    type old, next;                                                                            \
    __atomic_load(here, &old, __ATOMIC_RELAXED);                                               \
    do {                                                                                       \
      switch (op) {                                                                            \
        case GEX_OP_MULT:                                                                      \
        case GEX_OP_FMULT: next = (type)((wrapping)old * (wrapping)operand); break;            \
        case GEX_OP_MIN:                                                                       \
        case GEX_OP_FMIN: next = old < operand ? old : operand; break;                         \
        case GEX_OP_MAX:                                                                       \
        case GEX_OP_FMAX: next = old > operand ? old : operand; break;                         \
        case GEX_OP_SUB:                                                                       \
        case GEX_OP_FSUB: next = (type)((wrapping)old - (wrapping)operand); break;             \
        case GEX_OP_INC:                                                                       \
        case GEX_OP_FINC: next = (type)((wrapping)old + 1); break;                             \
        case GEX_OP_DEC:                                                                       \
        case GEX_OP_FDEC: next = (type)((wrapping)old - 1); break;                             \
        default: /* ADD, FADD */ next = (type)((wrapping)old + (wrapping)operand);             \
      }                                                                                        \
    } while (                                                                                  \
        !__atomic_compare_exchange(here, &old, &next, 1, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)); \
    return old;                                                                                \
  }
HYDRANT_ATOMIC_LOOP(I32, int32_t, uint32_t)
HYDRANT_ATOMIC_LOOP(U32, uint32_t, uint32_t)
HYDRANT_ATOMIC_LOOP(I64, int64_t, uint64_t)
HYDRANT_ATOMIC_LOOP(U64, uint64_t, uint64_t)
HYDRANT_ATOMIC_LOOP(FLT, float, float)
HYDRANT_ATOMIC_LOOP(DBL, double, double)

/* hydrant_atomic_done_*() executes an operation on memory that is mapped here, or returns 0.
 * The result is stored before the operation, too: its line is then in the cache, and a locked instruction
 * between a load and a store takes a quarter longer than one with a store before it (decision 0050). */
#define HYDRANT_ATOMIC_TYPE(code, type, index, is_integer)                                         \
  static inline uint64_t hydrant_atomic_bits_##code(type value) {                                  \
    uint64_t bits = 0;                                                                             \
    memcpy(&bits, &value, sizeof value);                                                           \
    return bits;                                                                                   \
  }                                                                                                \
  static inline type hydrant_atomic_value_##code(uint64_t bits) {                                  \
    type value;                                                                                    \
    memcpy(&value, &bits, sizeof value);                                                           \
    return value;                                                                                  \
  }                                                                                                \
  static inline int hydrant_atomic_done_##code(                                                    \
      const struct hydrant_atomic_domain* ad, type* result, gex_Rank_t rank, const void* target,   \
      gex_OP_t op, type operand1, type operand2, gex_Flags_t flags) {                              \
    const int is_fetching = (op & HYDRANT_ATOMIC_FETCHING) != 0;                                   \
    type* here;                                                                                    \
    type old;                                                                                      \
    if (!HYDRANT_ATOMIC_IS_INLINED) return 0;                                                      \
    here =                                                                                         \
        (type*)hydrant_atomic_here(ad, ad->inlined[index], rank, target, op, sizeof(type), flags); \
    if (here == NULL || (is_fetching && result == NULL)) return 0;                                 \
    if (is_fetching && op != GEX_OP_GET) *result = operand1;                                       \
    if (__builtin_constant_p(op) &&                                                                \
        (op & ((is_integer) ? HYDRANT_ATOMIC_INSTRUCTIONS : HYDRANT_ATOMIC_MOVES)) != 0)           \
      old = hydrant_atomic_instruction_##code(here, op, operand1, operand2);                       \
    else if (__builtin_constant_p(op) &&                                                           \
             (op & (HYDRANT_ATOMIC_LOOPS | ((is_integer) ? 0 : HYDRANT_ATOMIC_SUMS))) != 0)        \
      old = hydrant_atomic_loop_##code(here, op, operand1);                                        \
    else                                                                                           \
      old = hydrant_atomic_value_##code(                                                           \
          hydrant_atomic_apply(index, op, here, hydrant_atomic_bits_##code(operand1),              \
                               hydrant_atomic_bits_##code(operand2)));                             \
    if (is_fetching) *result = old;                                                                \
    return 1;                                                                                      \
  }
HYDRANT_ATOMIC_TYPE(I32, int32_t, 0, 1)
HYDRANT_ATOMIC_TYPE(U32, uint32_t, 1, 1)
HYDRANT_ATOMIC_TYPE(I64, int64_t, 2, 1)
HYDRANT_ATOMIC_TYPE(U64, uint64_t, 3, 1)
HYDRANT_ATOMIC_TYPE(FLT, float, 4, 0)
HYDRANT_ATOMIC_TYPE(DBL, double, 5, 0)

/* The typed calls of gasnet_ratomic.h. */
#define HYDRANT_ATOMIC_CALLS(code, type)                                                         \
  static inline gex_Event_t gex_AD_OpNB_##code(                                                  \
      struct hydrant_atomic_domain* ad, type* result_p, gex_Rank_t tgt_rank, void* tgt_addr,     \
      gex_OP_t opcode, type operand1, type operand2, gex_Flags_t flags) {                        \
    if (hydrant_atomic_done_##code(ad, result_p, tgt_rank, tgt_addr, opcode, operand1, operand2, \
                                   flags))                                                       \
      return GEX_EVENT_INVALID;                                                                  \
    return hydrant_atomic_nb(ad, GEX_DT_##code, result_p, tgt_rank, tgt_addr, opcode,            \
                             hydrant_atomic_bits_##code(operand1),                               \
                             hydrant_atomic_bits_##code(operand2), flags);                       \
  }                                                                                              \
  static inline int gex_AD_OpNBI_##code(struct hydrant_atomic_domain* ad, type* result_p,        \
                                        gex_Rank_t tgt_rank, void* tgt_addr, gex_OP_t opcode,    \
                                        type operand1, type operand2, gex_Flags_t flags) {       \
    if (hydrant_atomic_done_##code(ad, result_p, tgt_rank, tgt_addr, opcode, operand1, operand2, \
                                   flags))                                                       \
      return GASNET_OK;                                                                          \
    return hydrant_atomic_nbi(ad, GEX_DT_##code, result_p, tgt_rank, tgt_addr, opcode,           \
                              hydrant_atomic_bits_##code(operand1),                              \
                              hydrant_atomic_bits_##code(operand2), flags);                      \
  }

HYDRANT_GASNET_END
#endif
