/* hydrant/pin_cache.h - a cache of pinned (registered) memory, for authors of network layers.
 *
 * A domain is one cache over one registrar (the thing that really pins: the kernel, a network card,
 * or your own functions). A region is a pinned, page-aligned range with its key. A pin is your hold
 * on a region: while you have it, the region stays registered. Regions nobody holds stay pinned as
 * victims until their budget is wanted, so that using the same memory again costs nanoseconds.
 *
 *     hydrant_domain_options_t options;
 *     hydrant_domain_options_init(&options);
 *     options.registrar_name = "uring";
 *     hydrant_domain_t domain;
 *     if (hydrant_domain_create(&options, &domain) != GASNET_OK) ... hydrant_error_text() ...
 *     hydrant_pin_t pin = hydrant_pin(domain, buffer, length, HYDRANT_LOCAL_WRITE);
 *     if (pin.region) { ... use pin.region->key ...; hydrant_release(pin); }
 *     else            { ... hydrant_pin_status(pin) says why: copy through a bounce buffer ... }
 *
 * Coherence: by default (watch = HYDRANT_WATCH_AUTO) only memory is cached of which somebody says when it
 * goes away: the kernel, the hooks library, an allocator such as libhydrant_alloc; other memory is pinned
 * while it is held. hydrant_coverage() tells which it is, and what a hit costs follows from that. You may
 * say it yourself of ranges, with hydrant_vouch(), or of everything, with watch = HYDRANT_WATCH_CLIENT:
 * then call hydrant_invalidate() before memory that may be cached is unmapped, moved or punched, and let
 * no pin of it start between that call and the return of the system call. With stream_bytes memory beside
 * what you pinned is cached, too: announce all of it.
 *
 * Threads: every function may be called from any thread at any time unless it says otherwise; none is
 * async-signal-safe; none may be called from inside a policy's function, and of these only
 * hydrant_invalidate() and hydrant_set_error_text() from inside a registrar's.
 * Errors: functions return a code of gasnet_errors.h; hydrant_error_text() explains the last one.
 * "Not now" (GASNET_ERR_NOT_READY) is an answer, not a failure.
 *
 * C99 and C++. Includes only <stddef.h>, <stdint.h> and gasnet_errors.h.
 */
#ifndef HYDRANT_PIN_CACHE_H
#define HYDRANT_PIN_CACHE_H

#include <gasnet_errors.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HYDRANT_API __attribute__((visibility("default")))
#else
#define HYDRANT_API
#endif

/* ---- words ------------------------------------------------------------------------------------ */

/* A domain handle: an index and a generation, never a pointer. 0 is never a domain. A handle used after
 * hydrant_domain_destroy() is answered with GASNET_ERR_NOT_INIT. */
typedef uint64_t hydrant_domain_t;

/* Access rights, combined with |. Local read is part of every registration; 0 asks for it alone. */
#define HYDRANT_LOCAL_READ 0u
#define HYDRANT_LOCAL_WRITE 1u
#define HYDRANT_REMOTE_READ 2u
#define HYDRANT_REMOTE_WRITE 4u
#define HYDRANT_REMOTE_ATOMIC 8u
#define HYDRANT_ACCESS_ALL 15u

/* What is known of a pinned region. Read-only, and only while you hold a pin on it; until then nothing of it
 * changes, whatever is merged, invalidated or pinned elsewhere. */
typedef struct hydrant_region {
  uintptr_t addr; /* page-aligned start, <= the address you asked for */
  size_t len;     /* bytes; [addr, addr+len) contains the range you asked for */
  const void*
      key; /* key_bytes of the registrar, opaque here, aligned to 8 (16 from 16 bytes up); NULL if the
                      registrar has no keys, or the pin has several parts: hydrant_pin_parts() */
} hydrant_region_t;

/* A hold, or the reason why there is none. Small: pass it by value. */
typedef struct hydrant_pin_s {
  const hydrant_region_t* region; /* NULL: no hold was taken, see hydrant_pin_status() */
  uint64_t hold;                  /* opaque; the status when region is NULL */
} hydrant_pin_t;

typedef struct hydrant_range {
  uintptr_t addr;
  size_t len;
} hydrant_range_t;

static inline int hydrant_pin_status(hydrant_pin_t pin) {
  if (pin.region) return GASNET_OK;
  /* All zero: it was never taken. A cast of the other would be C or C++, not both. */
  if (pin.hold == 0) return GASNET_ERR_NOT_INIT;
  return pin.hold & 0x7fffffff;
}

