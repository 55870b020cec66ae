/* hydrant/firehose_shim.h - the exported functions under firehose.h. They take the client's
 * configuration as arguments, so every client links the same library, whatever its firehose_fwd.h
 * defines.
 *
 * Clients include <firehose.h>, not this file. A `shape` is a constant of the client's compilation:
 * header version, mode and key size. Each call passes it. A call whose shape differs from that of
 * hydrant_fh_init() aborts with a message instead of reading a key of the wrong size.
 *
 * Threads: as firehose.h says for the function of the same name.
 * Errors: GASNet's firehose API has no error returns. A fatal condition prints a message on standard
 * error and aborts; each function lists its conditions.
 *
 * C99 and C++. Includes only hydrant/pin_cache.h.
 */
#ifndef HYDRANT_FIREHOSE_SHIM_H
#define HYDRANT_FIREHOSE_SHIM_H

#include <hydrant/pin_cache.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HYDRANT_FH_ATTRIBUTE(list) __attribute__(list)
#else
#define HYDRANT_FH_ATTRIBUTE(list)
#endif

/* Incremented whenever a struct or a function of this file changes. */
#define HYDRANT_FH_ABI 2u

/* The largest firehose_client_t and its strictest alignment, in bytes. */
#define HYDRANT_FH_MAX_CLIENT_BYTES 64u
#define HYDRANT_FH_MAX_ALIGN 64u

#define HYDRANT_FH_SHAPE(mode, client_bytes) (HYDRANT_FH_ABI << 24 | (mode) << 16 | (client_bytes))

/* An initialised firehose; NULL before firehose_init. */
typedef struct hydrant_fh hydrant_fh_t;

/* A remote pin that may have to wait. The library uses the client's fields only through the functions
 * below. */
typedef struct hydrant_fh_remote_request {
  uint32_t node;
  uint32_t flags; /* FIREHOSE_FLAG_* */
  uintptr_t addr;
  size_t len;
  void* request;          /* the client's storage, or NULL */
  void (*callback)(void); /* firehose_completed_fn_t */
  void (*args)(void);     /* firehose_remotecallback_args_fn_t, or NULL */
  void* context;
} hydrant_fh_remote_request_t;

/* The client's configuration, as its compiler saw it. A firehose_region_t is { uintptr_t addr; size_t
 * len; key }. The key lies at client_offset and has client_bytes bytes; both are 0 for a client without
 * firehose_client_t. */
typedef struct hydrant_fh_client {
  size_t size;           /* sizeof(hydrant_fh_client_t) */
  uint32_t shape;        /* HYDRANT_FH_SHAPE of this client */
  uint32_t api_version;  /* FIREHOSE_API_VERSION */
  uint32_t mode;         /* HYDRANT_MODE_* */
  uint32_t client_bytes; /* sizeof(firehose_client_t) or 0 */
  uint32_t region_bytes; /* sizeof(firehose_region_t) */
  uint32_t client_offset;
  size_t bucket_bytes; /* FH_BUCKET_SIZE; 0 means the page size */
  double victim_ratio; /* default share of the memory for MAXVICTIM, 0 to 1 */
  /* firehose_move_callback with the node filled in: lists of firehose_region_t. Required. */
  int (*move)(const void* unpin, size_t unpin_num, void* pin, size_t pin_num);
  /* FH_MAY_MERGE: returns zero for a key that marks a failed registration. NULL if every key is valid. */
  int (*may_merge)(const void* client);
  /* FIREHOSE_AMPOLL: called while a blocking pin waits. NULL if there is nothing to poll. */
  void (*poll)(void);

  uint32_t node; /* this process; 0 prints the messages that concern the whole job */
  /* The remote part. If the client cannot send, nodes is 0 and the rest is unused. */
  uint32_t nodes;
  uint32_t remote_flags;    /* HYDRANT_FH_*_IN_HANDLER */
  uint32_t args_bytes;      /* sizeof(firehose_remotecallback_args_t) */
  size_t max_message_bytes; /* longest message, at least HYDRANT_REMOTE_MIN_MESSAGE_BYTES */
  /* Like hydrant_messenger_t::send (hydrant/remote_pin.h), but it may poll until there is room. */
  int (*send)(uint32_t node, uint32_t lane, void* reply_to, const void* message, size_t len);
  /* Calls firehose_remote_callback with one region. */
  int (*remote)(uint32_t node, const void* region, const void* args, size_t args_len);
  /* Calls ask->args, which writes at most args_bytes; returns the number of bytes written. */
  size_t (*make_args)(const hydrant_fh_remote_request_t* pin_request, void* args);
  /* Writes the request and calls ask->callback. */
  void (*completed)(const hydrant_fh_remote_request_t* pin_request, hydrant_pin_t pin,
                    int all_local_hit);
} hydrant_fh_client_t;

#define HYDRANT_FH_COMPLETION_IN_HANDLER 1u
#define HYDRANT_FH_REMOTE_IN_HANDLER 2u

