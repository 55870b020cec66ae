/* hydrant/gasnet/events.h - completion of nonblocking operations: test never polls, wait does. Any
 * thread may sync an event, once; success consumes the event. Not legal in handlers. Test returns
 * GASNET_OK or GASNET_ERR_NOT_READY. GEX_EVENT_INVALID counts as complete everywhere.
 */
#ifndef HYDRANT_GASNET_EVENTS_H
#define HYDRANT_GASNET_EVENTS_H

#include <gasnet_errors.h>
#include <hydrant/gasnet/objects.h>

HYDRANT_GASNET_BEGIN

int hydrant_event_test(gex_Event_t event);
void hydrant_event_wait(gex_Event_t event);
/* GASNET_DEBUG: checks the thread and the place of a call that needs nothing else of the library. */
void hydrant_check_call(const char* call);
#ifdef GASNET_DEBUG
#define HYDRANT_CHECK_CALL(call) hydrant_check_call(call)
#else
#define HYDRANT_CHECK_CALL(call) ((void)0)
#endif
static inline int gex_Event_Test(gex_Event_t event) {
  if (event != GEX_EVENT_INVALID) return hydrant_event_test(event);
  HYDRANT_CHECK_CALL("gex_Event_Test");
  return GASNET_OK;
}
static inline void gex_Event_Wait(gex_Event_t event) {
  if (event != GEX_EVENT_INVALID)
    hydrant_event_wait(event);
  else
    HYDRANT_CHECK_CALL("gex_Event_Wait");
}
/* Arrays: completed events are overwritten with GEX_EVENT_INVALID. Some: at least one completed, or all
 * were invalid before. All: no event is left. */
int gex_Event_TestSome(gex_Event_t* pevent, size_t numevents, gex_Flags_t flags);
void gex_Event_WaitSome(gex_Event_t* pevent, size_t numevents, gex_Flags_t flags);
int gex_Event_TestAll(gex_Event_t* pevent, size_t numevents, gex_Flags_t flags);
void gex_Event_WaitAll(gex_Event_t* pevent, size_t numevents, gex_Flags_t flags);

typedef uint32_t gex_EC_t;
#define GEX_EC_GET ((gex_EC_t)1)
#define GEX_EC_PUT ((gex_EC_t)2)
#define GEX_EC_AM ((gex_EC_t)4)
#define GEX_EC_LC ((gex_EC_t)8)
#define GEX_EC_RMW ((gex_EC_t)16)
#define GEX_EC_ALL ((gex_EC_t)31)
/* The implicit (NBI) operations of the calling thread. */
int gex_NBI_Test(gex_EC_t event_mask, gex_Flags_t flags);
void gex_NBI_Wait(gex_EC_t event_mask, gex_Flags_t flags);
/* Between begin and end, this thread's implicit operations count for the one event that the end
 * returns. Regions do not nest, and implicit operations must not be synced inside. */
void gex_NBI_BeginAccessRegion(gex_Flags_t flags);
gex_Event_t gex_NBI_EndAccessRegion(gex_Flags_t flags);
/* The event of one category (GEX_EC_LC) of an operation that was started with GEX_FLAG_ENABLE_LEAF_LC. */
gex_Event_t gex_Event_QueryLeaf(gex_Event_t root, gex_EC_t event_category);

HYDRANT_GASNET_END
#endif