/* The calling thread's last failure in words ("" if none); valid until it fails again. */
HYDRANT_API const char* hydrant_error_text(void);
/* "GASNET_ERR_BAD_ARG" and the like; "(unknown status)" for foreign numbers. Never NULL. */
HYDRANT_API const char* hydrant_status_name(int status);

/* For a registrar of your own: explains a failure before its function answers a code. Cut at 511 bytes. */
HYDRANT_API void hydrant_set_error_text(const char* text);

/* ---- the registrar door ----------------------------------------------------------------------- */

#define HYDRANT_SCOPE_NONE 0u    /* nothing is limited */
#define HYDRANT_SCOPE_PROCESS 1u /* the limit is this process's (mlock, verbs) */
#define HYDRANT_SCOPE_USER 2u    /* shared by all processes of this user (io_uring) */
#define HYDRANT_SCOPE_DEVICE 3u  /* a table of the device */

#define HYDRANT_ADDRESS_HOST 0u
#define HYDRANT_ADDRESS_DEVICE 1u /* refused when the domain is created, with a text */

#define HYDRANT_UNPIN_DONE 0    /* undone and no longer charged */
#define HYDRANT_UNPIN_PENDING 1 /* undone, charged until pending_charge() says otherwise */
/* Could not be undone: the region is dropped and its charge given back to the budget all the same, since the
 * cache can do nothing more; it is counted in unpin_failures, and a log line names the range. */
#define HYDRANT_UNPIN_BROKEN 2

/* Completion of pin_async: call exactly once, from any thread, not from inside pin_async. */
typedef void (*hydrant_pin_done_fn)(void* context, int status, const void* key);

/* Your own registration calls. Fill in `size`, the facts and `pin`/`unpin`; leave the rest zero.
 * `user` is passed through. The cache calls these concurrently, from whichever threads are inside its calls
 * (a release or a poll may be the one that unpins), never holding a lock of its own; they must not call back
 * into the domain, but for hydrant_invalidate(): a free() in your code may lead there. Map errno like this:
 * EFAULT to HYDRANT_ERR_REFUSED; ENOMEM, EAGAIN, a full table to GASNET_ERR_NOT_READY, so that the cache
 * evicts and tries again; a device that worked and is gone to HYDRANT_ERR_BROKEN. The struct is copied at
 * domain creation. */
typedef struct hydrant_registrar {
  size_t size; /* sizeof(hydrant_registrar_t): lets the struct grow */
  void* user;
  const char* name;          /* for messages; copied, at most 31 bytes */
  uint32_t key_bytes;        /* size of a key, 0 to 4096 */
  uint32_t address_kind;     /* HYDRANT_ADDRESS_HOST */
  uint32_t charge_scope;     /* HYDRANT_SCOPE_* */
  uint32_t supported_access; /* 0 means HYDRANT_ACCESS_ALL */
  size_t granule_bytes;      /* 0 means the page size; a power of two */
  size_t max_region_bytes;   /* 0 means no limit */
  uint64_t max_regions;      /* 0 means no limit */
  uint64_t max_charge_bytes; /* 0 means no limit */
  uint32_t divisible;        /* nonzero: a pin may be undone piecewise (needs key_bytes == 0) */
  uint32_t export_bytes;     /* largest blob of export_key, 0 to 65536 */
  uint32_t pin_base_ns, pin_page_ns, unpin_base_ns; /* cost hints; 0 means unknown */

  /* Pins [addr, addr+len) and writes key_bytes to key. Answers GASNET_OK, HYDRANT_ERR_REFUSED (never
   * with this right), GASNET_ERR_NOT_READY (no budget now), GASNET_ERR_RESOURCE (never so much), or
   * HYDRANT_ERR_BROKEN. Required. */
  int (*pin)(void* user, uintptr_t addr, size_t len, uint32_t access, void* key);
  /* Undoes one pin. Answers HYDRANT_UNPIN_*. Required. */
  int (*unpin)(void* user, uintptr_t addr, size_t len, const void* key);
  /* Optional: n at once. BROKEN if any could not be undone: all n then count as failed. */
  int (*unpin_many)(void* user, const hydrant_range_t* ranges, const void* const* keys, size_t n);
  /* Optional: bytes charged for pinning this range; default len. */
  uint64_t (*charge)(void* user, uintptr_t addr, size_t len);
  /* Optional: bytes undone but still charged; default 0. */
  uint64_t (*pending_charge)(void* user);
  /* Optional: like pin, or GASNET_ERR_NOT_READY with `done` to be called later. */
  int (*pin_async)(void* user, uintptr_t addr, size_t len, uint32_t access, void* key,
                   hydrant_pin_done_fn done, void* context);
  /* Optional: a live key as a blob for another process; *blob_len is the room, then the size. Answer
   * GASNET_ERR_BAD_ARG, with the size needed in *blob_len, where the room is too small. */
  int (*export_key)(void* user, uintptr_t addr, size_t len, const void* key, void* blob,
                    size_t* blob_len);
  /* Optional: a peer's blob (untrusted) as a local key. */
  int (*import_key)(void* user, const void* blob, size_t len, void* key);
  /* Optional: one key for all of memory (on-demand paging). */
  int (*implicit_key)(void* user, uint32_t access, void* key);
  /* Optional: runs once in the child of a fork; async-signal-safe calls only. */
  void (*forget_in_child)(void* user);
  /* Optional: runs when the domain is gone. Not where hydrant_domain_create() failed: then it stays yours. */
  void (*destroy)(void* user);
  /* Optional: a key that import_key wrote is used no more. */
  void (*drop_import)(void* user, const void* key);
} hydrant_registrar_t;

