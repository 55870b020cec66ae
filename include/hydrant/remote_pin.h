/* hydrant/remote_pin.h - pins in the memory of other processes, for authors of network layers.
 *
 * A firehose is the right to use, one-sidedly, memory that a peer keeps pinned. This process caches those it
 * has: a remote pin that hits sends nothing; one that misses costs one round trip, a move, which carries
 * the request, what is given back for it, and, if you like, arguments or data of yours. The peer may take
 * firehoses back (a recall), because the memory goes away or its budget is wanted.
 *
 * You bring a domain (pin_cache.h), from which peers' pins are served, and a messenger: a function that
 * sends a message to a peer, which there goes to hydrant_remote_deliver().
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
 *     if (status != GASNET_OK)  ... not now, or never: send the data by messages ...
 *     else if (pin.region)      ... a hit: write by RDMA, with pin.region->key; when that is complete:
 *                                   hydrant_remote_release(pin) ...
 *     else                      ... a move is under way: call.done() will be called once ...
 *
 * What a pin answers: a region of the peer's address space that contains what was asked for, whose key is
 * what your registrar's import_key made of the blob that the peer's export_key wrote (without these two: the
 * peer's key as it is).
 *
 * Coherence: while anybody holds or caches a firehose the peer keeps that memory registered. When it is
 * unmapped or freed there (the peer's domain hears of it as for local pins) the firehoses on it are
 * recalled: no later pin finds them, operations under way end, and only then is it deregistered. free() and
 * munmap() wait for none of this: until then writes go to the pages that were there (a zombie). Whoever tells
 * others about memory that it has released and got again makes sure first that nobody writes to what was
 * there before: hydrant_remote_quiet().
 *
 * Threads: every function from any thread. Nothing here waits for a peer. docs/remote_pins.md has the
 * protocol, its wire format, and why it cannot deadlock.
 *
 * C99 and C++.
 */
#ifndef HYDRANT_REMOTE_PIN_H
#define HYDRANT_REMOTE_PIN_H

#include <hydrant/pin_cache.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An end of the protocol: an index and a generation, never a pointer. 0 is none. */
typedef uint64_t hydrant_remote_t;

/* ---- the messenger door ------------------------------------------------------------------------------ */

/* Lanes. A delivered request may be answered by one reply; a delivered reply makes nobody send. */
#define HYDRANT_LANE_REQUEST 0u
#define HYDRANT_LANE_REPLY 1u

/* The least that max_message_bytes may be. */
#define HYDRANT_REMOTE_LEAST_MESSAGE 512u

/* Your way to send. Messages must arrive once each, unchanged, in any order. */
typedef struct hydrant_messenger {
  size_t size; /* sizeof(hydrant_messenger_t) */
  void* user;
  size_t max_message_bytes; /* longest message, HYDRANT_REMOTE_LEAST_MESSAGE or more */
  /* Sends `len` bytes to `peer`; they are yours to copy before it returns. Never waits.
   * HYDRANT_LANE_REPLY: called inside hydrant_remote_deliver() of a request, at most once, with the
   * `reply_to` that was given there. Answers GASNET_OK; GASNET_ERR_NOT_READY: no room now (it is tried again
   * by hydrant_remote_poll(), as a request); HYDRANT_ERR_BROKEN: the peer is gone. Called from whichever
   * threads are inside this library, concurrently, never with a lock of ours held. It must not call back
   * into the same end, but for hydrant_remote_deliver(). Required. */
  int (*send)(void* user, uint32_t peer, uint32_t lane, void* reply_to, const void* message,
              size_t len);
} hydrant_messenger_t;

/* ---- an end ------------------------------------------------------------------------------------------ */

/* Runs at the target of a move, after its memory is pinned and before the reply leaves: `pinned` is the
 * registration (key and all) and `asked` the range that was asked for. `args` came with the move. What is
 * written to `answer`, at most `room` bytes, goes back with the reply: answer how many.
 * pinned is NULL if the memory could not be pinned; only requests with HYDRANT_REMOTE_CALL_ANYWAY get here
 * then. What is pinned stays registered until the function has returned, whatever becomes of the peer.
 * May use the domain, not this end. */
typedef size_t (*hydrant_remote_fn)(void* user, uint32_t from, const hydrant_region_t* pinned,
                                    hydrant_range_t asked, const void* args, size_t args_len,
                                    void* answer, size_t room);

/* Where callbacks may run; without the flag only inside hydrant_remote_poll(). */
#define HYDRANT_REMOTE_INLINE_DONE 1u /* completions: also inside hydrant_remote_deliver() */
#define HYDRANT_REMOTE_INLINE_REMOTE \
  2u /* the target's function: also inside hydrant_remote_deliver() */

/* Zero or NULL in a field means its default. Start from hydrant_remote_options_init(). All ranks need the
 * same kind of registrar and the same max_message_bytes; the rest may differ. */
