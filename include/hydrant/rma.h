/* hydrant/rma.h - Hydrant's extensions of GASNet's put and get: many operations in one call, and
 * counters of the paths that operations took.
 *
 * Include it after gasnetex.h or gasnet.h.
 * Errors: functions return GASNET_OK or a code of gasnet_errors.h, with a text in
 * hydrant_last_error_text(). Errors do not end the job unless HYDRANT_ON_FAULT=abort.
 * Threads: any. Not legal in handlers.
 */
#ifndef HYDRANT_RMA_H
#define HYDRANT_RMA_H

#include <gasnetex.h>

HYDRANT_GASNET_BEGIN

/* A copy between [local, local+bytes) in this process and [remote, remote+bytes) of `rank` of a team. */
typedef struct {
  gex_Rank_t rank;
  void* remote;
  void* local;
  size_t bytes;
} hydrant_rma_op_t;

/* Starts `count` operations with ranks of `tm`, a team or a pair of endpoints, together. Operations on the
 * same path to the same rank share one post or one system call; this works best if they are ordered by rank.
 * `total_bytes` must be the sum of all `bytes`; it is not recomputed, and 0 means no work (programs with
 * GASNET_DEBUG check it). `event`: NULL to return when all operations are complete, sources included, or
 * the place for one event for all. `ops` may be reused on return, the memory only after completion.
 * Errors: GASNET_ERR_BAD_ARG: no team, invalid rank, null with a length, a range that wraps around,
 * unmapped memory; other operations of the call may then have been executed. Source: Hydrant. */
int hydrant_put_many(gex_TM_t tm, const hydrant_rma_op_t* ops, size_t count, size_t total_bytes,
                     gex_Event_t* event);
int hydrant_get_many(gex_TM_t tm, const hydrant_rma_op_t* ops, size_t count, size_t total_bytes,
                     gex_Event_t* event);

/* Text of the calling thread's last failure; "" if there was none. */
const char* hydrant_last_error_text(void);

/* ---- paths ---- */
typedef enum {
  HYDRANT_PATH_SELF,   /* this process: a copy */
  HYDRANT_PATH_MAPPED, /* mapped memory: a copy */
  HYDRANT_PATH_CMA,    /* cross-memory attach: the kernel copies between the processes */
  /* Between pinned memory: the firehose on the remote part was cached, or the memory lies in a mapped
   * arena. */
  HYDRANT_PATH_FIREHOSE,
  /* No firehose was cached: the data travelled with the request for a firehose or with the reply. For large
   * gets the target put the data before it replied. */
  HYDRANT_PATH_IN_MOVE,
  HYDRANT_PATH_RENDEZVOUS, /* no firehose was cached: the data followed the reply */
  HYDRANT_PATH_DIRECT,     /* posted to the network from the source itself */
  HYDRANT_PATH_BOUNCE,     /* posted to the network from, or to, a bounce buffer */
  HYDRANT_PATH_AM_MEDIUM,  /* Active Messages with the payload in the message */
  HYDRANT_PATH_AM_LONG,    /* Active Messages with the payload written to its destination */
  HYDRANT_PATH_COUNT
} hydrant_path_t;
/* "self", "mapped", "cma", "firehose", "in_move", "rendezvous", "direct", "bounce", "am_medium", "am_long";
 * NULL for other values. */
const char* hydrant_path_name(hydrant_path_t path);

typedef struct {
  uint64_t put_ops, put_bytes;
  uint64_t get_ops, get_bytes;
} hydrant_path_counts_t;
/* Reads the operations that all threads of this process have sent along `path` to `rank` of the job, or to
 * all ranks (GEX_RANK_INVALID). Each operation counts once, on the path of its first byte; fills
 * (gasnet_memset) count as puts. Exact for operations that happened before the call; does not stop
 * other threads. Copies by HYDRANT_PATH_SELF and HYDRANT_PATH_MAPPED count only with HYDRANT_STATS, with
 * GASNET_DEBUG or under a trace: otherwise they are made in the caller, in less time than a count takes.
 * Errors: GASNET_ERR_NOT_INIT, GASNET_ERR_BAD_ARG. */
int hydrant_query_path(gex_Rank_t rank, hydrant_path_t path, hydrant_path_counts_t* counts);

/* ---- firehoses ---- */

/* Hints, for memory that puts and gets access through pins and for mapped shared arenas of this node.
 * hydrant_prefetch() requests a firehose on [remote, remote+bytes) of `rank` of the job with
 * one message and does not wait. hydrant_evict() releases this process's firehoses on the range. No
 * effect for other memory, or if the firehose is not available now.
 * Errors: GASNET_ERR_NOT_INIT; GASNET_ERR_BAD_ARG: invalid rank, or a range that wraps around;
 * HYDRANT_ERR_BROKEN: the rank is dead or unreachable. Source: Hydrant. */
int hydrant_prefetch(gex_Rank_t rank, const void* remote, size_t bytes);
int hydrant_evict(gex_Rank_t rank, const void* remote, size_t bytes);

HYDRANT_GASNET_END
#endif
