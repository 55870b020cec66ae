/* gasnet_coll.h - collectives: the broadcast. The barriers are in gasnetex.h; this version has no
 * reductions. */
#ifndef _INCLUDED_GASNET_COLL_H
#define _INCLUDED_GASNET_COLL_H

#include <gasnetex.h>

HYDRANT_GASNET_BEGIN

/* Copies `bytes` bytes from `source` of rank `root` to `dest` of every rank, the root included. At the
 * root `dest` may equal `source`; other ranks' `source` is ignored. Collective: all ranks make the same
 * calls in the same order, with the same root and length. The event completes when this rank's `dest`
 * is written and, at the root, `source` may be reused; it does not depend on other ranks. Not legal in
 * handlers. Errors: an invalid team or rank, or a null pointer with a length, ends the job. Threads:
 * any, one call at a time. Source: GASNet-EX 0.19, "Collectives". */
gex_Event_t gex_Coll_BroadcastNB(gex_TM_t tm, gex_Rank_t root, void* dest, const void* source,
                                 size_t bytes, gex_Flags_t flags);

HYDRANT_GASNET_END

HYDRANT_LATER(gex_Coll_ReduceToOneNB, "collectives are not in this version of Hydrant")
HYDRANT_LATER(gex_Coll_ReduceToAllNB, "collectives are not in this version of Hydrant")

#endif
