/* firehose.h - GASNet's firehose API, version 0x101, over Hydrant's pin cache.
 *
 * A client written for GASNet's firehose compiles against this header and its own firehose_fwd.h. That
 * file describes the client; this header passes the description as arguments to the library. So page
 * clients and region clients, with keys of any size up to 64 bytes, link the same libfirehose. The
 * library exports no symbol named firehose_*. docs/firehose_h.md has a first client and lists every
 * difference from GASNet.
 *
 * firehose_fwd.h, found on the include path, defines
 *   FIREHOSE_PAGE or FIREHOSE_REGION   fixed buckets without keys, or intervals (exactly one)
 *   FIREHOSE_CLIENT_T                  region only, optional: firehose_client_t is a key of <= 64 bytes
 *   firehose_remotecallback_args_t     a type: arguments of the remote callback
 * and may define FH_BUCKET_SIZE (default GASNET_PAGESIZE, else the page size), FH_MAY_MERGE(client*),
 * FH_MAXVICTIM_TO_PHYSMEM_RATIO (0.25), FIREHOSE_AMPOLL(), FIREHOSE_COMPLETION_IN_HANDLER and
 * FIREHOSE_REMOTE_CALLBACK_IN_HANDLER. Hydrant adds FIREHOSE_MYNODE (an expression; default: the rank
 * in FIREHOSE_TM, gasneti_mynode, or 0), FIREHOSE_NODE_T and FIREHOSE_HANDLERENTRY_T (names of types;
 * see below).
 *
 * Remote pins need a way to send messages. In GASNet's source tree it exists already. A client of
 * gasnetex.h includes that header in firehose_fwd.h and defines FIREHOSE_TM, an expression for its
 * primordial team. Any other client defines
 *   FIREHOSE_SEND_REQUEST(node, message, len)           sends; GASNET_OK, GASNET_ERR_NOT_READY: no room now
 *   FIREHOSE_SEND_REPLY(reply_to, node, message, len)   the same, while the request reply_to is served
 *   FIREHOSE_NODES, FIREHOSE_MYNODE                     expressions: how many nodes, and which is this one
 *   FIREHOSE_MAX_MESSAGE                                longest message, 512 or more
 * and passes arriving messages to firehose_deliver(). Without a way to send, firehose pins local memory
 * only.
 *
 * Errors: no function returns an error. A fatal condition prints its cause and calls abort().
 * Threads: call firehose_init and firehose_fini from one thread while no other thread uses firehose; the
 * other functions from any thread, concurrently. AM handlers may call only firehose_release.
 * firehose_move_callback may call nothing. The remote and args callbacks may call nothing that waits or
 * sends. A completion callback outside of handlers may call everything. A library built with HYDRANT_DEBUG
 * checks these rules. Each linked image (program or shared library) has one firehose.
 *
 * C99 and C++, GNU-compatible compilers.
 */
#ifndef FIREHOSE_H
#define FIREHOSE_H

/* In GASNet's tree a conduit's firehose_fwd.h needs the conduit's internal header. firehose_fwd.h comes
 * last because it may use all of the headers above it. */
/* clang-format off */
#if defined(__has_include)
#if __has_include(<gasnet_internal.h>)
#include <gasnet_internal.h>
#endif
#endif
#include <hydrant/firehose_shim.h>
#include <hydrant/remote_pin.h>
#include <string.h>
#include <firehose_fwd.h>
/* clang-format on */

#define FIREHOSE_API_VERSION 0x101

#if defined(FIREHOSE_PAGE) == defined(FIREHOSE_REGION)
#error "firehose_fwd.h must define one of FIREHOSE_PAGE and FIREHOSE_REGION"
#endif
#if defined(FIREHOSE_CLIENT_T) && !defined(FIREHOSE_REGION)
#error "firehose_fwd.h: FIREHOSE_CLIENT_T needs FIREHOSE_REGION; pages have no keys"
#endif
#if defined(FH_MAY_MERGE) && !defined(FIREHOSE_CLIENT_T)
#error "firehose_fwd.h: FH_MAY_MERGE asks about a key, so it needs FIREHOSE_CLIENT_T"
#endif

