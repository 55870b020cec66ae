/* hydrant/pin_cache.h - a cache of pinned (registered) memory, for authors of network layers.
 *
 * A domain is one cache over one registrar, the component that pins: the kernel, a network card, or the
 * client's own functions. A region is a pinned, page-aligned range with its key. A pin is a hold on a
 * region: the region stays registered while it is held. Regions without holds stay pinned as victims
 * until their budget is needed, so pinning the same memory again costs nanoseconds.
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
 * Coherence: the cache must learn when memory is released. By default (watch = HYDRANT_WATCH_AUTO) it
 * caches only memory with a source of release events: the kernel, the hooks library, or an allocator
 * such as libhydrant_alloc. Other memory is pinned only while it is held. hydrant_coverage() returns
 * the source, which also determines the cost of a hit.
 * The client can be the source: for ranges, with hydrant_vouch(), or for all memory, with watch =
 * HYDRANT_WATCH_CLIENT. Then call hydrant_invalidate() before memory that may be cached is unmapped,
 * moved or hole-punched. Start no pin of it between that call and the return of the system call. With
 * stream_bytes the cache also registers memory beside the pinned ranges: announce all releases.
 *
 * Threads: every function from any thread at any time unless it says otherwise; none is
 * async-signal-safe. A policy's functions must not call any of them. A registrar's functions may call
 * only hydrant_invalidate() and hydrant_set_error_text().
 * Errors: functions return a code of gasnet_errors.h; hydrant_error_text() explains the last failure.
 * GASNET_ERR_NOT_READY means "not now" and is no failure.
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

/* ---- basic types ------------------------------------------------------------------------------ */

/* A domain handle: an index and a generation, never a pointer. 0 is never a domain. A call with a
 * handle after its hydrant_domain_destroy() returns GASNET_ERR_NOT_INIT. */
typedef uint64_t hydrant_domain_t;

/* Access rights, combined with |. Every registration includes local read; 0 requests only local read. */
#define HYDRANT_LOCAL_READ 0u
#define HYDRANT_LOCAL_WRITE 1u
#define HYDRANT_REMOTE_READ 2u
#define HYDRANT_REMOTE_WRITE 4u
#define HYDRANT_REMOTE_ATOMIC 8u
#define HYDRANT_ACCESS_ALL 15u

/* A pinned region. Readable only while a pin on it is held; until then its fields do not change, even
 * if it is merged or invalidated. */
typedef struct hydrant_region {
  uintptr_t addr; /* page-aligned start, <= the requested address */
  size_t len;     /* bytes; [addr, addr+len) contains the requested range */
  /* key_bytes of the registrar, opaque here, aligned to 8 (16 from 16 bytes up). NULL if the registrar has
   * no keys, or the pin has several parts: hydrant_pin_parts(). */
  const void* key;
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
  /* All zero: a pin that was never taken. The implicit conversion below serves both C and C++. */
  if (pin.hold == 0) return GASNET_ERR_NOT_INIT;
  return pin.hold & 0x7fffffff;
}

/* Text of the calling thread's last failure ("" if none); valid until the thread's next failure. */
HYDRANT_API const char* hydrant_error_text(void);
/* "GASNET_ERR_BAD_ARG" and so on; "(unknown status)" for unknown numbers. Never NULL. */
HYDRANT_API const char* hydrant_status_name(int status);

/* Called by the client's registrar before its function fails: the reason, cut at 511 bytes. */
HYDRANT_API void hydrant_set_error_text(const char* text);

/* ---- the registrar interface ------------------------------------------------------------------ */

/* The account that pins are charged to. With PROCESS and USER a part of RLIMIT_MEMLOCK limits the default
 * budget. */
#define HYDRANT_SCOPE_NONE 0u    /* no limit */
#define HYDRANT_SCOPE_PROCESS 1u /* RLIMIT_MEMLOCK of this process (mlock, verbs) */
#define HYDRANT_SCOPE_USER 2u    /* RLIMIT_MEMLOCK of this user, for all processes (io_uring) */
#define HYDRANT_SCOPE_DEVICE 3u  /* a table of the device */

