/* hydrant/ibv_registrar.h - a registrar for pin caches over libibverbs (libfirehose_ibv).
 *
 * It registers memory with ibv_reg_mr() in a protection domain. The cache (hydrant/pin_cache.h) then
 * answers repeated pins of the same memory from its tables: a hit returns the lkey and the rkey of a
 * registration that exists.
 *
 *     hydrant_registrar_t registrar;
 *     if (hydrant_ibv_registrar_create(pd, NULL, &registrar) != GASNET_OK) ... hydrant_error_text() ...
 *     hydrant_domain_options_t options;
 *     hydrant_domain_options_init(&options);
 *     options.registrar = &registrar;
 *     hydrant_domain_t domain;
 *     if (hydrant_domain_create(&options, &domain) != GASNET_OK) {
 *       hydrant_ibv_registrar_destroy(&registrar);
 *       ...
 *     }
 *     hydrant_pin_t pin = hydrant_pin(domain, buffer, length, HYDRANT_LOCAL_WRITE);
 *     if (pin.region) {
 *       sge.lkey = hydrant_ibv_key(pin)->lkey;
 *       ... post a work request, await its completion ...
 *       hydrant_release(pin);
 *     }
 *
 * A program that links libfirehose_ibv can also name the registrar: options.registrar_name = "ibv" (the
 * first device that opens) or "ibv:mlx5_0". The protection domain is then hydrant_ibv_key(pin)->mr->pd.
 *
 * Objects of verbs: the registrar creates memory regions alone. A domain destroys its regions at the
 * latest in hydrant_domain_destroy(); only then can the client destroy its protection domain
 * (ibv_dealloc_pd() returns EBUSY while it has regions). Release a pin only when the work requests that
 * use its keys have completed. Several domains may use one protection domain, and a process may have
 * domains over several devices. Each domain needs a registrar of its own, because it destroys it at its
 * end: pins of another domain over it are BROKEN from then on, and its regions stay registered.
 *
 * Limits: each page of each registration is charged to RLIMIT_MEMLOCK of the process (CAP_IPC_LOCK lifts
 * it). The registrar reads that limit and the device's when it is created; a domain's default budget
 * follows from them. Failures of ibv_reg_mr() as results of a pin: EFAULT, EINVAL and EOPNOTSUPP are
 * REFUSED (unmapped, read-only for a right that writes, or memory that cannot be pinned for long);
 * ENOMEM and EAGAIN are NOT_READY, at which the cache evicts and tries again; EPERM and others are
 * BROKEN. hydrant_error_text() has the operation, the errno and the remedy.
 *
 * Fork: while the fork protection of libibverbs is active (ibv_fork_init(), RDMAV_FORK_SAFE) on a kernel
 * that does not copy pinned pages at a fork, the registrar sets HYDRANT_REGISTRAR_UNPIN_BEFORE_RELEASE.
 * Call ibv_fork_init() before the registrar is created; the first registration warns of a later call. In
 * the child of a fork, with a domain or without, pins are BROKEN if the client gave the protection domain; a
 * registrar that opened its device opens it again.
 *
 * Descriptors: of a protection domain that the client gave, the registrar reads the context, and compares
 * the command descriptor by device and inode before each call: pins are BROKEN if the program has closed
 * it. A device that the registrar opened has descriptors of the library's, whose signal (F_SETSIG) is a
 * mark.
 *
 * Threads: every function from any thread at any time unless it says otherwise; none is async-signal-safe.
 * C99 and C++. Includes no header of verbs: include <infiniband/verbs.h> for the types of the fields.
 */
#ifndef HYDRANT_IBV_REGISTRAR_H
#define HYDRANT_IBV_REGISTRAR_H

#include <hydrant/pin_cache.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_mr;
struct ibv_pd;

/* The key of a region. Constant while a pin of the region is held. A key that was imported from a peer
 * has only the rkey; mr is then NULL. */
typedef struct hydrant_ibv_key_s {
  struct ibv_mr* mr; /* belongs to the registrar */
  uint32_t lkey;
  uint32_t rkey;
} hydrant_ibv_key_t;

/* The key of a pin, in host byte order; NULL without a region, and for a page-mode pin of several
 * parts, whose keys hydrant_pin_parts() returns. Only for domains over this registrar. */
static inline const hydrant_ibv_key_t* hydrant_ibv_key(hydrant_pin_t pin) {
#ifdef __cplusplus
  return pin.region ? static_cast<const hydrant_ibv_key_t*>(pin.region->key) : NULL;
#else
  return pin.region ? (const hydrant_ibv_key_t*)pin.region->key : NULL;
#endif
}

/* hydrant_ibv_options_t.flags */
/* The device may reorder its writes to memory (IBV_ACCESS_RELAXED_ORDERING), which is faster on some
 * machines: only a completion then shows that earlier writes are visible. No effect on devices without
 * it. */