/* ---- GASNet's types, defined here if no GASNet header defines them ---------------------------------- */

#if defined(FIREHOSE_NODE_T) && defined(FIREHOSE_HANDLERENTRY_T)
/* firehose_fwd.h has named its own types. */
#elif defined(GEX_SPEC_VERSION_MAJOR)
#define FIREHOSE_NODE_T gex_Rank_t
#define FIREHOSE_HANDLERENTRY_T gex_AM_Entry_t
#elif defined(GASNET_SPEC_VERSION_MAJOR) || defined(GASNET_VERSION)
#define FIREHOSE_NODE_T gasnet_node_t
#define FIREHOSE_HANDLERENTRY_T gasnet_handlerentry_t
#else
/* Headers that would define the same types leave them out if this macro is defined. */
#define HYDRANT_GASNET_MINIMAL_TYPES 1
typedef uint32_t gex_Rank_t;
typedef gex_Rank_t gasnet_node_t;
typedef struct {
  uint8_t gex_index;
  void (*gex_fnptr)(void);
  uint32_t gex_flags;
  unsigned int gex_nargs;
  const void* gex_cdata;
  const char* gex_name;
} gex_AM_Entry_t;
#define FIREHOSE_NODE_T gex_Rank_t
#define FIREHOSE_HANDLERENTRY_T gex_AM_Entry_t
#endif

/* HYDRANT_FH_SENDS: the client can send messages. The GASNet-EX calls are macros in GASNet and
 * functions in Hydrant. */
#if defined(FIREHOSE_SEND_REQUEST)
#define HYDRANT_FH_SENDS 1
#if !defined(FIREHOSE_SEND_REPLY) || !defined(FIREHOSE_NODES) || !defined(FIREHOSE_MAX_MESSAGE) || \
    !defined(FIREHOSE_MYNODE)
#error "firehose_fwd.h: with FIREHOSE_SEND_REQUEST go _SEND_REPLY, _NODES, _MYNODE and _MAX_MESSAGE"
#endif
#elif (defined(gex_AM_RequestMedium0) || defined(HYDRANT_GASNET_AM_CALLS_H)) && \
    (defined(FIREHOSE_TM) || defined(_GASNET_INTERNAL_H))
#define HYDRANT_FH_SENDS 1
#elif defined(FIREHOSE_TM)
#error "firehose_fwd.h defines FIREHOSE_TM, so it has to include gasnetex.h"
#endif
#if defined(HYDRANT_FH_SENDS) &&                                             \
    (defined(FIREHOSE_BIND_CALLBACK) || defined(FIREHOSE_UNBIND_CALLBACK) || \
     defined(FIREHOSE_EXPORT_CALLBACK) || defined(FIREHOSE_UNEXPORT_CALLBACK))
#error \
    "firehose.h does not call bind, unbind, export and unexport callbacks: see docs/firehose_h.md"
#endif

#if !defined(FIREHOSE_MYNODE)
#if defined(_GASNET_INTERNAL_H)
#define FIREHOSE_MYNODE gasneti_mynode
#elif defined(FIREHOSE_TM)
#define FIREHOSE_MYNODE gex_TM_QueryRank(FIREHOSE_TM)
#else
#define FIREHOSE_MYNODE 0
#endif
#endif
#if !defined(FIREHOSE_AMPOLL) && defined(_GASNET_INTERNAL_H)
#define FIREHOSE_AMPOLL() gasneti_AMPoll()
#elif !defined(FIREHOSE_AMPOLL) && defined(FIREHOSE_TM)
#define FIREHOSE_AMPOLL() gasnet_AMPoll()
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- types ------------------------------------------------------------------------------------------ */

struct _firehose_private_t;
typedef struct _firehose_private_t firehose_private_t;

/* A pinned range, held until firehose_release(). It contains the requested range and may be larger;
 * addr and len are multiples of the bucket size. Read only. */
typedef struct _firehose_request_t {
  uint16_t flags; /* opaque */
  FIREHOSE_NODE_T node;
  uintptr_t addr;
  size_t len;
  firehose_private_t* internal; /* opaque */
  uint64_t hydrant_hold;        /* opaque */
#ifdef FIREHOSE_CLIENT_T
  firehose_client_t client; /* written by the move callback when this memory was pinned */
#endif
} firehose_request_t;

