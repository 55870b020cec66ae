/* hydrant/gasnet/objects.h - clients, endpoints, segments and teams: GASNet-EX's opaque handles.
 *
 * A handle points to a structure whose first fields are public here, so that queries cost one load.
 * HYDRANT_GASNET_LAYOUT is the layout's version: gex_Client_Init() compares the client's with the
 * library's. Queries are legal anywhere, also in handlers; translations of ranks are not legal in handlers.
 * Threads: any.
 */
#ifndef HYDRANT_GASNET_OBJECTS_H
#define HYDRANT_GASNET_OBJECTS_H

#include <hydrant/gasnet/modes.h>

#include <gasnet_fwd.h>

HYDRANT_GASNET_BEGIN

#define HYDRANT_GASNET_LAYOUT 4

typedef struct hydrant_client* gex_Client_t;
typedef struct hydrant_endpoint* gex_EP_t;
typedef struct hydrant_segment* gex_Segment_t;
typedef struct hydrant_team* gex_TM_t; /* or a tagged pair, see gex_TM_Pair() */
typedef struct hydrant_kind* gex_MK_t;

#define GEX_CLIENT_INVALID ((gex_Client_t)(uintptr_t)0)
#define GEX_EP_INVALID ((gex_EP_t)(uintptr_t)0)
#define GEX_SEGMENT_INVALID ((gex_Segment_t)(uintptr_t)0)
#define GEX_TM_INVALID ((gex_TM_t)(uintptr_t)0)
#define GEX_MK_INVALID ((gex_MK_t)(uintptr_t)0)
#define GEX_MK_HOST ((gex_MK_t)(uintptr_t)1)
#define GASNET_HAVE_MK_CLASS_HOST 1 /* gasnet_mk.h */

/* A range of memory. */
typedef struct {
  void* gex_addr;
  size_t gex_len;
} gex_Memvec_t;

struct hydrant_client {
  gex_Flags_t flags;
  const char* name;
  const void* cdata;
};
struct hydrant_endpoint {
  gex_Client_t client;
  gex_Segment_t segment;
  gex_Flags_t flags;
  gex_EP_Index_t index;
  const void* cdata;
};
struct hydrant_segment {
  gex_Client_t client;
  gex_Flags_t flags;
  void* addr;
  uintptr_t size;
  const void* cdata;
};
struct hydrant_team {
  gex_EP_t ep;
  gex_Rank_t rank;
  gex_Rank_t size;
  gex_Flags_t flags;
  const void* cdata;
  const gex_Rank_t* jobranks; /* of its members; null: member i is rank first + i * stride */
  gex_Rank_t first; /* of the job; unsigned arithmetic, so that a stride may be negative */
  gex_Rank_t stride;
};
/* The primordial team, valid after the client is initialised: its ranks are the job's. */
extern struct hydrant_team hydrant_world;

/* ---- queries ---- */
static inline gex_Flags_t gex_Client_QueryFlags(gex_Client_t client) { return client->flags; }
static inline const char* gex_Client_QueryName(gex_Client_t client) { return client->name; }
static inline gex_Client_t gex_EP_QueryClient(gex_EP_t ep) { return ep->client; }
static inline gex_Flags_t gex_EP_QueryFlags(gex_EP_t ep) { return ep->flags; }
static inline gex_Segment_t gex_EP_QuerySegment(gex_EP_t ep) { return ep->segment; }
static inline gex_EP_Index_t gex_EP_QueryIndex(gex_EP_t ep) { return ep->index; }
static inline gex_Client_t gex_Segment_QueryClient(gex_Segment_t seg) { return seg->client; }
static inline gex_Flags_t gex_Segment_QueryFlags(gex_Segment_t seg) { return seg->flags; }
static inline void* gex_Segment_QueryAddr(gex_Segment_t seg) { return seg->addr; }
static inline uintptr_t gex_Segment_QuerySize(gex_Segment_t seg) { return seg->size; }
static inline gex_EP_t gex_TM_QueryEP(gex_TM_t tm) { return tm->ep; }
static inline gex_Client_t gex_TM_QueryClient(gex_TM_t tm) { return tm->ep->client; }
static inline gex_Flags_t gex_TM_QueryFlags(gex_TM_t tm) { return tm->flags; }
static inline gex_Rank_t gex_TM_QueryRank(gex_TM_t tm) { return tm->rank; }
static inline gex_Rank_t gex_TM_QuerySize(gex_TM_t tm) { return tm->size; }

