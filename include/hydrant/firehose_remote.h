/* hydrant/firehose_remote.h - the remote part of firehose.h: message transport, AM handlers and remote
 * pins. Clients include firehose.h, which includes this file.
 *
 * There are three kinds of clients:
 *   FIREHOSE_SEND_REQUEST is defined: messages go by the client's own macros (listed in firehose.h), and the
 *     client passes arriving messages to firehose_deliver().
 *   GASNet-EX is available, with FIREHOSE_TM or GASNet's internal header: messages are AM Mediums, and the
 *     client registers the handlers of firehose_get_handlertable().
 *   Neither: the handler table is empty and a remote pin is a compile-time error, or, with
 *     FIREHOSE_REMOTE_ABORTS defined, a run-time abort (GASNet's rule for LOCAL_ONLY).
 */
#if !defined(FIREHOSE_API_VERSION)
#include <firehose.h> /* includes this file at the right place */
#endif

#ifndef HYDRANT_FIREHOSE_REMOTE_H
#define HYDRANT_FIREHOSE_REMOTE_H

#if defined(HYDRANT_FH_SENDS)

/* ---- callbacks that the library calls --------------------------------------------------------------- */

static inline int hydrant_fh_call_remote(uint32_t node, const void* region, const void* args,
                                         size_t args_len) {
  firehose_remotecallback_args_t copy; /* an aligned copy */
  memset(&copy, 0, sizeof copy);
  memcpy(&copy, args, args_len < sizeof copy ? args_len : sizeof copy);
  return firehose_remote_callback(node, HYDRANT_FH_POINTER(const firehose_region_t*, region), 1,
                                  &copy);
}

static inline size_t hydrant_fh_call_args(const hydrant_fh_remote_request_t* pin_request,
                                          void* args) {
  return HYDRANT_FH_FUNCTION(firehose_remotecallback_args_fn_t, pin_request->args)(
      pin_request->context, HYDRANT_FH_POINTER(firehose_remotecallback_args_t*, args));
}

static inline void hydrant_fh_call_completed(const hydrant_fh_remote_request_t* pin_request,
                                             hydrant_pin_t pin, int all_local_hit) {
  HYDRANT_FH_FUNCTION(firehose_completed_fn_t, pin_request->callback)
  (pin_request->context,
   hydrant_fh_found_at(pin_request->node, pin,
                       HYDRANT_FH_POINTER(firehose_request_t*, pin_request->request)),
   all_local_hit);
}

/* ---- messages --------------------------------------------------------------------------------------- */

#if defined(FIREHOSE_SEND_REQUEST)

static inline int hydrant_fh_call_send(uint32_t node, uint32_t lane, void* reply_to,
                                       const void* message, size_t len) {
  if (lane == HYDRANT_LANE_REPLY) return FIREHOSE_SEND_REPLY(reply_to, node, message, len);
  return FIREHOSE_SEND_REQUEST(node, message, len);
}
#define HYDRANT_FH_NODES (FIREHOSE_NODES)
#define HYDRANT_FH_MAX_MESSAGE (FIREHOSE_MAX_MESSAGE)

/* Hydrant's extension: the client calls it for each message that arrived from node `from`, sent with
 * FIREHOSE_SEND_REQUEST or FIREHOSE_SEND_REPLY. `reply_to` is the handle that FIREHOSE_SEND_REPLY needs
 * to reply to a request. If it is NULL, the reply is sent as a request of its own. Call from any thread;
 * messages may arrive in any order. */
static inline void firehose_deliver(FIREHOSE_NODE_T from, const void* message, size_t len,
                                    void* reply_to) {
  hydrant_fh_deliver(hydrant_fh_instance, from, message, len, reply_to);
}

#else /* Active Messages */

#if defined(FIREHOSE_TM)
#define HYDRANT_FH_TM FIREHOSE_TM
#define HYDRANT_FH_NODES gex_TM_QuerySize(FIREHOSE_TM)
#else
#define HYDRANT_FH_TM gasneti_THUNK_TM
#define HYDRANT_FH_NODES gasneti_nodes
#endif
#define HYDRANT_FH_MAX_MESSAGE                                                     \
  (gex_AM_LUBRequestMedium() < gex_AM_LUBReplyMedium() ? gex_AM_LUBRequestMedium() \
                                                       : gex_AM_LUBReplyMedium())

/* Registration writes the assigned indices here. All files of one image share this table, as they share
 * the instance. */
extern FIREHOSE_HANDLERENTRY_T hydrant_fh_handlers[3] __attribute__((weak, visibility("hidden")));

static inline FIREHOSE_NODE_T hydrant_fh_sender(gex_Token_t token) {
  gex_Token_Info_t info;
  (void)gex_Token_Info(token, &info, GEX_TI_SRCRANK);
  return info.gex_srcrank;
}
static inline void hydrant_fh_request_handler(gex_Token_t token, void* message, size_t len) {
  hydrant_fh_deliver(hydrant_fh_instance, hydrant_fh_sender(token), message, len,
                     HYDRANT_FH_POINTER(void*, token));
}
static inline void hydrant_fh_reply_handler(gex_Token_t token, void* message, size_t len) {
  hydrant_fh_deliver(hydrant_fh_instance, hydrant_fh_sender(token), message, len, HYDRANT_FH_NULL);
}