typedef struct _firehose_region_t {
  uintptr_t addr;
  size_t len;
#ifdef FIREHOSE_CLIENT_T
  firehose_client_t client;
#endif
} firehose_region_t;

typedef struct _firehose_info_t {
  size_t max_RemotePinSize; /* longest range of firehose_remote_pin in bytes; 0: no remote pins */
  size_t max_LocalPinSize;  /* longest range of firehose_local_pin in bytes */
  size_t max_RemoteRegions; /* regions of max_RemotePinSize per node; 0: only bytes limit */
  size_t max_LocalRegions;  /* regions of max_LocalPinSize at once; 0: only bytes limit */
} firehose_info_t;

/* Types of the remote part, which clients may name without using it. */
typedef void (*firehose_completed_fn_t)(void* context, const firehose_request_t* req,
                                        int allLocalHit);
typedef size_t (*firehose_remotecallback_args_fn_t)(void* context,
                                                    firehose_remotecallback_args_t* args);
#define FIREHOSE_FLAG_RETURN_IF_PINNED 0x01
#define FIREHOSE_FLAG_ENABLE_REMOTE_CALLBACK 0x02

#define FIREHOSE_INIT_FLAG_LOCAL_ONLY 0x01    /* all budget is for local pins */
#define FIREHOSE_INIT_FLAG_UNPIN_ON_FINI 0x02 /* firehose_fini unpins what firehose pinned */
#define FIREHOSE_INIT_FLAG_MAY_REINIT 0x04    /* firehose_init may follow firehose_fini */

/* ---- callbacks that the client defines -------------------------------------------------------------- */

/* Unpins `unpin_list` or pins `pin_list` and writes the `client` field of each pinned region. Each call
 * has one of the two lists; pin_num is 0 or 1. Runs on any thread, concurrently with itself, without a
 * library lock; must not call firehose. Returns 0, or GASNET_ERR_NOT_READY if pinning lacks a resource
 * that unpinning would free: the cache then evicts and calls again. Any other code is fatal, unless the
 * range was larger than the client's request: then the exact range is tried. */
extern int firehose_move_callback(FIREHOSE_NODE_T node, const firehose_region_t* unpin_list,
                                  size_t unpin_num, firehose_region_t* pin_list, size_t pin_num);

/* Runs at the target of a remote pin with FIREHOSE_FLAG_ENABLE_REMOTE_CALLBACK. `pin_list`, one region,
 * is pinned by then; the requester `node` gets the reply only afterwards. Runs in an AM handler only
 * with FIREHOSE_REMOTE_CALLBACK_IN_HANDLER, else in firehose_poll() or in a pin that waits. `args` is a
 * copy of the data that remote_args_callback wrote, padded with zeros. Returns 0; any other code is
 * fatal. A client without remote pins need not define this function. */
extern int firehose_remote_callback(FIREHOSE_NODE_T node, const firehose_region_t* pin_list,
                                    size_t num_pinned, firehose_remotecallback_args_t* args);
/* Never called. A client that uses remote pins and defines one of these macros fails to compile. */
#ifdef FIREHOSE_BIND_CALLBACK
extern int firehose_bind_callback(FIREHOSE_NODE_T node, firehose_region_t* bind_list,
                                  size_t bind_num);
#endif
#ifdef FIREHOSE_UNBIND_CALLBACK
extern int firehose_unbind_callback(FIREHOSE_NODE_T node, const firehose_region_t* unbind_list,
                                    size_t unbind_num);
#endif
#ifdef FIREHOSE_EXPORT_CALLBACK
extern int firehose_export_callback(FIREHOSE_NODE_T node, firehose_region_t* export_list,
                                    size_t export_num);
#endif
#ifdef FIREHOSE_UNEXPORT_CALLBACK
extern int firehose_unexport_callback(FIREHOSE_NODE_T node, const firehose_region_t* unexport_list,
                                      size_t unexport_num);
#endif

/* ---- internal: not for clients ---------------------------------------------------------------------- */