#define HYDRANT_ADDRESS_HOST 0u
#define HYDRANT_ADDRESS_DEVICE 1u /* refused when the domain is created, with a text */

#define HYDRANT_UNPIN_DONE 0    /* undone and no longer charged */
#define HYDRANT_UNPIN_PENDING 1 /* undone, but charged until pending_charge() says otherwise */
/* Unpinning failed. The cache drops the region and returns its charge to the budget, since it can do
 * nothing more. It counts the failure in unpin_failures and logs the range. */
#define HYDRANT_UNPIN_BROKEN 2

/* hydrant_registrar_t.flags: a registration may not outlive its memory, because unpin changes the memory
 * at the address (by madvise, for example). Rules for such a registrar:
 *  - With HYDRANT_WATCH_AUTO and _NONE the cache keeps only memory that waits for unpin: vouched ranges,
 *    and arenas that keep pinned memory (libhydrant_alloc). Other memory is pinned only while it is held,
 *    must not be released meanwhile, and is refused to peers. hydrant_coverage() returns the kind.
 *  - Before the client releases vouched memory, or any memory with HYDRANT_WATCH_CLIENT, it calls
 *    hydrant_invalidate() until that returns OK. From the first of these calls on it begins no pin of this
 *    memory, nor of other parts of its granule or bucket. Calls that pin it and that the domain is serving
 *    then, and those of hydrant_pin_async() that are not answered yet, need no care: the result is NOT_READY
 *    until they have ended and their pins are released. A call that another thread is just entering may not
 *    be seen, and counts as one that begins later. A thread that holds pins of the memory, or is inside a
 *    function of the registrar, must not wait for OK.
 *  - There is no read-ahead, nor for peers. With AUTO and NONE, granules and buckets must be single pages.
 * Live registrations may overlap and repeat, and pin and unpin run concurrently: what is done to the pages
 * themselves is done at a page's first pin and undone at its last unpin, so count them by page. */
#define HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE 1u

/* Completion of pin_async: call it exactly once, from any thread, but not from inside pin_async. */
typedef void (*hydrant_pin_done_fn)(void* context, int status, const void* key);

/* The client's own registration calls. Fill in `size`, the properties and `pin`/`unpin`; leave the rest
 * zero. `user` is passed to every function. The cache calls these functions without a lock, concurrently,
 * from any thread inside one of its calls (a poll may unpin); with HYDRANT_WATCH_AUTO unpin also from a
 * thread of the library. They must not call the domain, except hydrant_invalidate() by a free() inside.
 * Map errno as follows: EFAULT to HYDRANT_ERR_REFUSED; ENOMEM, EAGAIN and a full table to
 * GASNET_ERR_NOT_READY, so that the cache evicts and retries; a device that worked before and has failed to
 * HYDRANT_ERR_BROKEN. The struct is copied at domain creation. */
