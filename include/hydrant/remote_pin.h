/* hydrant/remote_pin.h - pins in the memory of other processes, for authors of network layers.
 *
 * A firehose is the right to access, one-sidedly, memory that a peer keeps pinned. Each process caches
 * its firehoses. A remote pin that hits sends no message. A miss costs one round trip, called a move.
 * The move carries the request, firehoses that are released for it, and optional arguments or data. The
 * peer may recall firehoses, because the memory is about to be unmapped or its budget is needed.
 *
 * The client supplies a domain (pin_cache.h), which serves the pins of peers, and a messenger: a
 * function that sends a message to a peer. The receiver passes each message to
 * hydrant_remote_deliver().
 *
 *     hydrant_remote_options_t options;
 *     hydrant_remote_options_init(&options);
 *     options.domain = domain;
 *     options.rank = me;
 *     options.ranks = n;
 *     options.messenger = &messenger;
 *     hydrant_remote_t remote;
 *     if (hydrant_remote_create(&options, &remote) != GASNET_OK) ... hydrant_error_text() ...
 *     ...
 *     hydrant_pin_t pin;
 *     status = hydrant_remote_pin(remote, peer, addr, len, HYDRANT_REMOTE_WRITE, &call, &pin);
 *     if (status != GASNET_OK)  ... not now, or never: send the data in messages instead ...
 *     else if (pin.region)      ... a hit: write by RDMA, with pin.region->key; when that is complete:
 *                                   hydrant_remote_release(pin) ...
 *     else                      ... a move is under way: call.done() will be called once ...
 *
 * A successful pin is a region of the peer's address space that contains the requested range. Its key
 * is the result of the local registrar's import_key for the blob of the peer's export_key; without
 * these two functions it is the peer's key itself.
 *
 * Coherence: a peer keeps memory registered while any process holds or caches a firehose on it. When
 * the memory is unmapped or freed there, the peer's domain notices as for local pins and recalls the
 * firehoses: no later pin finds them, operations under way end, and only then is the memory
 * deregistered. free() and munmap() do not wait for this: until then writes go to the old pages (a
 * zombie). Before a process publishes memory that it released and got again, it must wait until no peer
 * can write to the old pages: hydrant_remote_quiet().
 *
 * Threads: every function from any thread. No function waits for a peer. docs/remote_pins.md describes
 * the protocol, its wire format, and why it cannot deadlock.
 *
 * C99 and C++.
 */
#ifndef HYDRANT_REMOTE_PIN_H
#define HYDRANT_REMOTE_PIN_H

#include <hydrant/pin_cache.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An endpoint of the protocol: an index and a generation, never a pointer. 0 is invalid. */
typedef uint64_t hydrant_remote_t;

/* ---- the messenger interface ------------------------------------------------------------------------- */

/* Lanes. A delivered request may send one reply; a delivered reply causes no message. */
#define HYDRANT_LANE_REQUEST 0u
#define HYDRANT_LANE_REPLY 1u

/* The minimum of max_message_bytes. */
#define HYDRANT_REMOTE_MIN_MESSAGE_BYTES 512u

/* The client's transport. It must deliver each message once, unchanged; the order is free. */
typedef struct hydrant_messenger {
  size_t size; /* sizeof(hydrant_messenger_t) */
  void* user;
  size_t max_message_bytes; /* longest message, HYDRANT_REMOTE_MIN_MESSAGE_BYTES or more */
  /* Sends `len` bytes to `peer`; must copy them before it returns. Never waits. Required. Called from
   * any thread inside this library, concurrently, without a library lock. It must not call the same
   * endpoint, except hydrant_remote_deliver().
   * HYDRANT_LANE_REPLY: called inside hydrant_remote_deliver() of a request, at most once, with its
   * `reply_to`.
   * Returns GASNET_OK; GASNET_ERR_NOT_READY: no room now (hydrant_remote_poll() sends it again, as a
   * request); GASNET_ERR_RESOURCE: this process or the peer lacks memory or room for it;
   * HYDRANT_ERR_BROKEN: the peer is dead or unreachable. A pin that needs the message fails with the code. */
  int (*send)(void* user, uint32_t peer, uint32_t lane, void* reply_to, const void* message,
              size_t len);
} hydrant_messenger_t;

