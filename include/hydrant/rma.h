/* hydrant/rma.h - what Hydrant's put and get offer beyond GASNet's: many operations at once, and counts of
 * the paths that operations took.
 *
 * Include it after gasnetex.h or gasnet.h. Functions answer GASNET_OK or a code of gasnet_errors.h, with a
 * text in hydrant_last_error_text(). What cannot be done is an answer here, and no end of the job, unless
 * HYDRANT_ON_FAULT=abort. Threads: any. Not legal in handlers.
 */
#ifndef HYDRANT_RMA_H
#define HYDRANT_RMA_H

#include <gasnetex.h>

HYDRANT_GASNET_BEGIN

/* One copy between this process and `rank`, whose memory is [remote, remote+bytes). */
typedef struct {
  gex_Rank_t rank;
  void* remote;
  void* local;
  size_t bytes;
} hydrant_rma_op_t;

/* Starts `count` operations together: what goes the same way to the same rank costs one post or one system
 * call, best if they stand in order of ranks. `total_bytes` is the sum of all `bytes`, which is not computed
 * again: 0 means that there is nothing to do (programs with GASNET_DEBUG have it checked). `event`: null to
 * return when all are complete (sources and all), or where to put one event for all of them; the array may be
 * used again on return, the memory not before.
 * Errors: GASNET_ERR_BAD_ARG: no such rank, null with a length, a range that wraps around, memory that is not
 * there; then others of the operations may have been done. Source: Hydrant. */
int hydrant_put_many(const hydrant_rma_op_t* ops, size_t count, size_t total_bytes,
                     gex_Event_t* event);
int hydrant_get_many(const hydrant_rma_op_t* ops, size_t count, size_t total_bytes,
                     gex_Event_t* event);

/* Why the calling thread's last call failed; "" if none did. */
const char* hydrant_last_error_text(void);

/* ---- paths ---- */
typedef enum {
  HYDRANT_PATH_SELF,    /* this process: a copy */
  HYDRANT_PATH_INLINED, /* mapped memory, stores or loads in the caller */
  HYDRANT_PATH_MAPPED,  /* mapped memory, a copy */
  HYDRANT_PATH_CMA,     /* the kernel copies between the processes */
  /* Between pinned memory, of which the remote part was a firehose already; or an arena that is mapped. */
  HYDRANT_PATH_FIREHOSE,
  /* It was not: the data travelled with the request for one, or came with its answer: in it, or for large
   * gets put by the target before it. */
  HYDRANT_PATH_IN_MOVE,
  HYDRANT_PATH_RENDEZVOUS, /* it was not, and the data went after the answer */
  HYDRANT_PATH_DIRECT,     /* posted to the network as it stands */
  HYDRANT_PATH_BOUNCE,     /* the same from, or to, a buffer of the library */
  HYDRANT_PATH_AM_MEDIUM,  /* Active Messages, payload in the message */
  HYDRANT_PATH_AM_LONG,    /* Active Messages, payload put where it belongs */
  HYDRANT_PATH_COUNT
} hydrant_path_t;
/* "self", "inlined", "mapped", "cma", "firehose", "in_move", "rendezvous", "direct", "bounce", "am_medium",
 * "am_long"; null for others. */
const char* hydrant_path_name(hydrant_path_t path);

typedef struct {
  uint64_t put_ops, put_bytes;
  uint64_t get_ops, get_bytes;
} hydrant_path_counts_t;
/* What all threads of this process have sent along `path` to `rank`, or to all ranks (GEX_RANK_INVALID). Each
 * operation counts once, by the path of its first byte; fills (gasnet_memset) count as puts. Exact for what
 * the calling thread can know of; never stops others. Errors: GASNET_ERR_NOT_INIT, GASNET_ERR_BAD_ARG. */
int hydrant_query_path(gex_Rank_t rank, hydrant_path_t path, hydrant_path_counts_t* counts);

/* ---- firehoses ---- */

/* Where puts and gets go between pinned memory, and for shared arenas of the node's ranks, which are mapped:
 * a firehose on [remote, remote+bytes) of `rank` is asked for (one message, nobody waits), or what this
 * process has of them is given back. Elsewhere, and where it cannot be had now, nothing happens: these are
 * hints.
 * Errors: GASNET_ERR_NOT_INIT; GASNET_ERR_BAD_ARG: no such rank, a range that wraps around;
 * HYDRANT_ERR_BROKEN: the rank is gone. Source: Hydrant. */
int hydrant_prefetch(gex_Rank_t rank, const void* remote, size_t bytes);
int hydrant_evict(gex_Rank_t rank, const void* remote, size_t bytes);

HYDRANT_GASNET_END
#endif