typedef struct hydrant_registrar {
  size_t size; /* sizeof(hydrant_registrar_t); lets the struct grow */
  void* user;
  const char* name;          /* for messages; copied, at most 31 bytes */
  uint32_t key_bytes;        /* size of a key, 0 to 4096 */
  uint32_t address_kind;     /* HYDRANT_ADDRESS_HOST */
  uint32_t charge_scope;     /* HYDRANT_SCOPE_* */
  uint32_t supported_access; /* 0 means HYDRANT_ACCESS_ALL */
  size_t granule_bytes;      /* allocation unit; 0 means the page size; a power of two */
  size_t max_region_bytes;   /* 0 means no limit */
  uint64_t max_regions;      /* 0 means no limit */
  uint64_t max_charge_bytes; /* 0 means no limit */
  uint32_t divisible;        /* nonzero: a pin may be undone in parts (needs key_bytes == 0) */
  uint32_t export_bytes;     /* largest blob of export_key in bytes, 0 to 65536 */
  uint32_t pin_base_ns, pin_page_ns, unpin_base_ns; /* cost hints; 0 means unknown */

  /* Pins [addr, addr+len) and writes key_bytes to key. Required. Returns GASNET_OK, HYDRANT_ERR_REFUSED
   * (never possible with this right), GASNET_ERR_NOT_READY (no budget now), GASNET_ERR_RESOURCE (never
   * possible at this size), or HYDRANT_ERR_BROKEN (failed permanently). */
  int (*pin)(void* user, uintptr_t addr, size_t len, uint32_t access, void* key);
  /* Undoes one pin. Returns HYDRANT_UNPIN_*. Required. The memory may have been unmapped, and other memory
   * mapped at addr: undo the registration of the key, and change nothing at the address. If the system offers
   * no such call, see HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE. */
  int (*unpin)(void* user, uintptr_t addr, size_t len, const void* key);
  /* Optional: undoes n pins. Returns BROKEN if any could not be undone: all n then count as failed. */
  int (*unpin_many)(void* user, const hydrant_range_t* ranges, const void* const* keys, size_t n);
  /* Optional: bytes charged for pinning this range, if a pin follows or not; the default is len. */
  uint64_t (*charge)(void* user, uintptr_t addr, size_t len);
  /* Optional: bytes unpinned but still charged; the default is 0. */
  uint64_t (*pending_charge)(void* user);
  /* Optional: like pin, or returns GASNET_ERR_NOT_READY and calls `done` later. */
  int (*pin_async)(void* user, uintptr_t addr, size_t len, uint32_t access, void* key,
                   hydrant_pin_done_fn done, void* context);
  /* Optional: writes a live key as a blob for another process, which may use [addr, addr+len): all of the
   * pinned range, or granules of it. *blob_len is the buffer size, then the blob size. If the buffer is too
   * small, return GASNET_ERR_BAD_ARG with the required size in *blob_len. */
  int (*export_key)(void* user, uintptr_t addr, size_t len, const void* key, void* blob,
                    size_t* blob_len);
  /* Optional: converts a peer's blob (untrusted) into a local key. */
  int (*import_key)(void* user, const void* blob, size_t len, void* key);
  /* Optional: writes one key that covers all memory (on-demand paging). */
  int (*implicit_key)(void* user, uint32_t access, void* key);
  /* Optional: runs once in the child of a fork; may make async-signal-safe calls only. */
  void (*forget_in_child)(void* user);
  /* Optional: runs after the domain has ended. Does not run if hydrant_domain_create() failed: the
   * client keeps the registrar. It runs once for each domain that was created with the struct: if it frees
   * what the functions use, each domain needs a registrar of its own. */
  void (*destroy)(void* user);
  /* Optional: a key written by import_key is no longer used. */
  void (*drop_import)(void* user, const void* key);
  uint64_t flags; /* HYDRANT_REGISTRAR_*; unknown bits are an error */
} hydrant_registrar_t;

/* Opens a registrar for a domain that names it: fills *registrar, whose `size` is set and whose other
 * fields are zero, and returns GASNET_OK; or returns an error code and explains it by
 * hydrant_set_error_text(). `argument` is the part behind the colon of a name like "ibv:mlx5_0", or "".
 * The domain calls the registrar's destroy(). */
typedef int (*hydrant_registrar_open_fn)(const char* argument, hydrant_registrar_t* registrar);

/* Adds a registrar that domains can then name (registrar_name). For libraries that bring one, as
 * libfirehose_ibv does; it cannot be removed, so the library that contains `open` stays loaded after
 * dlclose(). Adding the same function again is OK.
 * Errors: BAD_ARG (no name; a name of 16 bytes or more, with a colon, or taken; a null function);
 * RESOURCE (8 have been added). Threads: any, also in constructors before main(). */
HYDRANT_API int hydrant_registrar_add(const char* name, hydrant_registrar_open_fn open);

/* ---- the policy interface --------------------------------------------------------------------- */