/* ---- endpoints --------------------------------------------------------------------------------------- */

/* Runs at the target of a move, after the memory is pinned and before the reply is sent. `pinned` is
 * the registration with its key, `asked` the requested range, `args` the move's arguments. The function
 * writes at most `room` bytes to `answer`, which the reply carries, and returns their number. The
 * memory stays registered until the function returns, even if the peer dies. May use the domain, but
 * not this endpoint.
 * pinned is NULL if the memory could not be pinned; only requests with HYDRANT_REMOTE_CALL_ANYWAY call
 * the function then. */
typedef size_t (*hydrant_remote_fn)(void* user, uint32_t from, const hydrant_region_t* pinned,
                                    hydrant_range_t asked, const void* args, size_t args_len,
                                    void* answer, size_t room);

/* A peer that declined a request may have room now: try again. Runs inside hydrant_remote_deliver(),
 * even of a reply: it must not send. */
typedef void (*hydrant_remote_room_fn)(void* user, uint32_t peer);

/* Flags that let callbacks run outside of hydrant_remote_poll(). */
#define HYDRANT_REMOTE_INLINE_DONE 1u   /* completions: also inside hydrant_remote_deliver() */
#define HYDRANT_REMOTE_INLINE_REMOTE 2u /* target functions: also inside hydrant_remote_deliver() */

/* Zero or NULL in a field selects its default. Initialise with hydrant_remote_options_init(). All ranks
 * need the same kind of registrar and the same max_message_bytes; the rest may differ. */
typedef struct hydrant_remote_options {
  size_t size;                          /* sizeof(hydrant_remote_options_t) */
  const char* name;                     /* for messages; copied, at most 31 bytes */
  hydrant_domain_t domain;              /* of this process's memory. Must outlive the endpoint */
  uint32_t rank, ranks;                 /* this rank, and the number of ranks: up to 65536 */
  const hydrant_messenger_t* messenger; /* copied */
  hydrant_remote_fn remote;             /* for requests with HYDRANT_REMOTE_CALL */
  void* user;                           /* first argument of `remote` and `room` */
  uint32_t flags;                       /* HYDRANT_REMOTE_INLINE_* */
  /* As a target. */
  /* Most bytes that all peers together may keep pinned here; default half the domain's budget. BAD_ARG
   * if it, or the most that one peer can get of it, is less than the domain's smallest pin (granule,
   * bucket). */
  uint64_t budget_bytes;
  uint32_t max_firehoses; /* most exports at once; default: the domain's max_regions */
  /* Percentage of the budget that is split evenly between the peers and guaranteed to them. The rest is
   * lent on demand and reclaimed for other peers. Default 50; 100: a fixed split. */
  uint32_t base_percent;
  /* Most bytes of freed memory whose firehoses the peers have not yet released (zombies); beyond it no memory
   * is exported. Default a quarter of budget_bytes. */
  uint64_t zombie_bytes;
  /* As an initiator. */
  uint32_t max_peer_regions; /* most firehoses per peer; default 4096 */
  size_t max_region_bytes;   /* longest range of one move, bytes; default 1 GiB */
  size_t merge_bytes;  /* neighbours merge into one firehose up to this; default 1 MiB; 1: never */
  size_t stream_bytes; /* read-ahead of consecutive misses, up to this; default 1 MiB; 1: never */
  hydrant_remote_room_fn room; /* for hydrant_remote_await_room(), or NULL */
} hydrant_remote_options_t;

HYDRANT_API void hydrant_remote_options_init_sized(hydrant_remote_options_t* options, size_t size);
static inline void hydrant_remote_options_init(hydrant_remote_options_t* options) {
  hydrant_remote_options_init_sized(options, sizeof *options);
}

/* Creates an endpoint. *remote is unchanged on failure. FIREHOSE_REMOTE_* variables fill fields left at
 * their default (docs/env_vars.md).
 * Errors: BAD_ARG; NOT_INIT (the domain); RESOURCE (memory; more than 64 endpoints). */
HYDRANT_API int hydrant_remote_create(const hydrant_remote_options_t* options,
                                      hydrant_remote_t* remote);
/* Ends an endpoint, on this side only. Peers get no message, so they must have stopped before. Moves
 * under way complete with NOT_INIT. No other thread may be inside a call on it. Memory that peers held
 * here is released; firehoses on peers' memory become invalid. */