/* Casts that neither C nor C++ warns about. */
#ifdef __cplusplus
#define HYDRANT_FH_POINTER(type, pointer) \
  reinterpret_cast<type>(reinterpret_cast<uintptr_t>(pointer))
#define HYDRANT_FH_FUNCTION(type, function) reinterpret_cast<type>(function)
#define HYDRANT_FH_NULL nullptr
#else
#define HYDRANT_FH_POINTER(type, pointer) ((type)(uintptr_t)(pointer))
#define HYDRANT_FH_FUNCTION(type, function) ((type)(function))
#define HYDRANT_FH_NULL NULL
#endif

typedef void (*hydrant_fh_function_t)(void); /* a function of any type */

#ifdef FIREHOSE_PAGE
#define HYDRANT_FH_MODE HYDRANT_MODE_PAGE
#else
#define HYDRANT_FH_MODE HYDRANT_MODE_REGION
#endif
#ifdef FIREHOSE_CLIENT_T
#define HYDRANT_FH_CLIENT_BYTES sizeof(firehose_client_t)
#else
#define HYDRANT_FH_CLIENT_BYTES 0
#endif
#define HYDRANT_FH_THIS_SHAPE HYDRANT_FH_SHAPE(HYDRANT_FH_MODE, HYDRANT_FH_CLIENT_BYTES)

/* A negative array size here means that firehose_client_t is larger than 64 bytes or aligned to more
 * than 64 bytes. */
typedef char hydrant_fh_client_t_is_too_large[HYDRANT_FH_CLIENT_BYTES <= HYDRANT_FH_MAX_CLIENT_BYTES
                                                  ? 1
                                                  : -1];
typedef char hydrant_fh_client_t_is_aligned_too_strictly
    [sizeof(firehose_region_t) <= 2 * HYDRANT_FH_MAX_ALIGN ? 1 : -1];

/* Weak and hidden: the files of one program or shared library share this variable; each image has its
 * own. */
extern hydrant_fh_t* hydrant_fh_instance __attribute__((weak, visibility("hidden")));
hydrant_fh_t* hydrant_fh_instance __attribute__((weak, visibility("hidden"))) = HYDRANT_FH_NULL;

static inline int hydrant_fh_call_move(const void* unpin, size_t unpin_num, void* pin,
                                       size_t pin_num) {
  return firehose_move_callback(FIREHOSE_MYNODE,
                                HYDRANT_FH_POINTER(const firehose_region_t*, unpin), unpin_num,
                                HYDRANT_FH_POINTER(firehose_region_t*, pin), pin_num);
}
#ifdef FH_MAY_MERGE
static inline int hydrant_fh_call_may_merge(const void* key) {
  firehose_client_t client; /* a copy, because the macro may take a pointer to non-const */
  memcpy(&client, key, sizeof client);
  return FH_MAY_MERGE(&client) ? 1 : 0;
}
#endif
#ifdef FIREHOSE_AMPOLL
static inline void hydrant_fh_call_poll(void) { FIREHOSE_AMPOLL(); }
#endif

#define HYDRANT_FH_FLAG_OURS 0x01 /* in firehose_request_t: the library allocated the storage */

static inline const firehose_request_t* hydrant_fh_fill(FIREHOSE_NODE_T node, hydrant_pin_t pin,
                                                        firehose_request_t* req, uint16_t flags) {
  req->flags = flags;
  req->node = node;
  req->addr = pin.region->addr;
  req->len = pin.region->len;
  req->internal = HYDRANT_FH_POINTER(firehose_private_t*, pin.region);
  req->hydrant_hold = pin.hold;
#ifdef FIREHOSE_CLIENT_T
  memcpy(&req->client, pin.region->key, sizeof req->client);
#endif
  return req;
}

/* Converts the result of a call that may find nothing into a request, or NULL. */
static inline const firehose_request_t* hydrant_fh_found_at(FIREHOSE_NODE_T node, hydrant_pin_t pin,
                                                            firehose_request_t* req) {
  if (!pin.region) return HYDRANT_FH_NULL;
  if (req) return hydrant_fh_fill(node, pin, req, 0);
  req = HYDRANT_FH_POINTER(firehose_request_t*, hydrant_fh_request_new(sizeof *req));
  return hydrant_fh_fill(node, pin, req, HYDRANT_FH_FLAG_OURS);
}