typedef struct hydrant_remote_options {
  size_t size;                          /* sizeof(hydrant_remote_options_t) */
  const char* name;                     /* for messages; copied, at most 31 bytes */
  hydrant_domain_t domain;              /* of this process's memory. Must outlive the end */
  uint32_t rank, ranks;                 /* this one, and how many there are: up to 65536 */
  const hydrant_messenger_t* messenger; /* copied */
  hydrant_remote_fn remote;             /* for requests with HYDRANT_REMOTE_CALL */
  void* user;                           /* its first argument */
  uint32_t flags;                       /* HYDRANT_REMOTE_INLINE_* */
  /* As a target. */
  /* Most that peers may keep pinned here, all of them; default half the domain's. BAD_ARG where it, or what
   * any one peer can ever have of it, is less than the domain pins at least (granule, bucket). */
  uint64_t budget_bytes;
  uint32_t max_firehoses; /* most at once; default the domain's regions */
  /* Of the budget so much is split evenly between the peers, and theirs for sure; the rest is lent to those
   * who use it, and taken back for others. Default 50; 100: a fixed split. */
  uint32_t base_percent;
  /* Most memory that is gone and not yet given back by all peers; beyond it nothing more is exported.
   * Default a quarter of budget_bytes. */
  uint64_t zombie_bytes;
  /* As an initiator. */
  uint32_t max_peer_regions; /* most firehoses of one peer; default 4096 */
  size_t max_region_bytes;   /* longest range of one move; default 1 GiB */
  size_t merge_bytes; /* neighbours become one firehose up to this; default 1 MiB; 1: never */
  size_t
      stream_bytes; /* misses that follow each other ask for more, up to this; default 1 MiB; 1: never */
} hydrant_remote_options_t;

HYDRANT_API void hydrant_remote_options_init_sized(hydrant_remote_options_t* options, size_t size);
static inline void hydrant_remote_options_init(hydrant_remote_options_t* options) {
  hydrant_remote_options_init_sized(options, sizeof *options);
}

/* Errors: BAD_ARG; NOT_INIT (the domain); RESOURCE (memory; 64 ends at once). *remote is unchanged on
 * failure. FIREHOSE_REMOTE_* variables fill fields left at their default (docs/env_vars.md). */
HYDRANT_API int hydrant_remote_create(const hydrant_remote_options_t* options,
                                      hydrant_remote_t* remote);
/* Ends it, on this side alone: peers are told nothing, so that they have to have stopped before. Moves under
 * way complete with NOT_INIT. No other thread may be inside a call on it. What peers held here is released,
 * and what this process held of them is void. */
HYDRANT_API int hydrant_remote_destroy(hydrant_remote_t remote);

/* A message that a peer's messenger was given. `reply_to`: for your send(), if this is a request and may
 * still be replied to; else NULL, and the answer goes as a request. Errors: BAD_ARG, with a text, for what
 * cannot be a message of this protocol: nothing has changed then. NOT_INIT. */
HYDRANT_API int hydrant_remote_deliver(hydrant_remote_t remote, uint32_t from, const void* message,
                                       size_t len, void* reply_to);

/* Sends what waits, takes back what is gone, runs callbacks that wait. Answers how much of it there was, or
 * minus a status. Cost: a few loads when there is nothing to do. */
HYDRANT_API int hydrant_remote_poll(hydrant_remote_t remote);

/* The peer has died, or is unreachable for good: what it held is released, what is held of it is gone,
 * moves under way complete with BROKEN, and so does every later pin. */
HYDRANT_API int hydrant_remote_peer_gone(hydrant_remote_t remote, uint32_t peer);

/* ---- remote pins ------------------------------------------------------------------------------------- */

typedef struct hydrant_remote_outcome {
  int status;         /* GASNET_OK, or why there is no pin */
  int called;         /* nonzero: the target's function has run for this request */
  const void* answer; /* what it answered; only valid during the call */
  size_t answer_len;
} hydrant_remote_outcome_t;

/* Runs once for a request that was under way, on any thread. On success the pin is yours to release. Any
 * call is allowed but hydrant_remote_destroy() and, in an INLINE_DONE callback, those that send:
 * hydrant_remote_pin() and poll(). */
typedef void (*hydrant_remote_done_fn)(void* context, hydrant_pin_t pin,
                                       const hydrant_remote_outcome_t* outcome);

#define HYDRANT_REMOTE_CALL 1u /* run the target's function, if a move is made for this request */
#define HYDRANT_REMOTE_CALL_ANYWAY 2u /* ... also where the memory could not be pinned */

/* What goes with a request; all of it may be 0. */
typedef struct hydrant_remote_call {
  hydrant_remote_done_fn done;
  void* context;
  uint32_t flags; /* HYDRANT_REMOTE_CALL* */
  /* For the target's function, copied before the call returns; at most hydrant_remote_max_args(). */
  const void* args;
  size_t args_len;
  /* Instead: called, before the call returns, if a move is made. Writes at most `room` bytes; how many? */
  size_t (*make_args)(void* context, void* args, size_t room);
} hydrant_remote_call_t;