FIREHOSE_HANDLERENTRY_T hydrant_fh_handlers[3] __attribute__((weak, visibility("hidden"))) = {
    {0, HYDRANT_FH_FUNCTION(gex_AM_Fn_t, hydrant_fh_request_handler),
     GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_MEDIUM, 0, HYDRANT_FH_NULL, "firehose request"},
    {0, HYDRANT_FH_FUNCTION(gex_AM_Fn_t, hydrant_fh_reply_handler),
     GEX_FLAG_AM_REPLY | GEX_FLAG_AM_MEDIUM, 0, HYDRANT_FH_NULL, "firehose reply"},
    {0, HYDRANT_FH_NULL, 0, 0, HYDRANT_FH_NULL, HYDRANT_FH_NULL}};

/* The calls of GASNet-EX may be macros that contain C casts. */
#ifdef __cplusplus
#define HYDRANT_FH_CASTS_BEGIN \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wold-style-cast\"")
#define HYDRANT_FH_CASTS_END _Pragma("GCC diagnostic pop")
#else
#define HYDRANT_FH_CASTS_BEGIN
#define HYDRANT_FH_CASTS_END
#endif

HYDRANT_FH_CASTS_BEGIN

/* Waits for credit if necessary, as Active Messages do. */
static inline int hydrant_fh_call_send(uint32_t node, uint32_t lane, void* reply_to,
                                       const void* message, size_t len) {
  void* source = HYDRANT_FH_POINTER(void*, message);
  if (lane == HYDRANT_LANE_REPLY) {
    (void)gex_AM_ReplyMedium0(HYDRANT_FH_POINTER(gex_Token_t, reply_to),
                              hydrant_fh_handlers[1].gex_index, source, len, GEX_EVENT_NOW, 0);
  } else {
    (void)gex_AM_RequestMedium0(HYDRANT_FH_TM, node, hydrant_fh_handlers[0].gex_index, source, len,
                                GEX_EVENT_NOW, 0);
  }
  return GASNET_OK;
}

HYDRANT_FH_CASTS_END

#endif

static inline void hydrant_fh_describe_remote(hydrant_fh_client_t* client, uint32_t flags) {
#if !defined(FIREHOSE_SEND_REQUEST)
  if (!(flags & FIREHOSE_INIT_FLAG_LOCAL_ONLY) &&
      (hydrant_fh_handlers[0].gex_index == 0 || hydrant_fh_handlers[1].gex_index == 0)) {
    hydrant_fh_unregistered();
  }
#endif
  (void)flags;
  client->nodes = HYDRANT_FH_NODES;
  client->max_message_bytes = HYDRANT_FH_MAX_MESSAGE;
  client->args_bytes = sizeof(firehose_remotecallback_args_t);
  client->send = hydrant_fh_call_send;
  client->remote = hydrant_fh_call_remote;
  client->make_args = hydrant_fh_call_args;
  client->completed = hydrant_fh_call_completed;
#ifdef FIREHOSE_COMPLETION_IN_HANDLER
  client->remote_flags |= HYDRANT_FH_COMPLETION_IN_HANDLER;
#endif
#ifdef FIREHOSE_REMOTE_CALLBACK_IN_HANDLER
  client->remote_flags |= HYDRANT_FH_REMOTE_IN_HANDLER;
#endif
}

/* ---- remote pins ------------------------------------------------------------------------------------ */

/* All three: not legal in AM handlers, and not for this node itself. `req` as in firehose_local_pin(). */

/* Returns the range if this node has a firehose for all of it, else NULL. Never sends, never waits.
 * `flags` is 0. */
static inline const firehose_request_t* firehose_try_remote_pin(FIREHOSE_NODE_T node,
                                                                uintptr_t addr, size_t len,
                                                                uint32_t flags,
                                                                firehose_request_t* req) {
  const hydrant_pin_t pin =
      hydrant_fh_try_remote_pin(hydrant_fh_instance, HYDRANT_FH_THIS_SHAPE, node, addr, len);
  (void)flags;
  return hydrant_fh_found_at(node, pin, req);
}

/* Returns a region with the lowest page of the range for which this node has a firehose, or NULL. Never
 * sends, never waits. */
static inline const firehose_request_t* firehose_partial_remote_pin(FIREHOSE_NODE_T node,
                                                                    uintptr_t addr, size_t len,
                                                                    uint32_t flags,
                                                                    firehose_request_t* req) {
  const hydrant_pin_t pin =
      hydrant_fh_partial_remote_pin(hydrant_fh_instance, HYDRANT_FH_THIS_SHAPE, node, addr, len);
  (void)flags;
  return hydrant_fh_found_at(node, pin, req);
}