/* ---- the policy door -------------------------------------------------------------------------- */

/* Your own choice of victims. Region numbers are small integers, stable while the region lives. All
 * calls come under the domain's lock, one at a time: be quick, do not allocate, do not call back.
 * The domain asks for regions to `watch`; if one of them is used again before it is evicted, `touch`
 * reports it (a sample: only the first use after each watch is seen, hits cost nothing). */
typedef struct hydrant_policy {
  size_t size; /* sizeof(hydrant_policy_t) */
  void* user;
  void (*insert)(void* user, uint32_t region, size_t len, uint64_t charge);
  void (*touch)(void* user, uint32_t region);
  void (*erase)(void* user, uint32_t region);
  /* Write up to n regions to watch next; answer how many. */
  size_t (*watch)(void* user, uint32_t* regions, size_t n);
  /* Write up to n regions to give up, best first; answer how many. Held ones are skipped and offered
   * to touch. */
  size_t (*evict)(void* user, uint32_t* regions, size_t n);
  void (*destroy)(void* user); /* optional; as that of a registrar */
} hydrant_policy_t;

/* ---- domains ---------------------------------------------------------------------------------- */

#define HYDRANT_MODE_DEFAULT 0u /* region; FIREHOSE_MODE may say page for registrars without keys */
#define HYDRANT_MODE_REGION 1u  /* intervals that merge and grow */
#define HYDRANT_MODE_PAGE \
  2u /* fixed buckets of bucket_bytes; a pin of several has one key for each */

#define HYDRANT_WATCH_DEFAULT 0u /* auto, unless FIREHOSE_WATCH says none */
#define HYDRANT_WATCH_CLIENT 1u  /* "I call hydrant_invalidate before memory goes away" */
#define HYDRANT_WATCH_NONE 2u /* only arenas and vouched memory are cached past their last hold */
#define HYDRANT_WATCH_AUTO 3u /* what the kernel, hooks and arenas report; nothing else is cached */

/* Who says that memory goes away: what caching a range gets, see hydrant_coverage(). */
#define HYDRANT_COVERAGE_NONE 0u    /* nobody: pinned while held, not cached */
#define HYDRANT_COVERAGE_CLIENT 1u  /* you, by hydrant_invalidate() */
#define HYDRANT_COVERAGE_VOUCHED 2u /* you, by hydrant_vouch() */
#define HYDRANT_COVERAGE_ARENA 3u   /* its allocator, before it happens: hits are free of checks */
#define HYDRANT_COVERAGE_CHECKED \
  4u /* the kernel; each use asks it for changes under way (0.3 us) */
#define HYDRANT_COVERAGE_WATCHED 5u /* the kernel and the hooks library: hits are free of checks */