/* The client's own choice of victims. Region numbers are small integers, stable while the region
 * exists. All calls hold the domain's lock, so they run one at a time and must be fast, without
 * allocating or calling the domain. The domain requests regions to `watch`. It reports the first use of
 * a watched region before eviction by `touch`. This is a sample, because hits are not counted.
 * In the child of a fork the domain calls `erase` for every region. A signal handler that forks may have
 * interrupted one of these functions, whose half-made changes then persist in the child. */
typedef struct hydrant_policy {
  size_t size; /* sizeof(hydrant_policy_t) */
  void* user;
  void (*insert)(void* user, uint32_t region, size_t len, uint64_t charge);
  void (*touch)(void* user, uint32_t region);
  void (*erase)(void* user, uint32_t region);
  /* Writes up to n regions to watch next; returns their number. */
  size_t (*watch)(void* user, uint32_t* regions, size_t n);
  /* Writes up to n eviction candidates, best first; returns their number. Held regions are skipped and
   * reported to `touch`. */
  size_t (*evict)(void* user, uint32_t* regions, size_t n);
  void (*destroy)(void* user); /* optional; as in hydrant_registrar_t */
} hydrant_policy_t;

/* ---- domains ---------------------------------------------------------------------------------- */

#define HYDRANT_MODE_DEFAULT 0u /* region, or FIREHOSE_MODE for registrars without keys */
#define HYDRANT_MODE_REGION 1u  /* intervals that merge and grow */
#define HYDRANT_MODE_PAGE 2u    /* fixed buckets of bucket_bytes, each with its own key */

#define HYDRANT_WATCH_DEFAULT 0u /* auto, unless FIREHOSE_WATCH is "none" */
#define HYDRANT_WATCH_CLIENT 1u  /* the client calls hydrant_invalidate before it releases memory */
#define HYDRANT_WATCH_NONE 2u /* only arenas and vouched memory stay cached after their last hold */
#define HYDRANT_WATCH_AUTO 3u /* caches only memory with a source of release events */

/* The source of release events for a range, which determines how it is cached; see hydrant_coverage(). */
#define HYDRANT_COVERAGE_NONE 0u    /* no source: pinned while held, not cached */
#define HYDRANT_COVERAGE_CLIENT 1u  /* the client, by hydrant_invalidate() */
#define HYDRANT_COVERAGE_VOUCHED 2u /* the client, by hydrant_vouch() */
#define HYDRANT_COVERAGE_ARENA 3u   /* its allocator, in advance: hits need no check */
#define HYDRANT_COVERAGE_CHECKED 4u /* the kernel; each use queries it for changes (0.3 us) */
#define HYDRANT_COVERAGE_WATCHED 5u /* the kernel and the hooks library: hits need no check */

/* Zero or NULL in a field selects its default. Initialise with hydrant_domain_options_init(). */
typedef struct hydrant_domain_options {
  size_t size;      /* sizeof(hydrant_domain_options_t) */
  const char* name; /* for messages; copied, at most 31 bytes */
  /* "uring", "mlock", "auto" (uring, else mlock), or an added one, such as "ibv" or "ibv:mlx5_0" of
   * libfirehose_ibv; or NULL and: */
  const char* registrar_name;
  const hydrant_registrar_t* registrar; /* the client's own; copied */
  const hydrant_policy_t* policy;       /* the client's own; copied. Default: approximate LRU */
  uint32_t mode;                        /* HYDRANT_MODE_* */
  uint32_t watch;                       /* HYDRANT_WATCH_* */
  uint32_t address_kind;                /* HYDRANT_ADDRESS_HOST */
  uint32_t eager_access;   /* rights added to what a pin needs, dropped where refused */
  uint64_t budget_bytes;   /* most bytes charged at once; default: memlock, cgroup, registrar */
  uint64_t max_regions;    /* most regions at once, up to 2^22; default 65536 or the registrar's */
  size_t max_region_bytes; /* largest single region, bytes; default: the registrar's */
  size_t bucket_bytes;     /* page mode: power of two, a page or more; default a page */
  size_t merge_bytes;      /* region mode: neighbours merge up to this; 1: never; default 16 MiB,
                            * and 256 MiB or half of the budget while that is full but suffices */
  /* Ranges that the client has registered for the lifetime of the domain. They are never evicted,
   * unpinned or re-registered, not even by hydrant_flush() or hydrant_invalidate(). */
  const hydrant_range_t* prepinned;
  const void* const* prepinned_keys; /* one key per range, copied; NULL if key_bytes is 0 */
  size_t prepinned_count;
  uint32_t prepinned_access; /* 0 means HYDRANT_ACCESS_ALL */
  /* Region mode: read-ahead. Misses that follow each other in memory make the next registration longer,
   * doubling up to this size, within their mapping, merge_bytes and an eighth of the budget. If the
   * registrar charges whole huge pages anyway, whole huge pages are registered. Default 4 MiB, but
   * never with watch = HYDRANT_WATCH_CLIENT, nor over the registrar "mlock" unless FIREHOSE_STREAM is set:
   * its unpin would end locks of the program on pages that it has not pinned yet. 1: never. */
  size_t stream_bytes;
} hydrant_domain_options_t;

