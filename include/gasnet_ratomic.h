/* gasnet_ratomic.h - remote atomics: operations on single values in any rank's segment, which are atomic with
 * respect to all others of the same atomic domain, from any rank.
 *
 * An atomic domain (gex_AD_t) has a team, a type and a set of operations. During a phase, which barriers
 * separate, a value is accessed through one domain alone: no load, store, put or get, and no other domain.
 *
 * Types: I32 U32 I64 U64 FLT DBL. Operations: SET GET SWAP CAS FCAS; ADD SUB MULT MIN MAX INC DEC; AND OR XOR
 * of integers; FADD, FSUB, ..., FXOR also return the old value. Integers wrap around. CAS compares bits, also
 * those of floats: a NaN equals itself, and -0.0 is not 0.0. MIN and MAX are (old < operand ? old : operand)
 * and (old > operand ? old : operand): a NaN in memory is replaced, and an operand that is one is stored.
 *
 * Memory order: an operation is sequentially consistent with all others that are executed by processors, and
 * complete when its event is. GEX_FLAG_AD_REL orders what the thread did before it, _ACQ what the thread does
 * after its completion. docs/atomics.md: how operations are executed, and what they cost.
 * Source: GASNet-EX 0.19, "Remote Atomic Operations".
 */
#ifndef _INCLUDED_GASNET_RATOMIC_H
#define _INCLUDED_GASNET_RATOMIC_H

#include <gasnetex.h>
#include <hydrant/gasnet/ratomic.h>

HYDRANT_GASNET_BEGIN

typedef struct hydrant_atomic_domain* gex_AD_t;
#define GEX_AD_INVALID ((gex_AD_t)(uintptr_t)0)

/* Collective over `tm`: makes a domain. `dt` is one GEX_DT_*, `ops` an OR of GEX_OP_*, flags 0 or one of
 * GEX_FLAG_AD_FAVOR_MY_RANK, _MY_NBRHD (no effect) and _REMOTE: the network adapters execute the operations
 * if they have all of them (docs/atomics.md), and the segments stay pinned while the domain lives;
 * GEX_FLAG_PEER_SEG_OFFSET has no effect. All members pass the same. Make it after the segments are attached:
 * before, no call of the domain is inlined, and adapters are not used. Destroy it before its team. Not legal
 * in handlers.
 * Errors: wrong arguments, and members that pass others, end the job with a text.
 * Cost: a reduction to all of 40 bytes; with the adapter also the registration of the segment, reductions of
 * 152 bytes per member and of 8 bytes, and once per process a trial of at most 5 s. Memory: 24 bytes per
 * neighbour and, with the adapter, 16 bytes and a key per member. */
void gex_AD_Create(gex_AD_t* ad_p, gex_TM_t tm, gex_DT_t dt, gex_OP_t ops, gex_Flags_t flags);
/* Collective over the domain's team, but does not wait. All operations of all members are complete. */
void gex_AD_Destroy(gex_AD_t ad);

static inline gex_TM_t gex_AD_QueryTM(gex_AD_t ad) { return ad->tm; }
static inline gex_DT_t gex_AD_QueryDT(gex_AD_t ad) { return ad->type; }
static inline gex_OP_t gex_AD_QueryOps(gex_AD_t ad) { return ad->ops; }
static inline gex_Flags_t gex_AD_QueryFlags(gex_AD_t ad) { return ad->flags; }
/* The domain's client pointer, null at first. */
static inline void gex_AD_SetCData(gex_AD_t ad, const void* val) { ad->cdata = val; }
static inline void* gex_AD_QueryCData(gex_AD_t ad) { return (void*)(uintptr_t)ad->cdata; }

/* Start an operation:
 *   gex_Event_t gex_AD_OpNB_I32(gex_AD_t ad, int32_t* result_p, gex_Rank_t tgt_rank, void* tgt_addr,
 *                               gex_OP_t opcode, int32_t operand1, int32_t operand2, gex_Flags_t flags)
 *   int gex_AD_OpNBI_I32(the same)
 * and the same for each type. `opcode` is one operation of the domain; it uses no operand, the first, or
 * both. `result_p`, of operations that return the old value, has it when the operation is complete; others
 * ignore it. `tgt_addr` is an address of the target rank, aligned, in its segment.
 *
 * NB returns an event, GEX_EVENT_INVALID if the operation is complete. NBI counts for gex_NBI_Wait():
 * GEX_EC_PUT (SET), GEX_EC_GET (GET), GEX_EC_RMW (all others).
 *
 * Flags: GEX_FLAG_IMMEDIATE: an operation that cannot start at once does not, and the call returns
 * GEX_EVENT_NO_OP or nonzero. GEX_FLAG_RANK_IS_JOBRANK: tgt_rank is a rank of the job, of a member.
 * GEX_FLAG_AD_REL, _ACQ. GEX_FLAG_AD_MY_RANK, _MY_NBRHD: assertions about the target, which a debug build
 * checks.
 *
 * Not legal in handlers. Threads: any.
 * Errors: wrong arguments end the job with a text: another type, an operation that the domain lacks, no such
 * rank, a target that is not aligned or not in the segment, a null result_p. Domains that were destroyed are
 * found with GASNET_DEBUG.
 * Cost: for integers in memory that is mapped here one locked instruction, if the opcode is a constant. */
HYDRANT_ATOMIC_CALLS(I32, int32_t)
HYDRANT_ATOMIC_CALLS(U32, uint32_t)
HYDRANT_ATOMIC_CALLS(I64, int64_t)
HYDRANT_ATOMIC_CALLS(U64, uint64_t)
HYDRANT_ATOMIC_CALLS(FLT, float)
HYDRANT_ATOMIC_CALLS(DBL, double)

HYDRANT_GASNET_END

#endif