/* Zero or NULL in a field means its default. Start from hydrant_domain_options_init(). */
typedef struct hydrant_domain_options {
  size_t size;                /* sizeof(hydrant_domain_options_t) */
  const char* name;           /* for messages; copied, at most 31 bytes */
  const char* registrar_name; /* "uring", "mlock", or "auto" (uring, else mlock); NULL with: */
  const hydrant_registrar_t* registrar; /* your own; copied */
  const hydrant_policy_t* policy;       /* your own; copied. Default: approximate LRU */
  uint32_t mode;                        /* HYDRANT_MODE_* */
  uint32_t watch;                       /* HYDRANT_WATCH_* */
  uint32_t address_kind;                /* HYDRANT_ADDRESS_HOST */
  uint32_t eager_access; /* rights asked for beside what a pin needs, dropped where refused */
  uint64_t
      budget_bytes;     /* most bytes charged at once; default from memlock, cgroup and registrar */
  uint64_t max_regions; /* most regions at once, up to 2^22; default 65536, less by the registrar */
  size_t max_region_bytes; /* largest single region; default: the registrar's */
  size_t bucket_bytes;     /* page mode: power of two, a page or more; default a page */
  size_t merge_bytes;      /* region mode: neighbours merge up to this; default 16 MiB; 1 = never */
  const hydrant_range_t* prepinned;  /* already registered by you, never evicted or unpinned */
  const void* const* prepinned_keys; /* one key per range, copied; NULL if key_bytes is 0 */
  size_t prepinned_count;
  uint32_t prepinned_access; /* 0 means HYDRANT_ACCESS_ALL */
  /* Region mode: requests that follow each other in memory make the next registration longer, doubling up
   * to this, within their mapping, merge_bytes and an eighth of the budget; and where the registrar charges
   * for whole huge pages anyway, they are registered whole. Default 4 MiB, with watch =
   * HYDRANT_WATCH_CLIENT never; 1 = never. */
  size_t stream_bytes;
} hydrant_domain_options_t;

HYDRANT_API void hydrant_domain_options_init_sized(hydrant_domain_options_t* options, size_t size);
static inline void hydrant_domain_options_init(hydrant_domain_options_t* options) {
  hydrant_domain_options_init_sized(options, sizeof *options);
}

/* Creates a domain. FIREHOSE_* environment variables fill fields left at their default (docs/env_vars.md).
 * Errors: BAD_ARG; RESOURCE (memory, descriptors, too many domains: 64 at once); UNSUPPORTED (device
 * addresses, an unknown registrar, one that cannot work on this machine). On failure *domain is unchanged,
 * and a registrar or policy of your own is still yours, whatever failed: its destroy() (in C++:
 * domain_ended()) has not run and will not.
 * Cost: milliseconds. */
HYDRANT_API int hydrant_domain_create(const hydrant_domain_options_t* options,
                                      hydrant_domain_t* domain);

#define HYDRANT_FINI_UNPIN 0u /* unpin everything, held regions included */
#define HYDRANT_FINI_KEEP 1u  /* leave registrations alone: the device is torn down anyway */

/* Ends a domain. No other thread may be inside a call on it; later uses of the handle are errors, later
 * releases of its pins are no-ops that answer NOT_INIT. (They never crash; but once 240 further domains
 * of like max_regions have come and gone, or fewer where RLIMIT_AS leaves no room, a pin's place may
 * serve a new domain, and releasing it is then like releasing twice.) Regions must not be read
 * afterwards. */
HYDRANT_API int hydrant_domain_destroy(hydrant_domain_t domain, uint32_t flags);

/* ---- pins ------------------------------------------------------------------------------------- */

/* Makes [addr, addr+len) usable with `access` until released. The answer is a page-aligned superset.
 *
 * Errors    BAD_ARG (len 0, wrap-around, unknown right); NOT_INIT; RESOURCE (more than the whole budget
 *           or the largest region); NOT_READY (budget is held by others now: poll, release, or copy);
 *           REFUSED (unmapped, read-only for a writing right - with "uring" for any right, because it pins
 *           for writing always -, a right the registrar lacks: remembered for a second, or until
 *           invalidated; page mode: anything of this in the buckets around the range, which must be mapped
 *           whole); BROKEN (the registrar worked and has failed for good).
 * Waits     only for a registration of the same memory that another thread has under way, never for
 *           somebody else's hold.
 * Cost      hit: about 25 instructions, no lock, no shared write, no system call; of memory that is only
 *           "checked" (see hydrant_coverage) some 0.4 us, one system call. Miss: one registration.
 */
HYDRANT_API hydrant_pin_t hydrant_pin(hydrant_domain_t domain, const void* addr, size_t len,
                                      uint32_t access);

/* Takes a hold if the range is pinned already, else NOT_READY. Never registers, never waits. */
HYDRANT_API hydrant_pin_t hydrant_try_pin(hydrant_domain_t domain, const void* addr, size_t len,
                                          uint32_t access);