static inline const firehose_request_t* hydrant_fh_found(hydrant_pin_t pin,
                                                         firehose_request_t* req) {
  return hydrant_fh_found_at(FIREHOSE_MYNODE, pin, req);
}

#include <hydrant/firehose_remote.h>

/* ---- init, fini, progress --------------------------------------------------------------------------- */

/* The AM handlers that the client registers before firehose_init; an entry without a function ends the
 * table. Registration writes the handlers' indices into the table. The table is empty for clients that
 * send nothing or use FIREHOSE_SEND_REQUEST. */
static inline FIREHOSE_HANDLERENTRY_T* firehose_get_handlertable(void) {
#if defined(HYDRANT_FH_SENDS) && !defined(FIREHOSE_SEND_REQUEST)
  return hydrant_fh_handlers;
#else
  static FIREHOSE_HANDLERENTRY_T table[1]; /* static, so all zero */
  return table;
#endif
}

/* Starts firehose with at most max_pinnable_memory bytes, in at most max_regions regions of
 * max_region_size bytes; 0 lifts a limit (the library then uses the machine's limits). With
 * FIREHOSE_PAGE both region arguments must be 0. The client has already pinned the prepinned regions:
 * the library never unpins or forgets them. They may be larger than max_LocalPinSize and must be whole
 * buckets; the list is copied. GASNET_FIREHOSE_* variables override the arguments (docs/firehose_h.md). */
static inline void firehose_init(uintptr_t max_pinnable_memory, size_t max_regions,
                                 size_t max_region_size, const firehose_region_t* prepinned_regions,
                                 size_t num_prepinned, uint32_t flags, firehose_info_t* info) {
  hydrant_fh_client_t client;
  hydrant_fh_limits_t limits;
  memset(&client, 0, sizeof client);
  client.size = sizeof client;
  client.shape = HYDRANT_FH_THIS_SHAPE;
  client.api_version = FIREHOSE_API_VERSION;
  client.mode = HYDRANT_FH_MODE;
  client.client_bytes = HYDRANT_FH_CLIENT_BYTES;
  client.region_bytes = sizeof(firehose_region_t);
#ifdef FIREHOSE_CLIENT_T
  client.client_offset = offsetof(firehose_region_t, client);
#endif
#if defined(FH_BUCKET_SIZE)
  client.bucket_bytes = FH_BUCKET_SIZE;
#elif defined(GASNET_PAGESIZE)
  client.bucket_bytes = GASNET_PAGESIZE;
#endif
#if defined(FH_MAXVICTIM_TO_PHYSMEM_RATIO)
  client.victim_ratio = FH_MAXVICTIM_TO_PHYSMEM_RATIO;
#else
  client.victim_ratio = 0.25;
#endif
  client.move = hydrant_fh_call_move;
#ifdef FH_MAY_MERGE
  client.may_merge = hydrant_fh_call_may_merge;
#endif
#ifdef FIREHOSE_AMPOLL
  client.poll = hydrant_fh_call_poll;
#endif
  client.node = FIREHOSE_MYNODE;
#ifdef HYDRANT_FH_SENDS
  hydrant_fh_describe_remote(&client, flags);
#endif
  hydrant_fh_instance =
      hydrant_fh_init(hydrant_fh_instance, &client, max_pinnable_memory, max_regions,
                      max_region_size, prepinned_regions, num_prepinned, flags, &limits);
  if (!info) return;
  info->max_RemotePinSize = limits.remote_pin_bytes;
  info->max_LocalPinSize = limits.local_pin_bytes;
  info->max_RemoteRegions = limits.remote_regions;
  info->max_LocalRegions = limits.local_regions;
}

/* Ends firehose; not collective. Requests still held become invalid. */
static inline void firehose_fini(void) {
  hydrant_fh_instance = hydrant_fh_fini(hydrant_fh_instance);
}

/* Makes progress on remote pins and runs their pending callbacks. Not legal in AM handlers. A client
 * with remote pins calls it in its own poll loop. If both callbacks of the client may run in handlers,
 * a call after each arriving message is enough. No effect before firehose_init and after firehose_fini. */
