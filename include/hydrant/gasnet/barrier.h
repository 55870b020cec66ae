/* hydrant/gasnet/barrier.h - GASNet-1's split-phase, named barrier over all ranks, and GASNet-EX's
 * barrier over a team. The two must not overlap on the primordial team.
 *
 * gasnet_barrier_notify() never waits. wait and try return GASNET_OK, or GASNET_ERR_BARRIER_MISMATCH on
 * every rank if two names disagree or a rank passed GASNET_BARRIERFLAG_MISMATCH. try also returns
 * GASNET_ERR_NOT_READY. Flags 0 means that `id` is a name; an anonymous barrier matches every name.
 */
#ifndef HYDRANT_GASNET_BARRIER_H
#define HYDRANT_GASNET_BARRIER_H

#include <hydrant/gasnet/events.h>

HYDRANT_GASNET_BEGIN

#define GASNET_BARRIERFLAG_ANONYMOUS 1
#define GASNET_BARRIERFLAG_MISMATCH 2
/* Promises that all ranks pass this flag, here and at wait. */
#define GASNET_BARRIERFLAG_UNNAMED (GASNET_BARRIERFLAG_ANONYMOUS | 4)

void gasnet_barrier_notify(int id, int flags);
int gasnet_barrier_wait(int id, int flags);
int gasnet_barrier_try(int id, int flags);
int gasnet_barrier(int id, int flags);
/* After a barrier: returns 0 and the agreed name, or nonzero if the barrier was anonymous. */
int gasnet_barrier_result(int* id);

gex_Event_t gex_Coll_BarrierNB(gex_TM_t tm, gex_Flags_t flags);
void gex_Coll_BarrierBlocking(gex_TM_t tm, gex_Flags_t flags);

HYDRANT_GASNET_END
#endif