/* ---- one client pointer per object, null at first ---- */
static inline void gex_Client_SetCData(gex_Client_t client, const void* val) {
  client->cdata = val;
}
static inline void* gex_Client_QueryCData(gex_Client_t client) {
  return (void*)(uintptr_t)client->cdata;
}
static inline void gex_EP_SetCData(gex_EP_t ep, const void* val) { ep->cdata = val; }
static inline void* gex_EP_QueryCData(gex_EP_t ep) { return (void*)(uintptr_t)ep->cdata; }
static inline void gex_Segment_SetCData(gex_Segment_t seg, const void* val) { seg->cdata = val; }
static inline void* gex_Segment_QueryCData(gex_Segment_t seg) {
  return (void*)(uintptr_t)seg->cdata;
}
static inline void gex_TM_SetCData(gex_TM_t tm, const void* val) { tm->cdata = val; }
static inline void* gex_TM_QueryCData(gex_TM_t tm) { return (void*)(uintptr_t)tm->cdata; }

/* ---- creation ---- */
struct hydrant_client_info { /* the settings of the headers that a client was compiled with */
  uint32_t layout;
  uint32_t thread_mode;
  uint32_t segment_mode;
  uint32_t debug;
  const char* config; /* HYDRANT_CLIENT_CONFIG */
};
/* Starts the job.
 * Errors: GASNET_ERR_BAD_ARG if the headers have another layout (the text names both versions),
 * GASNET_ERR_NOT_INIT if the job could not be connected, GASNET_ERR_RESOURCE if called twice. */
int hydrant_client_init(gex_Client_t* client_p, gex_EP_t* ep_p, gex_TM_t* tm_p, const char* name,
                        int* argc, char*** argv, gex_Flags_t flags,
                        const struct hydrant_client_info* info);
static inline int gex_Client_Init(gex_Client_t* client_p, gex_EP_t* ep_p, gex_TM_t* tm_p,
                                  const char* client_name, int* argc, char*** argv,
                                  gex_Flags_t flags) {
  static const struct hydrant_client_info info = {HYDRANT_GASNET_LAYOUT, HYDRANT_THREAD_MODE,
                                                  HYDRANT_SEGMENT_MODE,
#ifdef GASNET_DEBUG
                                                  1,
#else
                                                  0,
#endif
                                                  HYDRANT_CLIENT_CONFIG};
  return hydrant_client_init(client_p, ep_p, tm_p, client_name, argc, argv, flags, &info);
}

/* Collective over the primordial team, once per process. Allocates `size` bytes (a multiple of
 * GASNET_PAGESIZE, not 0, at most gasnet_getMaxLocalSegmentSize()), which all ranks of the node map. */
int gex_Segment_Attach(gex_Segment_t* segment_p, gex_TM_t tm, uintptr_t size);
/* Makes a segment of the client's memory [addr, addr+size), of any alignment, readable and writable until
 * the segment is destroyed; or of new zeroed memory, of at least `size` bytes, if addr is null. Local.
 * Errors, with *segment_p unchanged: GASNET_ERR_BAD_ARG: another kind than GEX_MK_HOST, size 0, a range
 * that wraps around, flags; GASNET_ERR_RESOURCE: no memory or address space. */
int gex_Segment_Create(gex_Segment_t* segment_p, gex_Client_t client, gex_Addr_t addr,
                       uintptr_t size, gex_MK_t kind, gex_Flags_t flags);
/* Ends a segment that gex_Segment_Create() has made, and frees its memory if the library allocated it. No
 * operation of any rank may use that memory any more. Endpoints with this segment have none afterwards,
 * and may be given another. Local. */
void gex_Segment_Destroy(gex_Segment_t segment, gex_Flags_t flags);
/* Makes an endpoint, with handlers and a segment of its own. Its index is the number of earlier endpoints
 * of this process. It lives as long as the process. Local. Memory: 10 KiB.
 * Errors, with *ep_p unchanged: GASNET_ERR_RESOURCE: GASNET_MAXEPS endpoints exist, the primordial one
 * included; GASNET_ERR_BAD_ARG: no capability, an unknown one, or flags other than GEX_FLAG_HINT_ACCEL_*,
 * which have no effect. */
int gex_EP_Create(gex_EP_t* ep_p, gex_Client_t client, gex_EP_Capabilities_t caps,
                  gex_Flags_t flags);
/* Makes the segment the endpoint's; the same segment may be that of several endpoints. Local.
 * Errors: GASNET_ERR_BAD_ARG: no such endpoint or segment, flags, or the endpoint has a segment. */