HYDRANT_API void hydrant_domain_options_init_sized(hydrant_domain_options_t* options, size_t size);
static inline void hydrant_domain_options_init(hydrant_domain_options_t* options) {
  hydrant_domain_options_init_sized(options, sizeof *options);
}

/* Creates a domain. FIREHOSE_* environment variables fill fields left at their default
 * (docs/env_vars.md). On failure *domain is unchanged and the client keeps its registrar and policy:
 * their destroy() (in C++: domain_ended()) does not run.
 * Errors: BAD_ARG; RESOURCE (memory, descriptors, or more than 64 domains at once); UNSUPPORTED (device
 * addresses, an unknown registrar, or a registrar that this machine lacks). Cost: milliseconds. */
HYDRANT_API int hydrant_domain_create(const hydrant_domain_options_t* options,
                                      hydrant_domain_t* domain);

#define HYDRANT_FINI_UNPIN 0u /* unpin everything, held regions included */
#define HYDRANT_FINI_KEEP 1u  /* leave registrations alone: the device is torn down next */

/* Ends a domain. No other thread may be inside a call on it. Afterwards its regions must not be read;
 * uses of the handle are errors, and releases of its pins are no-ops that return NOT_INIT. (Such
 * releases never crash. But after 240 further domains of similar max_regions, or fewer if RLIMIT_AS is
 * tight, a pin's slot may be reused by a new domain. A stale release then acts like a double release.) */
HYDRANT_API int hydrant_domain_destroy(hydrant_domain_t domain, uint32_t flags);

/* ---- pins ------------------------------------------------------------------------------------- */

/* Makes [addr, addr+len) usable with `access` until released. The result is a page-aligned superset.
 *
 * Errors: BAD_ARG (len 0, wrap-around, unknown right); NOT_INIT; RESOURCE (more than the whole budget
 * or the largest region); NOT_READY (other holds use the budget now: poll, release, or copy); BROKEN
 * (the registrar worked and has failed permanently); REFUSED (unmapped, read-only for a writing right,
 * or a right that the registrar lacks). "uring" always pins for writing, so it refuses read-only memory
 * for every right. A refusal is remembered for a second, or until invalidated or flushed. In page mode
 * all buckets that the range touches must be mapped completely.
 * Waits: only for a registration of the same memory in another thread, never for another thread's hold.
 * Cost: a hit takes 33 instructions, without lock, shared write or system call; for memory with
 * coverage "checked" (see hydrant_coverage) about 0.3 us and one system call. A miss costs one
 * registration. */
HYDRANT_API hydrant_pin_t hydrant_pin(hydrant_domain_t domain, const void* addr, size_t len,
                                      uint32_t access);

/* Takes a hold if the range is pinned already, else returns NOT_READY. Never registers, never waits. */
HYDRANT_API hydrant_pin_t hydrant_try_pin(hydrant_domain_t domain, const void* addr, size_t len,
                                          uint32_t access);