/* Like hydrant_pin, and waits up to timeout_ns for budget. NOT_READY at the deadline, with a text that
 * says how much is held and how much was wanted. While it waits it deregisters what died, and completes
 * those pin_async requests whose memory is pinned by now; it registers none of them (that is
 * hydrant_poll's), because nothing bounds how long that takes. Nor does the deadline bound the
 * registration of the range itself, once there is budget, or the callbacks that run meanwhile. It runs
 * no other progress: where your own thread would have to poll a network for the holds to end, use
 * hydrant_pin() or hydrant_pin_async(). */
HYDRANT_API hydrant_pin_t hydrant_pin_wait(hydrant_domain_t domain, const void* addr, size_t len,
                                           uint32_t access, uint64_t timeout_ns);

/* Runs from hydrant_poll() or, when the answer is at hand, before hydrant_pin_async() returns; no lock is
 * held, any call is allowed. On success the pin is yours to release. */
typedef void (*hydrant_pinned_fn)(void* context, hydrant_pin_t pin);

/* Like hydrant_pin, but "not now" becomes a later callback. OK: the callback has run or will run exactly
 * once (at hydrant_domain_destroy at the latest, with NOT_INIT). Other codes: it will not run. */
HYDRANT_API int hydrant_pin_async(hydrant_domain_t domain, const void* addr, size_t len,
                                  uint32_t access, hydrant_pinned_fn done, void* context);

/* Pins n ranges, all or none: budget for all of them is reserved before any is registered.
 * pins[i] answers ranges[i]; unchanged on failure. Parts that ranges share count for each. n = 0 is OK.
 * NOT_READY may be answered to several threads that want each other's budget at once: back off. */
HYDRANT_API int hydrant_pin_many(hydrant_domain_t domain, const hydrant_range_t* ranges, size_t n,
                                 uint32_t access, hydrant_pin_t* pins);

/* Takes a hold on the first pinned part of [addr, addr+len): the region that contains the lowest pinned
 * address at or after addr. NOT_READY if nothing of it is pinned. Never registers, never waits. */
HYDRANT_API hydrant_pin_t hydrant_partial_pin(hydrant_domain_t domain, const void* addr, size_t len,
                                              uint32_t access);

/* Gives a hold back; any thread, any order. Calls the registrar's unpin only for the last hold on a region
 * that was invalidated or merged meanwhile, or is not cached. OK, or BAD_ARG/NOT_INIT for a hold that is not
 * live (always noticed in debug builds, best effort otherwise). A hold taken before a fork is a no-op
 * in the child and answers NOT_INIT. */
HYDRANT_API int hydrant_release(hydrant_pin_t pin);
/* Gives n holds back; all are tried, the first error is answered. */
HYDRANT_API int hydrant_release_many(const hydrant_pin_t* pins, size_t n);

/* Page mode: a pin of several buckets has one key per bucket. Answers how many parts a pin has (1 in
 * region mode; 0 if the pin is not live) and describes part i if part is not NULL; all zero if there is no
 * part i. */
HYDRANT_API size_t hydrant_pin_parts(hydrant_pin_t pin, size_t i, hydrant_region_t* part);
/* Bytes at pin.region->key and at the keys of its parts; 0 if the pin is not live. Cost: a look-up. */
HYDRANT_API uint32_t hydrant_pin_key_bytes(hydrant_pin_t pin);

/* ---- coherence -------------------------------------------------------------------------------- */

/* Forgets everything known of [addr, addr+len): when it returns, no hit can find what was registered
 * before the call. Regions that are held stay registered until their last release. Never waits for a hold
 * or for a registration that is under way (that one is dropped when it ends, and done again). */
HYDRANT_API int hydrant_invalidate(hydrant_domain_t domain, const void* addr, size_t len);

/* Answers HYDRANT_COVERAGE_* for [addr, addr+len): who says that it goes away, and so whether and how a
 * pin of it would be cached now. One page that nobody watches, or that is not mapped, makes the whole range
 * NONE. Errors: BAD_ARG, NOT_INIT. Cost: 0.5 us; some 5 us for memory seen for the first time, which the
 * kernel is then asked to watch. */
HYDRANT_API int hydrant_coverage(hydrant_domain_t domain, const void* addr, size_t len,
                                 uint32_t* coverage);
/* "none", "client", "vouched", "arena", "checked", "watched". Never NULL. */
HYDRANT_API const char* hydrant_coverage_name(uint32_t coverage);

/* Promises that the range will not be unmapped or moved without hydrant_invalidate(), so that it may be
 * cached although nothing watches it; in a domain of any kind. */
