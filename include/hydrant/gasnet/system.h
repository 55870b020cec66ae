/* hydrant/gasnet/system.h - the job: ranks and hosts, the environment, waiting, and the end of the job.
 * Common to GASNet-1 and GASNet-EX; legal in handlers unless documented otherwise. Threads: any.
 */
#ifndef HYDRANT_GASNET_SYSTEM_H
#define HYDRANT_GASNET_SYSTEM_H

#include <hydrant/gasnet/objects.h>

HYDRANT_GASNET_BEGIN

typedef gex_Rank_t gasnet_node_t;
typedef struct {
  void* addr;
  uintptr_t size;
} gasnet_seginfo_t;
typedef struct {
  gasnet_node_t host;      /* the lowest rank of that host */
  gasnet_node_t supernode; /* group of ranks that map each other's segments, from 0 */
  intptr_t offset;         /* from an address of its segment to the address here; 0 if not mapped */
} gasnet_nodeinfo_t;
typedef struct hydrant_threadinfo* gasnet_threadinfo_t;
struct hydrant_rank_info {
  gex_Rank_t gex_jobrank;
};
typedef const struct hydrant_rank_info gex_RankInfo_t;

/* Read by inline functions; valid after a client is initialised. */
struct hydrant_job {
  uint32_t layout;
  gex_Rank_t rank;
  gex_Rank_t size;
};
extern struct hydrant_job hydrant_job_info;

static inline gex_Rank_t gex_System_QueryJobRank(void) { return hydrant_job_info.rank; }
static inline gex_Rank_t gex_System_QueryJobSize(void) { return hydrant_job_info.size; }

/* The ranks of this node that map each other's segments (neighbourhood), and the ranks of this host, in
 * ascending order. The arrays stay valid for ever. Every output may be null. */
void gex_System_QueryNbrhdInfo(gex_RankInfo_t** info_p, gex_Rank_t* info_count_p,
                               gex_Rank_t* my_info_index_p);
void gex_System_QueryHostInfo(gex_RankInfo_t** info_p, gex_Rank_t* info_count_p,
                              gex_Rank_t* my_info_index_p);
void gex_System_QueryMyPosition(gex_Rank_t* nbrhd_set_size_p, gex_Rank_t* nbrhd_set_rank_p,
                                gex_Rank_t* host_set_size_p, gex_Rank_t* host_set_rank_p);
/* Whether a call that returns an error prints the reason on standard error: 1 at first, 0 for silence. */
int gex_System_GetVerboseErrors(void);
void gex_System_SetVerboseErrors(int enable);
uint64_t hydrant_max_threads(int thread_mode);
static inline uint64_t gex_System_QueryMaxThreads(void) {
  return hydrant_max_threads(HYDRANT_THREAD_MODE);
}
static inline int gex_System_QueryHiddenAMConcurrencyLevel(void) {
  return GASNET_HIDDEN_AM_CONCURRENCY_LEVEL;
}
typedef struct {
  const char* gex_device_list;
  unsigned int gex_thread_roles;
  void* (*gex_progress_fn)(void*);
  void* gex_progress_arg;
} gex_ProgressThreadInfo_t;
#define GEX_THREAD_ROLE_RCV (1U << 0)
#define GEX_THREAD_ROLE_SND (1U << 1)
int gex_System_QueryProgressThreads(gex_Client_t client, unsigned int* count_p,
                                    const gex_ProgressThreadInfo_t** info_p, gex_Flags_t flags);

/* Ends the job with `exitcode`; does not return. Any rank, any thread, also in a handler. */
#if defined(__GNUC__)
__attribute__((__noreturn__))
#endif
void gasnet_exit(int exitcode);
/* Reads rank 0's environment at the start of the job, the same on every rank. Two kinds of variables
 * are this rank's own: those that rank 0 lacks, and those by which launchers identify ranks. Null if
 * unset. An environment larger than 256 KiB is not shared. */
char* gasnet_getenv(const char* name);
const char* gasnet_ErrorName(int errval);
const char* gasnet_ErrorDesc(int errval);

#define GASNET_WAIT_SPIN 0
#define GASNET_WAIT_BLOCK 1
#define GASNET_WAIT_SPINBLOCK 2
/* How this process waits: spin, sleep as soon as polls find no events, or spin first and then sleep. */
int gasnet_set_waitmode(int wait_mode);

/* Bytes; legal between init and attach. These calls touch no memory. */
uintptr_t gasnet_getMaxLocalSegmentSize(void);
uintptr_t gasnet_getMaxGlobalSegmentSize(void);
/* Fill the first `numentries` entries.
 * Errors: GASNET_ERR_NOT_INIT, GASNET_ERR_BAD_ARG. */
int gasnet_getSegmentInfo(gasnet_seginfo_t* table, int numentries);
int gasnet_getNodeInfo(gasnet_nodeinfo_t* table, int numentries);

/* GASNet-1 requires these declarations at the start of functions; Hydrant keeps no state per function. */
#define GASNET_BEGIN_FUNCTION() typedef int hydrant_begin_function_t __attribute__((__unused__))
#define GASNET_GET_THREADINFO() ((gasnet_threadinfo_t)NULL)
#define GASNET_POST_THREADINFO(info) \
  const gasnet_threadinfo_t hydrant_threadinfo __attribute__((__unused__)) = (info)

HYDRANT_GASNET_END
#endif