/* Like hydrant_pin, but waits up to timeout_ns for budget. At the deadline it returns NOT_READY, with a
 * text that has the bytes held and the bytes requested. While it waits, it deregisters dead
 * regions and completes pin_async requests whose memory is pinned by now. It does not register memory
 * for them (only hydrant_poll does), because a registration takes unbounded time. The deadline also
 * does not bound the registration of the range itself or callbacks that run meanwhile. It makes no
 * network progress: if holds end only after the calling thread polls a network, use hydrant_pin() or
 * hydrant_pin_async(). */
HYDRANT_API hydrant_pin_t hydrant_pin_wait(hydrant_domain_t domain, const void* addr, size_t len,
                                           uint32_t access, uint64_t timeout_ns);

/* Runs from hydrant_poll() or, if the result is available at once, before hydrant_pin_async() returns.
 * Holds no lock; any call is allowed. On success the client must release the pin. */
typedef void (*hydrant_pinned_fn)(void* context, hydrant_pin_t pin);

/* Like hydrant_pin, but instead of returning NOT_READY it calls `done` later. OK: the callback has run
 * or will run exactly once, at the latest in hydrant_domain_destroy (with NOT_INIT). Other codes: never. */
HYDRANT_API int hydrant_pin_async(hydrant_domain_t domain, const void* addr, size_t len,
                                  uint32_t access, hydrant_pinned_fn done, void* context);

/* Pins n ranges, all or none: reserves the budget for all before it registers any. pins[i] is the pin
 * of ranges[i]; unchanged on failure. Memory that ranges share is charged for each. n = 0 is OK.
 * Several threads that want each other's budget may all get NOT_READY: back off. */
HYDRANT_API int hydrant_pin_many(hydrant_domain_t domain, const hydrant_range_t* ranges, size_t n,
                                 uint32_t access, hydrant_pin_t* pins);

/* Takes a hold on the first pinned part of [addr, addr+len): the region that contains the lowest pinned
 * address at or after addr. Returns NOT_READY if no part is pinned. Never registers, never waits. */
HYDRANT_API hydrant_pin_t hydrant_partial_pin(hydrant_domain_t domain, const void* addr, size_t len,
                                              uint32_t access);

/* Releases a hold, on any thread, in any order. Calls the registrar's unpin only for the last hold on a
 * region that was invalidated, merged or not cached. Returns OK, or BAD_ARG/NOT_INIT for a hold that is
 * not live (always detected in builds with HYDRANT_TICKETS, best effort otherwise). In the child of a fork,
 * releasing the parent's hold is a no-op that returns NOT_INIT. */
HYDRANT_API int hydrant_release(hydrant_pin_t pin);
/* Releases n holds. Tries all; returns the first error. */
HYDRANT_API int hydrant_release_many(const hydrant_pin_t* pins, size_t n);

/* Page mode: a pin of several buckets has one key per bucket. Returns the number of parts (1 in region
 * mode; 0 if the pin is not live). Describes part i if `part` is not NULL; all zero without one. */
HYDRANT_API size_t hydrant_pin_parts(hydrant_pin_t pin, size_t i, hydrant_region_t* part);
/* Bytes at pin.region->key and at the keys of its parts; 0 if the pin is not live. Cost: a table lookup. */
HYDRANT_API uint32_t hydrant_pin_key_bytes(hydrant_pin_t pin);

/* ---- coherence -------------------------------------------------------------------------------- */