HYDRANT_API int hydrant_remote_destroy(hydrant_remote_t remote);

/* Processes a message that the peer `from` sent. `reply_to` is for the local send(), if this is a
 * request that may still be replied to. If it is NULL, the reply is sent as a request.
 * Errors: BAD_ARG, with a text, for a malformed message, which has no effect; NOT_INIT. */
HYDRANT_API int hydrant_remote_deliver(hydrant_remote_t remote, uint32_t from, const void* message,
                                       size_t len, void* reply_to);

/* Sends queued messages, deregisters recalled memory and runs pending callbacks. Returns the number of
 * these actions, or minus a status. Cost: a few loads without pending work. */
HYDRANT_API int hydrant_remote_poll(hydrant_remote_t remote);

/* Declares the peer dead or permanently unreachable. Releases memory that it held here and drops the
 * firehoses on its memory. Moves under way and all later pins complete with BROKEN. */
HYDRANT_API int hydrant_remote_peer_gone(hydrant_remote_t remote, uint32_t peer);

/* ---- remote pins ------------------------------------------------------------------------------------- */

typedef struct hydrant_remote_outcome {
  int status;         /* GASNET_OK, or the reason why there is no pin */
  int called;         /* nonzero: the target's function has run for this request */
  const void* answer; /* what the function wrote; valid only during the callback */
  size_t answer_len;
} hydrant_remote_outcome_t;

/* Runs once, on any thread, for a request that was under way. On success the client must release the
 * pin. Any call is allowed except hydrant_remote_destroy(). An INLINE_DONE callback must also not call
 * the functions that send: hydrant_remote_pin() and poll(). */
typedef void (*hydrant_remote_done_fn)(void* context, hydrant_pin_t pin,
                                       const hydrant_remote_outcome_t* outcome);

#define HYDRANT_REMOTE_CALL 1u /* run the target's function, if a move is made for this request */
#define HYDRANT_REMOTE_CALL_ANYWAY 2u /* ... even if the memory could not be pinned */

/* Optional parts of a request; all may be 0. */
typedef struct hydrant_remote_call {
  hydrant_remote_done_fn done;
  void* context;
  uint32_t flags; /* HYDRANT_REMOTE_CALL* */
  /* Arguments of the target's function, copied before the call returns; at most
   * hydrant_remote_max_args(). */
  const void* args;
  size_t args_len;
  /* Alternative to args: called, before the call returns, if a move is made. Writes at most `room`
   * bytes and returns their number. */
  size_t (*make_args)(void* context, void* args, size_t room);
} hydrant_remote_call_t;

/* Makes [addr, addr+len) of `peer` usable with `access` until released. `access` is
 * HYDRANT_REMOTE_READ, HYDRANT_REMOTE_WRITE or both, and optionally local rights of the peer.
 * Returns OK with pin->region: a hit; no message was sent and `call` is not used. OK without
 * pin->region: a move is under way and call->done will run once. If another request's move covers the
 * range, the target's function does not run for this request. Other codes: no move was started and
 * call->done will not run.
 * Errors: BAD_ARG (this rank itself, invalid peer, len 0, wrap-around, no remote right or an unknown
 * one, unknown bits in call->flags, arguments too long); NOT_READY (this process's share of the peer's
 * memory is held, or the peer declined: use messages, or hydrant_remote_await_room()); REFUSED (the
 * memory cannot be pinned there; remembered for a second); RESOURCE (more than max_region_bytes, or
 * than the peer can ever grant; no memory; the messenger's; or caches of 1984 peers already exist in
 * this process);
 * BROKEN (the peer is dead or unreachable); NOT_INIT.
 * Cost: a hit takes about 150 instructions, and its release 20, without lock, shared write or system
 * call. A miss takes one round trip, in which the target registers at most once. */
HYDRANT_API int hydrant_remote_pin(hydrant_remote_t remote, uint32_t peer, uintptr_t addr,
                                   size_t len, uint32_t access, const hydrant_remote_call_t* call,
                                   hydrant_pin_t* pin);
/* Takes a hold if there is a firehose for the whole range, else returns NOT_READY. Never sends. */
HYDRANT_API hydrant_pin_t hydrant_try_remote_pin(hydrant_remote_t remote, uint32_t peer,
                                                 uintptr_t addr, size_t len, uint32_t access);
