/* gasnet_coll.h - collectives: broadcast and reductions. The barriers are in gasnetex.h. */
#ifndef _INCLUDED_GASNET_COLL_H
#define _INCLUDED_GASNET_COLL_H

#include <gasnetex.h>
#include <hydrant/gasnet/coll1.h>

HYDRANT_GASNET_BEGIN

/* Copies `bytes` bytes from `source` of rank `root` to `dest` of every member, the root included. At the
 * root `dest` may equal `source`; other ranks' `source` is ignored. Collective: all members make the same
 * calls in the same order, with the same root and length. The event completes when this rank's `dest`
 * is written and, at the root, `source` may be reused; it does not depend on other ranks. Not legal in
 * handlers. Errors: an invalid team or rank, or a null pointer with a length, ends the job. Threads:
 * any, one call at a time. Source: GASNet-EX 0.19, "Collectives". */
gex_Event_t gex_Coll_BroadcastNB(gex_TM_t tm, gex_Rank_t root, void* dest, const void* source,
                                 size_t bytes, gex_Flags_t flags);

/* A client's own operation: combines `count` elements of [arg1] (left) and [arg2_and_out] (right) into
 * [arg2_and_out]. Called with any part of the vectors, in any thread, also concurrently; it must not call
 * GASNet, but for what is legal under a handler-safe lock. */
typedef void (*gex_Coll_ReduceFn_t)(const void* arg1, void* arg2_and_out, size_t count,
                                    const void* cdata);

/* Combine the members' vectors of `count` (at least 1) elements of `unit` bytes element by element, into
 * `dest` of rank `root`, or of all members. `type`: GEX_DT_*, GEX_DT_USER with an operation of the client.
 * `op`: GEX_OP_ADD, MULT, MIN, MAX; AND, OR, XOR of integers; GEX_OP_USER, and GEX_OP_USER_NC, which
 * combines in the order of ranks. `dest` may equal `source`: at the root, or on all members.
 * The order of combination depends on the ranks alone: the same bits on all members and in each run.
 * Collective: all members make the same calls in the same order, with the same arguments but the
 * addresses, user_op and user_data. Never waits; any number of operations may be under way. The event
 * completes when this rank's part is done. Not legal in handlers.
 * Errors: wrong arguments, and members whose calls differ, end the job with a text that names them
 * (docs/collectives.md, "Checks").
 * Threads: any, one call at a time for a team. Source: GASNet-EX 0.19, "Collectives". */
gex_Event_t gex_Coll_ReduceToOneNB(gex_TM_t tm, gex_Rank_t root, void* dest, const void* source,
                                   gex_DT_t type, size_t unit, size_t count, gex_OP_t op,
                                   gex_Coll_ReduceFn_t user_op, void* user_data, gex_Flags_t flags);
gex_Event_t gex_Coll_ReduceToAllNB(gex_TM_t tm, void* dest, const void* source, gex_DT_t type,
                                   size_t unit, size_t count, gex_OP_t op,
                                   gex_Coll_ReduceFn_t user_op, void* user_data, gex_Flags_t flags);

HYDRANT_GASNET_END

#endif