/* Forgets every registration that has a byte of [addr, addr+len), as a whole: regions are whole pages (page
 * mode: buckets) and may be longer than the range. After it returns, no hit finds a registration made before
 * the call. Regions without a hold are unpinned, those included that a larger one had replaced; held ones
 * stay registered until their last release. Prepinned ranges are passed over: the next pin in one is a hit,
 * with the client's key. `len` is in bytes; a range that reaches the top of the address space is cut there,
 * so (NULL, SIZE_MAX) is all memory.
 * Errors: BAD_ARG (len 0, wrap-around); NOT_INIT; NOT_READY, all forgotten, but the memory must stay for now,
 * call again later:
 *  - With HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE: part of it is held, or another call is pinning or unpinning
 *    it, or waits to (hydrant_pin_async()). OK means that nothing of the range is registered any more, except
 *    prepinned ranges and what unpin failed to undo, and that no call begun before will register it.
 *  - With "mlock": another thread has been unpinning part of it for 10 s.
 * Threads: any, several at once, and beside pins. Waits for no hold, nor for a registration under way, which
 * is dropped and repeated (with the flag: kept); with "mlock" for unpins of the range in other threads.
 * Cost: under 1 us, a fence between threads (some microseconds) if anything was registered, unpin for each
 * region, and a few nanoseconds for each region in stats.dead_regions. */
HYDRANT_API int hydrant_invalidate(hydrant_domain_t domain, const void* addr, size_t len);

/* Writes HYDRANT_COVERAGE_* for [addr, addr+len): the source of release events, which determines
 * whether and how a pin would be cached now. One page without a source, or not mapped, makes the whole
 * range NONE.
 * Errors: BAD_ARG, NOT_INIT. Cost: 0.5 us; about 5 us for memory seen for the first time, which the
 * kernel is then requested to watch. */
HYDRANT_API int hydrant_coverage(hydrant_domain_t domain, const void* addr, size_t len,
                                 uint32_t* coverage);
/* "none", "client", "vouched", "arena", "checked", "watched". Never NULL. */
HYDRANT_API const char* hydrant_coverage_name(uint32_t coverage);

/* Promises to call hydrant_invalidate() before any of [addr, addr+len) is unmapped, moved or punched. The
 * range may then be cached although no source reports its release, in a domain of any kind. `len` is in
 * bytes. Rounded out to pages (page mode: buckets): the promise is for the neighbours in them, too. Ranges
 * may overlap and touch, and are joined; a promise is not counted. hydrant_invalidate() does not end it.
 * Memory that is already cached on another source's word stays so.
 * Errors: BAD_ARG (len 0, wrap-around); NOT_INIT; RESOURCE (more than 65536 separate ranges).
 * Threads: any, several at once, and beside pins. Waits for nothing.
 * Cost: under 1 us, and a move of the ranges behind it in a table, 16 bytes each. */
HYDRANT_API int hydrant_vouch(hydrant_domain_t domain, const void* addr, size_t len);
/* Ends the promise for a range, which may be part of one or several, or of none; rounded as by
 * hydrant_vouch(). Then calls hydrant_invalidate() and returns its result. After NOT_READY the promise has
 * ended all the same: call hydrant_invalidate() again before the memory is released.
 * Errors: RESOURCE (the rest of a divided range has no room: the promise stays, nothing is invalidated);
 * else as hydrant_invalidate(), as are threads and cost. */
HYDRANT_API int hydrant_unvouch(hydrant_domain_t domain, const void* addr, size_t len);

/* Deregisters dead regions without a hold, those of all memory that the caller has released included;
 * retries waiting pin_async requests and runs their callbacks. Returns the number of callbacks that ran,
 * or minus a status. Cheap when no work is pending. */
HYDRANT_API int hydrant_poll(hydrant_domain_t domain);

/* Unpins every region without a hold. */
HYDRANT_API int hydrant_flush(hydrant_domain_t domain);

/* ---- keys for other processes ----------------------------------------------------------------- */

/* All three: NOT_INIT for a pin or domain that is not live, BAD_ARG for NULL, UNSUPPORTED if the
 * registrar lacks the call, else the registrar's result. */

/* Writes the key of a pin of one part as a blob for another process. *len is the buffer size, then the
 * blob size. BAD_ARG if the buffer is too small: *len is then the required size. A pin of several
 * parts: NOT_INIT. */
HYDRANT_API int hydrant_export_key(hydrant_pin_t pin, void* blob, size_t* len);
/* Converts a peer's blob (untrusted; BAD_ARG if malformed) into a key of hydrant_key_bytes(domain). */
HYDRANT_API int hydrant_import_key(hydrant_domain_t domain, const void* blob, size_t len,
                                   void* key);
