/* hydrant/gasnet/coll1.h - GASNet-1's prototype of collectives: broadcast, scatter, gather, gather_all and
 * exchange over a team, blocking and with a handle, and barriers over all ranks.
 *
 * `nbytes` is the length of one rank's part. Flags: one of GASNET_COLL_IN_*, when data may be read and
 * written, and one of GASNET_COLL_OUT_*, when the operation may be over: at any time, when this rank has
 * called or its own part is done, or when all ranks have. GASNET_COLL_LOCAL and the flags about segments
 * change nothing. Collective: all ranks make the same calls in the same order. Not legal in handlers.
 * Errors: wrong arguments end the job with a text. Threads: any, one call at a time for a team.
 * Source: GASNet 2025.8.0, extended-ref/coll.
 */
#ifndef HYDRANT_GASNET_COLL1_H
#define HYDRANT_GASNET_COLL1_H

#include <hydrant/gasnet/barrier.h>
#include <hydrant/gasnet/objects.h>

HYDRANT_GASNET_BEGIN

#define GASNET_COLL_IN_NOSYNC (1 << 0)
#define GASNET_COLL_IN_MYSYNC (1 << 1)
#define GASNET_COLL_IN_ALLSYNC (1 << 2)
#define GASNET_COLL_OUT_NOSYNC (1 << 3)
#define GASNET_COLL_OUT_MYSYNC (1 << 4)
#define GASNET_COLL_OUT_ALLSYNC (1 << 5)
#define GASNET_COLL_SYNC_FLAG_MASK 0x3f
#define GASNET_COLL_LOCAL (1 << 7)
#define GASNET_COLL_FIXED_THREADS_PER_NODE (1 << 9)
#define GASNET_COLL_DST_IN_SEGMENT (1 << 10)
#define GASNET_COLL_SRC_IN_SEGMENT (1 << 11)
#define GASNET_COLL_DISABLE_AUTOTUNE (1 << 18)
#define GASNET_COLL_NO_IMAGES (1 << 19)

typedef uint32_t gasnet_image_t; /* a rank */
typedef gex_Event_t gasnet_coll_handle_t;
#define GASNET_COLL_INVALID_HANDLE GEX_EVENT_INVALID
typedef gex_TM_t gasnet_team_handle_t;
#define GASNET_TEAM_ALL ((gasnet_team_handle_t)&hydrant_world)

/* From `src` of rank `srcimage` to `dst` of all. */
gasnet_coll_handle_t gasnet_coll_broadcast_nb(gasnet_team_handle_t team, void* dst,
                                              gasnet_image_t srcimage, void* src, size_t nbytes,
                                              int flags);
void gasnet_coll_broadcast(gasnet_team_handle_t team, void* dst, gasnet_image_t srcimage, void* src,
                           size_t nbytes, int flags);
/* Part i of `src` of rank `srcimage` to `dst` of rank i. */
gasnet_coll_handle_t gasnet_coll_scatter_nb(gasnet_team_handle_t team, void* dst,
                                            gasnet_image_t srcimage, void* src, size_t nbytes,
                                            int flags);
void gasnet_coll_scatter(gasnet_team_handle_t team, void* dst, gasnet_image_t srcimage, void* src,
                         size_t nbytes, int flags);
/* From `src` of rank i to part i of `dst` of rank `dstimage`. */
gasnet_coll_handle_t gasnet_coll_gather_nb(gasnet_team_handle_t team, gasnet_image_t dstimage,
                                           void* dst, void* src, size_t nbytes, int flags);
void gasnet_coll_gather(gasnet_team_handle_t team, gasnet_image_t dstimage, void* dst, void* src,
                        size_t nbytes, int flags);
/* From `src` of rank i to part i of `dst` of all. */
gasnet_coll_handle_t gasnet_coll_gather_all_nb(gasnet_team_handle_t team, void* dst, void* src,
                                               size_t nbytes, int flags);
void gasnet_coll_gather_all(gasnet_team_handle_t team, void* dst, void* src, size_t nbytes,
                            int flags);
/* Part j of `src` of rank i to part i of `dst` of rank j. */
gasnet_coll_handle_t gasnet_coll_exchange_nb(gasnet_team_handle_t team, void* dst, void* src,
                                             size_t nbytes, int flags);
void gasnet_coll_exchange(gasnet_team_handle_t team, void* dst, void* src, size_t nbytes,
                          int flags);

#define gasnet_coll_try_sync(handle) gex_Event_Test(handle)
#define gasnet_coll_try_sync_some(handles, count) gex_Event_TestSome(handles, count, 0)
#define gasnet_coll_try_sync_all(handles, count) gex_Event_TestAll(handles, count, 0)
#define gasnet_coll_wait_sync(handle) gex_Event_Wait(handle)
#define gasnet_coll_wait_sync_some(handles, count) gex_Event_WaitSome(handles, count, 0)
#define gasnet_coll_wait_sync_all(handles, count) gex_Event_WaitAll(handles, count, 0)

/* The barriers of hydrant/gasnet/barrier.h: `team` has to be GASNET_TEAM_ALL. */
void gasnet_coll_barrier_notify(gasnet_team_handle_t team, int id, int flags);
int gasnet_coll_barrier_try(gasnet_team_handle_t team, int id, int flags);
int gasnet_coll_barrier_wait(gasnet_team_handle_t team, int id, int flags);
int gasnet_coll_barrier(gasnet_team_handle_t team, int id, int flags);
int gasnet_coll_barrier_result(gasnet_team_handle_t team, int* id);

/* ---- tuning: accepted, without effect; HYDRANT_COLL_* choose algorithms ---- */
typedef enum {
  GASNET_COLL_BROADCAST_OP = 0,
  GASNET_COLL_SCATTER_OP,
  GASNET_COLL_GATHER_OP,
  GASNET_COLL_GATHER_ALL_OP,
  GASNET_COLL_EXCHANGE_OP,
  GASNET_COLL_NUM_COLL_OPTYPES
} gasnet_coll_optype_t;
typedef enum {
  GASNET_COLL_PIPE_SEG_SIZE,
  GASNET_COLL_DISSEM_RADIX,
  GASNET_COLL_TREE_TYPE,
  GASNET_COLL_NUM_PARAM_TYPES
} gasnet_coll_tuning_param_type_t;
static inline void gasnet_coll_loadTuningState(char* filename, gasnet_team_handle_t team) {
  (void)filename, (void)team;
}
static inline void gasnet_coll_dumpTuningState(char* filename, gasnet_team_handle_t team) {
  (void)filename, (void)team;
}
static inline void gasnet_coll_dumpProfile(char* filename, gasnet_team_handle_t team) {
  (void)filename, (void)team;
}
static inline int gasnet_coll_get_num_tree_classes(gasnet_team_handle_t team,
                                                   gasnet_coll_optype_t optype) {
  (void)team, (void)optype;
  return 1;
}
static inline void gasnet_coll_set_tree_kind(gasnet_team_handle_t team, int tree_type, int fanout,
                                             gasnet_coll_optype_t optype) {
  (void)team, (void)tree_type, (void)fanout, (void)optype;
}
static inline void gasnet_coll_set_dissem_limit(gasnet_team_handle_t team, size_t limit,
                                                gasnet_coll_optype_t optype) {
  (void)team, (void)limit, (void)optype;
}

HYDRANT_GASNET_END
#endif