#define HYDRANT_IBV_RELAXED_ORDERING 1u
/* Registrations pin no memory: the device faults pages in (IBV_ACCESS_ON_DEMAND). Nothing is charged to
 * RLIMIT_MEMLOCK; the first access to a page is slower. UNSUPPORTED on devices without it. */
#define HYDRANT_IBV_ON_DEMAND 2u
/* All memory that is pinned lies in huge pages of hugetlbfs (IBV_ACCESS_HUGETLB). Ranges are rounded
 * out to whole ones, which takes fewer entries of the device's tables. Other memory may be REFUSED. A pin
 * is RESOURCE if the budget is less than a huge page. While fork protection is active, only domains with
 * HYDRANT_WATCH_CLIENT can be created over it. */
#define HYDRANT_IBV_HUGE_PAGES 4u

/* Zero in a field selects its default. Initialise with hydrant_ibv_options_init(). */
typedef struct hydrant_ibv_options {
  size_t size;    /* sizeof(hydrant_ibv_options_t) */
  uint32_t flags; /* HYDRANT_IBV_*; unknown bits are an error */
  /* The part of RLIMIT_MEMLOCK that the client registers itself, which the cache then leaves alone. If that
   * is all of it, a domain's default budget is one page. */
  uint64_t reserve_bytes;
} hydrant_ibv_options_t;

static inline void hydrant_ibv_options_init(hydrant_ibv_options_t* options) {
  options->size = sizeof *options;
  options->flags = 0;
  options->reserve_bytes = 0;
}

/* Fills *registrar with a registrar over `pd`, which stays the client's and must outlive it. `options`
 * may be NULL.
 * Errors: BAD_ARG (pd or registrar is NULL, options are invalid); UNSUPPORTED (the device does not
 * answer, or lacks an option); RESOURCE (memory; 256 registrars of a process are live). *registrar is
 * unchanged then. Cost: one query of the device, some microseconds. */
HYDRANT_API int hydrant_ibv_registrar_create(struct ibv_pd* pd,
                                             const hydrant_ibv_options_t* options,
                                             hydrant_registrar_t* registrar);

/* The same over a protection domain of its own on the device `device_name`, or on the first that opens
 * if that is NULL or "".
 * Errors: as above; UNSUPPORTED also without such a device. Cost: milliseconds. */
HYDRANT_API int hydrant_ibv_registrar_open(const char* device_name,
                                           const hydrant_ibv_options_t* options,
                                           hydrant_registrar_t* registrar);

/* Destroys a registrar that no domain took over: after a failed hydrant_domain_create(), or without
 * one. A domain that was created needs its registrar, and destroys it itself at its end. Clears
 * *registrar; without any other effect if the registrar was destroyed. No other call may use it meanwhile.
 * In the child of a fork it leaves the parent's objects alone. */
HYDRANT_API void hydrant_ibv_registrar_destroy(hydrant_registrar_t* registrar);

/* The protection domain of a registrar that was created or opened here, and is not destroyed; NULL
 * otherwise, and in the child of a fork until its first pin. */
HYDRANT_API struct ibv_pd* hydrant_ibv_pd(const hydrant_registrar_t* registrar);

/* IBV_ACCESS_* flags of a registration with the rights `access` (HYDRANT_*), and the rights that a
 * registration with such flags has. Verbs demand the local right to write with remote rights to write
 * and of atomics. Unknown bits are ignored. */
HYDRANT_API unsigned hydrant_ibv_access_flags(uint32_t access);
HYDRANT_API uint32_t hydrant_ibv_access_rights(unsigned flags);

/* Registers device memory (of a GPU, for example) that its driver exports as a dma-buf: `len` bytes
 * from `offset` of the buffer behind `fd`, which may be closed afterwards. Work requests and peers
 * address it as [addr, addr+len), which the client chooses. All values are multiples of the page size.
 * The cache does not know of it: deregister it before the memory goes away. The registrar's options have
 * no effect on it.
 * Errors: BAD_ARG (invalid descriptor, offset or length; a range that wraps around; a registrar of
 * another kind, or a destroyed one); UNSUPPORTED
 * (registrar, kernel or driver lack dma-bufs: the text names what is needed); else as a pin. *key is
 * unchanged then. Nothing is charged to RLIMIT_MEMLOCK. Cost: one registration. */
HYDRANT_API int hydrant_ibv_register_dmabuf(const hydrant_registrar_t* registrar, int fd,
                                            uint64_t offset, uintptr_t addr, size_t len,
                                            uint32_t access, hydrant_ibv_key_t* key);
/* Deregisters it and clears *key. Before the registrar's end: afterwards only ibv_dereg_mr(key->mr) can.
 * Errors: BAD_ARG (a registrar of another kind; a key that hydrant_ibv_register_dmabuf() has not made
 * by this registrar in this process, or of a dma-buf that was deregistered); BROKEN: it is still
 * registered. */
HYDRANT_API int hydrant_ibv_deregister_dmabuf(const hydrant_registrar_t* registrar,
                                              hydrant_ibv_key_t* key);

#ifdef __cplusplus
}
#endif

#endif