/* Writes a key valid for all memory with these rights (on-demand paging). Unknown rights: BAD_ARG. */
HYDRANT_API int hydrant_implicit_key(hydrant_domain_t domain, uint32_t access, void* key);

/* ---- statistics ------------------------------------------------------------------------------- */

/* Sums over all threads, ended ones included, read without stopping any thread. Each field is exact for
 * a thread at rest and at most a few operations behind for a running thread. */
typedef struct hydrant_stats {
  size_t size; /* in: sizeof(hydrant_stats_t) */
  /* per thread */
  uint64_t hits;      /* found in the calling thread's own table */
  uint64_t refills;   /* hits found in the shared table: all hits of CHECKED memory */
  uint64_t misses;    /* pins that had to register */
  uint64_t not_ready; /* pins that returned NOT_READY */
  uint64_t refusals;  /* pins that returned REFUSED, remembered or fresh */
  uint64_t waits;     /* times a thread waited for another thread's registration */
  uint64_t slow_releases;
  /* per domain */
  uint64_t pins, unpins; /* successful registrar calls */
  uint64_t pin_failures; /* registrar calls that failed, for any reason */
  uint64_t retries;      /* registrations dropped because the range was invalidated meanwhile */
  uint64_t evictions, merges, invalidations, fences;
  uint64_t live_holds;                                          /* holds not yet released */
  uint64_t regions, pinned_bytes, charged_bytes, pending_bytes; /* now */
  uint64_t dead_regions; /* not in `regions`: invalidated, but held or not yet deregistered */
  uint64_t budget_bytes, max_regions;                       /* in force now */
  uint64_t threads, thread_table_bytes, shared_table_bytes; /* memory of the tables */
  /* Registrations whose unpin call returned BROKEN: dropped, their charge returned, not in `unpins`. */
  uint64_t unpin_failures;
  uint64_t extended_bytes; /* registered beyond the requests, as read-ahead */
  /* Part of extended_bytes: unpinned or discarded before any observed use (hits are not observed;
   * granularity 64 KiB). */
  uint64_t wasted_bytes;
  /* Part of `refills`: hits of CHECKED memory, each of which queried the kernel (see hydrant_coverage()). */
  uint64_t checked_hits;
  /* For the whole process: the number of releases that the hooks missed while hits needed no check; and
   * 1 if watched memory counts as CHECKED, since such a miss or because of FIREHOSE_HITS=checked. */
  uint64_t raw_releases, hits_are_checked;
  /* Bytes whose last unpin over the registrar "mlock" left them locked, because the program may have locked
   * them: before their first pin, or by mlockall(). Counted again each time. */
  uint64_t left_locked_bytes;
} hydrant_stats_t;

HYDRANT_API int hydrant_get_stats(hydrant_domain_t domain, hydrant_stats_t* stats);
/* The name of the active registrar and its key size in bytes. Valid until the domain ends. */
HYDRANT_API const char* hydrant_registrar_name(hydrant_domain_t domain);
HYDRANT_API uint32_t hydrant_key_bytes(hydrant_domain_t domain);

/* Moves bytes between [addr, addr+len) and a file at `offset` through the pinned pages (uring only:
 * READ_FIXED, WRITE_FIXED). to_file != 0 writes the file.
 * Errors: UNSUPPORTED (another registrar), NOT_INIT (the pin is not live), BAD_ARG (not inside the pin,
 * a bad descriptor, end of file), NOT_READY (no progress for 30 s), BROKEN (the I/O, or io_uring_enter(),
 * failed). The kernel does not touch the memory after an error, unless the program has closed
 * the ring (BROKEN). */
HYDRANT_API int hydrant_uring_move(hydrant_pin_t pin, const void* addr, size_t len, int fd,
                                   uint64_t offset, int to_file);

#ifdef __cplusplus
}
#endif
#endif