HYDRANT_API int hydrant_vouch(hydrant_domain_t domain, const void* addr, size_t len);
HYDRANT_API int hydrant_unvouch(hydrant_domain_t domain, const void* addr, size_t len);

/* Deregisters what died while held, retries waiting pin_async requests, runs their callbacks. Answers
 * how many callbacks ran, or minus a status. Cheap when there is nothing to do. */
HYDRANT_API int hydrant_poll(hydrant_domain_t domain);

/* Unpins every region that nobody holds. */
HYDRANT_API int hydrant_flush(hydrant_domain_t domain);

/* ---- keys for others -------------------------------------------------------------------------- */

/* All three: NOT_INIT for a pin or domain that is not live, BAD_ARG for NULL, UNSUPPORTED where the registrar
 * has no such call, and what the registrar answers. */

/* Writes the key of a pin of one part as a blob for another process. *len is the room in, the size out.
 * BAD_ARG if the room is too small: *len then says how much is enough. Several parts: NOT_INIT. */
HYDRANT_API int hydrant_export_key(hydrant_pin_t pin, void* blob, size_t* len);
/* Turns a peer's blob (untrusted: a malformed one is BAD_ARG) into hydrant_key_bytes(domain) at key. */
HYDRANT_API int hydrant_import_key(hydrant_domain_t domain, const void* blob, size_t len,
                                   void* key);
/* Writes a key good for all of memory with these rights (on-demand paging). Unknown rights: BAD_ARG. */
HYDRANT_API int hydrant_implicit_key(hydrant_domain_t domain, uint32_t access, void* key);

/* ---- what it is doing ------------------------------------------------------------------------- */

/* Sums over all threads, dead ones included, read without stopping anyone: each field is exact for a
 * thread at rest and at most a few operations behind for a running one. */
typedef struct hydrant_stats {
  size_t size; /* in: sizeof(hydrant_stats_t) */
  /* per thread */
  uint64_t hits;      /* answered by the calling thread's own table */
  uint64_t refills;   /* hits that looked in the shared table first: all of CHECKED memory do */
  uint64_t misses;    /* pins that had to register */
  uint64_t not_ready; /* answers "not now" */
  uint64_t refusals;  /* answers "refused", remembered or fresh */
  uint64_t waits;     /* times a thread waited for another's registration */
  uint64_t slow_releases;
  /* per domain */
  uint64_t pins, unpins; /* successful registrar calls */
  uint64_t pin_failures; /* registrar calls that failed, for whatever reason */
  uint64_t retries;      /* registrations dropped because the range was invalidated meanwhile */
  uint64_t evictions, merges, invalidations, fences;
  uint64_t live_holds;                                          /* holds not yet released */
  uint64_t regions, pinned_bytes, charged_bytes, pending_bytes; /* now */
  uint64_t dead_regions; /* beside `regions`: no longer hit, but held or not yet deregistered */
  uint64_t budget_bytes, max_regions;                       /* in force now */
  uint64_t threads, thread_table_bytes, shared_table_bytes; /* memory of the tables */
  /* registrations whose unpin call answered BROKEN: dropped, their charge given back, not in `unpins` */
  uint64_t unpin_failures;
  uint64_t extended_bytes; /* registered beyond what was asked for: a stream of misses went there */
  /* of these: unpinned, or given up, before any use of them was seen (hits are not seen: known to 64 KiB) */
  uint64_t wasted_bytes;
} hydrant_stats_t;

HYDRANT_API int hydrant_get_stats(hydrant_domain_t domain, hydrant_stats_t* stats);
/* The registrar's name in force and its key size. Valid until the domain ends. */
HYDRANT_API const char* hydrant_registrar_name(hydrant_domain_t domain);
HYDRANT_API uint32_t hydrant_key_bytes(hydrant_domain_t domain);

/* Moves bytes between [addr, addr+len) and a file at `offset` through the pinned pages themselves (uring
 * only: READ_FIXED, WRITE_FIXED). to_file != 0 writes the file. Errors: UNSUPPORTED (another registrar),
 * NOT_INIT (the pin is not live), BAD_ARG (not inside the pin, a bad descriptor, the file ends), NOT_READY
 * (no progress for 30 s), BROKEN (the I/O failed). */
HYDRANT_API int hydrant_uring_move(hydrant_pin_t pin, const void* addr, size_t len, int fd,
                                   uint64_t offset, int to_file);

#ifdef __cplusplus
}
#endif
#endif