#if defined(FIREHOSE_REMOTE_CALLBACK_IN_HANDLER) && defined(FIREHOSE_COMPLETION_IN_HANDLER) && \
    !defined(HYDRANT_FH_SENDS)
#define firehose_poll()
#else
static inline void firehose_poll(void) { hydrant_fh_poll(hydrant_fh_instance); }
#endif

/* How firehose_init would split this much memory without LOCAL_ONLY; applies the environment variables. */
static inline void firehose_get_params(uintptr_t max_pinnable_memory, uintptr_t* M,
                                       uintptr_t* Maxvictim) {
#if defined(FH_MAXVICTIM_TO_PHYSMEM_RATIO)
  const double ratio = FH_MAXVICTIM_TO_PHYSMEM_RATIO;
#else
  const double ratio = 0.25;
#endif
  hydrant_fh_get_params(hydrant_fh_instance, ratio, max_pinnable_memory, M, Maxvictim);
}

/* ---- pins ------------------------------------------------------------------------------------------- */

/* In all three functions `req` is the client's storage for the result, which is then that pointer. With
 * NULL the library provides the storage until the release. [addr, addr+len) must not be empty and must
 * not wrap around. */

/* Pins the range, or finds it pinned. Never returns NULL: waits until there is budget, polling
 * FIREHOSE_AMPOLL. After FIREHOSE_WAIT_WARN it prints which requests hold the budget and continues
 * to wait. Do not call it while holding requests whose release depends on this call. */
static inline const firehose_request_t* firehose_local_pin(uintptr_t addr, size_t len,
                                                           firehose_request_t* req) {
  const hydrant_pin_t pin =
      hydrant_fh_local_pin(hydrant_fh_instance, HYDRANT_FH_THIS_SHAPE, addr, len);
  if (req) return hydrant_fh_fill(FIREHOSE_MYNODE, pin, req, 0);
  req = HYDRANT_FH_POINTER(firehose_request_t*, hydrant_fh_request_new(sizeof *req));
  return hydrant_fh_fill(FIREHOSE_MYNODE, pin, req, HYDRANT_FH_FLAG_OURS);
}

/* Returns the range if all of it is pinned now, else NULL. Never pins, never waits. */
static inline const firehose_request_t* firehose_try_local_pin(uintptr_t addr, size_t len,
                                                               firehose_request_t* req) {
  return hydrant_fh_found(
      hydrant_fh_try_local_pin(hydrant_fh_instance, HYDRANT_FH_THIS_SHAPE, addr, len), req);
}

/* Returns a pinned region that contains the lowest pinned page of the range, or NULL if no page of it
 * is pinned. The range may have any length. Never pins, never waits. */
static inline const firehose_request_t* firehose_partial_local_pin(uintptr_t addr, size_t len,
                                                                   firehose_request_t* req) {
  return hydrant_fh_found(
      hydrant_fh_partial_local_pin(hydrant_fh_instance, HYDRANT_FH_THIS_SHAPE, addr, len), req);
}

/* Releases requests in any order, from any thread, also in an AM handler. */
static inline void firehose_release(firehose_request_t const** reqs, int numreqs) {
  int i;
  for (i = 0; i < numreqs; ++i) {
    firehose_request_t* req = HYDRANT_FH_POINTER(firehose_request_t*, reqs[i]);
    hydrant_pin_t pin;
    pin.region = HYDRANT_FH_POINTER(const hydrant_region_t*, req->internal);
    pin.hold = req->hydrant_hold;
    req->internal = HYDRANT_FH_NULL; /* lets the library detect a second release */
    if (req->flags & HYDRANT_FH_FLAG_OURS) hydrant_fh_request_free(req);
    hydrant_fh_release(pin);
  }
}

/* Hydrant's extension: call it before memory that may be pinned is unmapped, moved or hole-punched.
 * Held regions stay pinned until their last release, but later pins do not find them. */
static inline void firehose_local_invalidate(uintptr_t addr, size_t len) {
  hydrant_fh_invalidate(hydrant_fh_instance, HYDRANT_FH_THIS_SHAPE, addr, len);
}

#ifdef __cplusplus
}
#endif
#endif