int gex_EP_BindSegment(gex_EP_t ep, gex_Segment_t segment, gex_Flags_t flags);
/* Collective over `tm`: afterwards the members know the segments of the listed endpoints of each member,
 * which may be none, and may use them by any team and pair. Endpoints without a segment are skipped; a
 * later call replaces what an earlier one published.
 * Errors: GASNET_ERR_BAD_ARG: a pair, an unknown endpoint or one that is listed twice, flags. Such a
 * member publishes nothing, and the others go on. Cost: a gather to all of 104 bytes per member, and
 * another one where any member publishes several segments; some microseconds for each segment that the
 * members of the node map, 30 us for the first of its memory. */
int gex_EP_PublishBoundSegment(gex_TM_t tm, gex_EP_t* eps, size_t num_eps, gex_Flags_t flags);
/* Queries the bound segment of (tm, rank): its address in the owner, its address here (null if not
 * mapped), and its size (0 if this process knows of no segment). Each output may be null. `tm` may be a
 * pair. With GEX_FLAG_IMMEDIATE it is GEX_EVENT_NO_OP if the job's store has to be asked, which concerns
 * attached segments only. */
gex_Event_t gex_EP_QueryBoundSegmentNB(gex_TM_t tm, gex_Rank_t rank, void** owneraddr_p,
                                       void** localaddr_p, uintptr_t* size_p, gex_Flags_t flags);
int gex_Segment_QueryBound(gex_TM_t tm, gex_Rank_t rank, void** owneraddr_p, void** localaddr_p,
                           uintptr_t* size_p);

/* ---- teams ---- */
/* Names one endpoint of any rank, without communication: bit 0 is set, above it are the two indices. */
static inline gex_TM_t gex_TM_Pair(gex_EP_t local_ep, gex_EP_Index_t remote_ep_index) {
  return (gex_TM_t)(((uintptr_t)local_ep->index << 32) | ((uintptr_t)remote_ep_index << 8) | 1);
}
/* Collective over `parent`. Makes one team of all callers that pass the same `color` (0 or above) and a
 * place for the team; its ranks follow `key`, then the ranks in the parent. The library uses no scratch
 * memory: what the client grants, gex_TM_Destroy() gives back. A caller that grants none passes
 * GEX_FLAG_TM_NO_SCRATCH; scratch_size 0 without it is an error.
 * With GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED it only returns a size to grant, 0 if new_tm_p is null.
 * Otherwise it returns 0. Errors: wrong arguments end the job with a text. Cost: one exchange of 40
 * bytes per member. Memory: none per member if the ranks of the job have one distance; else 10 to 16 bytes
 * per member and process. */
size_t gex_TM_Split(gex_TM_t* new_tm_p, gex_TM_t parent, int color, int key, void* scratch_addr,
                    size_t scratch_size, gex_Flags_t flags);
/* Collective over `parent`. Makes a team of the endpoints in args[], in that order; all of them pass the
 * same args[], which names no endpoint twice. num_new_tms is the number of this process's endpoints among
 * them: 0 or 1. A caller with numargs 0 makes no team. Exactly one of GEX_FLAG_TM_SYMMETRIC_SCRATCH,
 * _LOCAL_SCRATCH, _GLOBAL_SCRATCH and _NO_SCRATCH is required. Errors and cost as gex_TM_Split(). */
size_t gex_TM_Create(gex_TM_t* new_tms, size_t num_new_tms, gex_TM_t parent,
                     gex_EP_Location_t* args, size_t numargs, gex_Addr_t* scratch_addrs,
                     size_t scratch_size, gex_Flags_t flags);
/* Collective over the team. Destroys it; its events have to be synced: else the job ends. If scratch memory
 * was granted, writes it to *scratch_p and returns nonzero; else returns 0. Does not wait for others. */
int gex_TM_Destroy(gex_TM_t tm, gex_Memvec_t* scratch_p, gex_Flags_t flags);

/* Translate in constant time, without communication; GEX_RANK_INVALID if there is no such rank. */
gex_Rank_t gex_TM_TranslateRankToJobrank(gex_TM_t tm, gex_Rank_t rank);
gex_Rank_t gex_TM_TranslateJobrankToRank(gex_TM_t tm, gex_Rank_t jobrank);
gex_EP_Location_t gex_TM_TranslateRankToEP(gex_TM_t tm, gex_Rank_t rank, gex_Flags_t flags);

HYDRANT_GASNET_END
#endif