/* Takes a hold on the first part of the range that has a firehose, else returns NOT_READY. Never sends. */
HYDRANT_API hydrant_pin_t hydrant_partial_remote_pin(hydrant_remote_t remote, uint32_t peer,
                                                     uintptr_t addr, size_t len, uint32_t access);
/* Like hydrant_release(), which is also allowed; faster if local and remote pins alternate. */
HYDRANT_API int hydrant_remote_release(hydrant_pin_t pin);

/* Longest arguments, and longest answer, of a move in bytes. 0 if the endpoint is not live. */
HYDRANT_API size_t hydrant_remote_max_args(hydrant_remote_t remote);
/* Requests a firehose without taking a hold. Returns OK, or as hydrant_remote_pin(). */
HYDRANT_API int hydrant_remote_prefetch(hydrant_remote_t remote, uint32_t peer, uintptr_t addr,
                                        size_t len, uint32_t access);
/* Releases the firehoses that overlap the range when their last hold ends. OK if there are none.
 * Errors: BAD_ARG: this rank itself, or an invalid peer; NOT_INIT. */
HYDRANT_API int hydrant_remote_evict(hydrant_remote_t remote, uint32_t peer, uintptr_t addr,
                                     size_t len);

/* Flags: the peer replies even while it has no room. */
#define HYDRANT_REMOTE_REPLY_AT_ONCE 1u

/* Requests a message from the peer, after NOT_READY from the call or in the outcome, when it may have room
 * for this range. options.room then runs once, but not if the peer dies. It may run early, so that the
 * next pin is declined again. With several waiting ranges, the shortest is notified first; call again
 * for the others. Sends no message while a reply is pending. Not legal inside callbacks of this
 * endpoint.
 * The peer looks for room in its hydrant_remote_poll(). With HYDRANT_REMOTE_REPLY_AT_ONCE it looks
 * once and replies. That flag serves clients whose peers poll only when a message has arrived: they
 * call this function in each poll while they wait.
 * Errors: BAD_ARG; NOT_READY (the messenger has no room); BROKEN; NOT_INIT; RESOURCE. */
HYDRANT_API int hydrant_remote_await_room(hydrant_remote_t remote, uint32_t peer, uintptr_t addr,
                                          size_t len, uint32_t access, uint32_t flags);

/* ---- coherence --------------------------------------------------------------------------------------- */

/* OK: no peer can access memory that was released here before the call. NOT_READY: recalls are pending;
 * poll until it is OK.
 * Cost: one load while no memory is exported; with exports two loads, and 0.3 us if only the kernel
 * watches some of them. */
HYDRANT_API int hydrant_remote_quiet(hydrant_remote_t remote);

/* ---- statistics -------------------------------------------------------------------------------------- */

typedef struct hydrant_remote_stats {
  size_t size; /* in: sizeof(hydrant_remote_stats_t) */
  /* as an initiator */
  uint64_t hits;  /* pins that sent no message */
  uint64_t moves; /* requests sent */
  uint64_t joins; /* pins that waited for another request's move */
  uint64_t not_ready, refusals;
  uint64_t evictions;                 /* firehoses given up to make room */
  uint64_t recalled;                  /* firehoses that peers took back */
  uint64_t firehoses, firehose_bytes; /* now */
  /* as a target */
  uint64_t served;                /* moves replied to */
  uint64_t declined;              /* of `served`: with NOT_READY */
  uint64_t recalls;               /* firehoses recalled because their memory was unmapped */
  uint64_t reclaims;              /* requests to peers to release firehoses for room */
  uint64_t exports;               /* firehoses that peers hold or cache here, now */
  uint64_t exported_bytes;        /* their charge, bytes */
  uint64_t lent_bytes;            /* lent beyond the base quotas, bytes */
  uint64_t zombies, zombie_bytes; /* exports of released memory, now */
  /* messages sent */
  uint64_t requests, replies;
  uint64_t releases_alone; /* requests that only give firehoses back */
} hydrant_remote_stats_t;

HYDRANT_API int hydrant_remote_get_stats(hydrant_remote_t remote, hydrant_remote_stats_t* stats);

#ifdef __cplusplus
}
#endif
#endif