/* Makes memory of another node usable by RDMA until the release; len is at most max_RemotePinSize bytes.
 * A hit with FIREHOSE_FLAG_RETURN_IF_PINNED returns the request and calls no callback. A hit without
 * that flag calls `callback` with allLocalHit before it returns NULL. A miss returns NULL and calls
 * `callback` later, on any thread: in a handler only with FIREHOSE_COMPLETION_IN_HANDLER, else in
 * firehose_poll().
 * FIREHOSE_FLAG_ENABLE_REMOTE_CALLBACK: if this request itself sends a message to the node,
 * `remote_args_callback` runs before the call returns, and firehose_remote_callback() runs on the node
 * with those arguments. allLocalHit means that this did NOT happen.
 * Waits, polling FIREHOSE_AMPOLL, only while this node's whole share of the other node's budget is
 * held. firehose_poll() repeats requests that the other node declines, until they succeed. */
static inline const firehose_request_t* firehose_remote_pin(
    FIREHOSE_NODE_T node, uintptr_t addr, size_t len, uint32_t flags, firehose_request_t* req,
    firehose_remotecallback_args_fn_t remote_args_callback, firehose_completed_fn_t callback,
    void* context) {
  hydrant_pin_t pin =
      hydrant_fh_remote_hit(hydrant_fh_instance, HYDRANT_FH_THIS_SHAPE, node, addr, len);
  if (!pin.region) {
    hydrant_fh_remote_request_t pin_request;
    pin_request.node = node;
    pin_request.flags = flags;
    pin_request.addr = addr;
    pin_request.len = len;
    pin_request.request = req;
    pin_request.callback = HYDRANT_FH_FUNCTION(hydrant_fh_function_t, callback);
    pin_request.args = HYDRANT_FH_FUNCTION(hydrant_fh_function_t, remote_args_callback);
    pin_request.context = context;
    pin = hydrant_fh_remote_pin(hydrant_fh_instance, HYDRANT_FH_THIS_SHAPE, &pin_request);
    if (!pin.region) return HYDRANT_FH_NULL;
  }
  {
    const firehose_request_t* got = hydrant_fh_found_at(node, pin, req);
    if (flags & FIREHOSE_FLAG_RETURN_IF_PINNED) return got;
    callback(context, got, 1);
    return HYDRANT_FH_NULL;
  }
}

#else /* no way to send */

#if defined(FIREHOSE_REMOTE_ABORTS)
#define HYDRANT_FH_REMOTE static inline __attribute__((noreturn, unused))
#else
#define HYDRANT_FH_HINT                                                                        \
  "firehose.h has no way to send here, so no remote pins: firehose_fwd.h defines FIREHOSE_TM " \
  "beside gasnetex.h, or FIREHOSE_SEND_REQUEST and its like; or use LOCAL_ONLY, or define "    \
  "FIREHOSE_REMOTE_ABORTS"
#if defined(__has_attribute)
#if __has_attribute(error)
#define HYDRANT_FH_REMOTE extern __attribute__((error(HYDRANT_FH_HINT)))
#endif
#endif
#if !defined(HYDRANT_FH_REMOTE)
#define HYDRANT_FH_REMOTE extern __attribute__((unavailable(HYDRANT_FH_HINT)))
#endif
#endif

HYDRANT_FH_REMOTE const firehose_request_t* firehose_remote_pin(
    FIREHOSE_NODE_T node, uintptr_t addr, size_t len, uint32_t flags, firehose_request_t* req,
    firehose_remotecallback_args_fn_t remote_args_callback, firehose_completed_fn_t callback,
    void* context);
HYDRANT_FH_REMOTE const firehose_request_t* firehose_try_remote_pin(FIREHOSE_NODE_T node,
                                                                    uintptr_t addr, size_t len,
                                                                    uint32_t flags,
                                                                    firehose_request_t* req);
HYDRANT_FH_REMOTE const firehose_request_t* firehose_partial_remote_pin(FIREHOSE_NODE_T node,
                                                                        uintptr_t addr, size_t len,
                                                                        uint32_t flags,
                                                                        firehose_request_t* req);

#if defined(FIREHOSE_REMOTE_ABORTS)
static inline const firehose_request_t* firehose_remote_pin(
    FIREHOSE_NODE_T node, uintptr_t addr, size_t len, uint32_t flags, firehose_request_t* req,
    firehose_remotecallback_args_fn_t remote_args_callback, firehose_completed_fn_t callback,
    void* context) {
  (void)node, (void)addr, (void)len, (void)flags, (void)req;
  (void)remote_args_callback, (void)callback, (void)context;
  hydrant_fh_no_remote("firehose_remote_pin");
}
static inline const firehose_request_t* firehose_try_remote_pin(FIREHOSE_NODE_T node,
                                                                uintptr_t addr, size_t len,
                                                                uint32_t flags,
                                                                firehose_request_t* req) {
  (void)node, (void)addr, (void)len, (void)flags, (void)req;
  hydrant_fh_no_remote("firehose_try_remote_pin");
}
static inline const firehose_request_t* firehose_partial_remote_pin(FIREHOSE_NODE_T node,
                                                                    uintptr_t addr, size_t len,
                                                                    uint32_t flags,
                                                                    firehose_request_t* req) {
  (void)node, (void)addr, (void)len, (void)flags, (void)req;
  hydrant_fh_no_remote("firehose_partial_remote_pin");
}
#endif

#endif
#endif
