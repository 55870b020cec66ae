/* hydrant/coll.h - collectives beyond GASNet-EX's: gather to all members, and exchange between all.
 *
 * Include it after gasnetex.h or gasnet.h. As gasnet_coll.h's calls: collective over the team, in the same
 * order with the same length on all members; they never wait, and any number may be under way. Not legal
 * in handlers.
 * Errors: wrong arguments, and members whose calls differ, end the job with a text.
 * Threads: any, one call at a time for a team. Source: Hydrant.
 */
#ifndef HYDRANT_COLL_H
#define HYDRANT_COLL_H

#include <gasnet_coll.h>

HYDRANT_GASNET_BEGIN

/* Copies `bytes` bytes from `source` of each member to `dest` of all members, at the place of its rank:
 * dest has size * bytes bytes. The two must not overlap. The event completes when this rank's `dest` is
 * written and its `source` may be reused. */
gex_Event_t hydrant_gather_all_nb(gex_TM_t tm, void* dest, const void* source, size_t bytes);

/* Copies part j of `source` (of `bytes` bytes) of member i to part i of `dest` of member j. Both have
 * size * bytes bytes, and must not overlap. The event completes as above. */
gex_Event_t hydrant_exchange_nb(gex_TM_t tm, void* dest, const void* source, size_t bytes);

HYDRANT_GASNET_END
#endif