/* Makes [addr, addr+len) of `peer` usable with `access` until released: HYDRANT_REMOTE_READ,
 * HYDRANT_REMOTE_WRITE or both (and the peer's own rights beside them, if you like).
 * OK, and pin->region: it is yours, nothing was sent, `call` is not used. OK, and no pin->region: a move is
 * under way, or somebody else's that covers it (then the target's function does not run for this request);
 * call->done will run once. Other codes: nothing was started, and it will not run.
 * Errors: BAD_ARG (this rank itself, no such peer, len 0, wraps around, no remote right or an unknown one,
 *   unknown bits in call->flags, arguments too long); NOT_READY (what this process may have of the peer is
 *   held, or it said so; use messages, or try again); REFUSED (the memory cannot be pinned there: remembered
 *   for a second); RESOURCE (more than max_region_bytes, no memory, or this process has caches of 1984 peers
 *   already, in all its ends); BROKEN (the peer is gone); NOT_INIT.
 * Cost: hit: some 50 instructions, no lock, no shared write, no system call. Miss: one round trip, in which
 *   the target registers at most once. */
HYDRANT_API int hydrant_remote_pin(hydrant_remote_t remote, uint32_t peer, uintptr_t addr,
                                   size_t len, uint32_t access, const hydrant_remote_call_t* call,
                                   hydrant_pin_t* pin);
/* Takes a hold if there is a firehose for all of it, else NOT_READY. Never sends. */
HYDRANT_API hydrant_pin_t hydrant_try_remote_pin(hydrant_remote_t remote, uint32_t peer,
                                                 uintptr_t addr, size_t len, uint32_t access);
/* Takes a hold on the first part of it that there is a firehose for, else NOT_READY. Never sends. */
HYDRANT_API hydrant_pin_t hydrant_partial_remote_pin(hydrant_remote_t remote, uint32_t peer,
                                                     uintptr_t addr, size_t len, uint32_t access);
/* As hydrant_release(), which also works, and quicker where local and remote pins take turns. */
HYDRANT_API int hydrant_remote_release(hydrant_pin_t pin);

/* Longest arguments, and longest answer, that a move can carry. 0 if the end is not live. */
HYDRANT_API size_t hydrant_remote_max_args(hydrant_remote_t remote);
/* Asks for a firehose that nobody waits for. OK, or as hydrant_remote_pin(). */
HYDRANT_API int hydrant_remote_prefetch(hydrant_remote_t remote, uint32_t peer, uintptr_t addr,
                                        size_t len, uint32_t access);
/* Gives back the firehoses that overlap the range, when their last hold ends. OK too if there are none.
 * Errors: BAD_ARG: this rank itself, no such peer; NOT_INIT. */
HYDRANT_API int hydrant_remote_evict(hydrant_remote_t remote, uint32_t peer, uintptr_t addr,
                                     size_t len);

/* ---- coherence --------------------------------------------------------------------------------------- */

/* OK: no peer can reach memory that was released here before the call. NOT_READY: recalls are on their way
 * or have to be sent: poll until it is OK. Cost: one load while nothing is exported; with exports two loads,
 * and 0.3 us where only the kernel watches some of them. */
HYDRANT_API int hydrant_remote_quiet(hydrant_remote_t remote);

/* ---- what it is doing -------------------------------------------------------------------------------- */

typedef struct hydrant_remote_stats {
  size_t size; /* in: sizeof(hydrant_remote_stats_t) */
  /* as an initiator */
  uint64_t hits;  /* pins that sent nothing */
  uint64_t moves; /* requests sent */
  uint64_t joins; /* pins that waited for another's move */
  uint64_t not_ready, refusals;
  uint64_t evictions;                 /* firehoses given up for others */
  uint64_t recalled;                  /* firehoses taken back */
  uint64_t firehoses, firehose_bytes; /* now */
  /* as a target */
  uint64_t served;                /* moves answered */
  uint64_t declined;              /* of them: with "not now" */
  uint64_t recalls;               /* firehoses asked back because their memory went away */
  uint64_t reclaims;              /* times peers were asked for room */
  uint64_t exports;               /* firehoses that peers have here, now */
  uint64_t exported_bytes;        /* what they are charged */
  uint64_t lent_bytes;            /* leases in force, beyond the base quotas */
  uint64_t zombies, zombie_bytes; /* exports of memory that is gone, now */
  /* messages sent */
  uint64_t requests, replies;
  uint64_t releases_alone; /* requests that only gave back */
} hydrant_remote_stats_t;

HYDRANT_API int hydrant_remote_get_stats(hydrant_remote_t remote, hydrant_remote_stats_t* stats);

#ifdef __cplusplus
}
#endif
#endif