typedef struct hydrant_fh_limits {
  size_t remote_pin_bytes, local_pin_bytes; /* 0: nothing can be pinned */
  size_t remote_regions, local_regions;     /* 0: no limit */
} hydrant_fh_limits_t;

/* Starts a firehose for this client; `before` is the result of the last hydrant_fh_fini(), or NULL.
 * Aborts on: a client struct of another version or with impossible sizes; arguments or environment
 * variables that contradict each other; a firehose that already exists, or ended without MAY_REINIT; no
 * memory. */
HYDRANT_API hydrant_fh_t* hydrant_fh_init(hydrant_fh_t* before, const hydrant_fh_client_t* client,
                                          uintptr_t max_pinnable_memory, size_t max_regions,
                                          size_t max_region_size, const void* prepinned,
                                          size_t num_prepinned, uint32_t flags,
                                          hydrant_fh_limits_t* limits);
/* Ends the firehose. Returns the argument for the next hydrant_fh_init(). Aborts before init. */
HYDRANT_API hydrant_fh_t* hydrant_fh_fini(hydrant_fh_t* fh);
/* Makes progress and runs the client's pending callbacks. No effect before init and after fini. */
HYDRANT_API void hydrant_fh_poll(hydrant_fh_t* fh);
/* M and MAXVICTIM for this much memory, before or after init. Aborts if the environment asks for more. */
HYDRANT_API void hydrant_fh_get_params(const hydrant_fh_t* fh, double victim_ratio,
                                       uintptr_t max_pinnable_memory, uintptr_t* m,
                                       uintptr_t* max_victim);

/* Returns a region always: waits until there is budget. Aborts on a range that can never be pinned, a
 * failing move callback, a wrong shape, before init and after fini. */
HYDRANT_API hydrant_pin_t hydrant_fh_local_pin(hydrant_fh_t* fh, uint32_t shape, uintptr_t addr,
                                               size_t len);
/* These two return a pin without a region if no matching memory is pinned. */
HYDRANT_API hydrant_pin_t hydrant_fh_try_local_pin(hydrant_fh_t* fh, uint32_t shape, uintptr_t addr,
                                                   size_t len);
HYDRANT_API hydrant_pin_t hydrant_fh_partial_local_pin(hydrant_fh_t* fh, uint32_t shape,
                                                       uintptr_t addr, size_t len);
/* The same for memory of another node; abort for this node itself, and without a remote part. */
HYDRANT_API hydrant_pin_t hydrant_fh_try_remote_pin(hydrant_fh_t* fh, uint32_t shape, uint32_t node,
                                                    uintptr_t addr, size_t len);
HYDRANT_API hydrant_pin_t hydrant_fh_partial_remote_pin(hydrant_fh_t* fh, uint32_t shape,
                                                        uint32_t node, uintptr_t addr, size_t len);
/* First lookup of firehose_remote_pin. Without a region in the result, hydrant_fh_remote_pin() comes
 * next and reports any error. Aborts without a remote part. */
HYDRANT_API hydrant_pin_t hydrant_fh_remote_hit(hydrant_fh_t* fh, uint32_t shape, uint32_t node,
                                                uintptr_t addr, size_t len);
/* With a region in the result: the memory is pinned and no message was sent. Without: client->completed
 * will be called once. Waits while this node's whole share of the other node's budget is held. Aborts
 * on a range that can never be pinned, on a node that refuses or is gone, and as
 * hydrant_fh_local_pin(). */
HYDRANT_API hydrant_pin_t hydrant_fh_remote_pin(hydrant_fh_t* fh, uint32_t shape,
                                                const hydrant_fh_remote_request_t* pin_request);
/* Processes a message from another node. `reply_to` is for client->send with HYDRANT_LANE_REPLY if this
 * is a request that may be replied to, else NULL. Aborts on a malformed message; drops messages before
 * init and after fini. */
HYDRANT_API void hydrant_fh_deliver(hydrant_fh_t* fh, uint32_t from, const void* message,
                                    size_t len, void* reply_to);

/* Aborts on a hold that was released before. Does nothing if the firehose of the hold has ended. */
HYDRANT_API void hydrant_fh_release(hydrant_pin_t pin);
HYDRANT_API void hydrant_fh_invalidate(hydrant_fh_t* fh, uint32_t shape, uintptr_t addr,
                                       size_t len);

/* Allocates storage for a request; never NULL. Aborts without memory. */
HYDRANT_API void* hydrant_fh_request_new(size_t bytes) HYDRANT_FH_ATTRIBUTE((returns_nonnull));
HYDRANT_API void hydrant_fh_request_free(void* request);

/* Print that `function` needs the remote part, or that the handlers are not registered, and abort. */
HYDRANT_API void hydrant_fh_no_remote(const char* function) HYDRANT_FH_ATTRIBUTE((noreturn));
HYDRANT_API void hydrant_fh_unregistered(void) HYDRANT_FH_ATTRIBUTE((noreturn));

#ifdef __cplusplus
}
#endif
#endif
