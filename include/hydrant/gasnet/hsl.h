/* hydrant/gasnet/hsl.h - handler-safe locks, under GASNet-EX's and GASNet-1's names.
 *
 * Hold them briefly, release them in reverse order, and do not poll or send while holding one. A
 * handler releases all before it replies or returns. With GASNET_DEBUG, misuse ends the job with a
 * text. In SEQ mode without GASNET_DEBUG the calls are empty, because handlers run inside the only
 * thread's own calls.
 */
#ifndef HYDRANT_GASNET_HSL_H
#define HYDRANT_GASNET_HSL_H

#include <gasnet_errors.h>
#include <hydrant/gasnet/modes.h>

#include <stdint.h>

HYDRANT_GASNET_BEGIN

typedef struct hydrant_hsl {
  volatile uint32_t state;   /* 0 free, 1 held, 2 held with sleeping waiters */
  uint32_t tag;              /* debug: marks a valid lock */
  void* owner;               /* debug: the holder's thread */
  struct hydrant_hsl* outer; /* debug: the lock that this thread took before */
  uint64_t since;            /* debug: when it was locked, ns */
  uint64_t depth;            /* debug: number of handlers around the lock call */
} gex_HSL_t;
#define HYDRANT_HSL_TAG 0x48534c31U
#define GEX_HSL_INITIALIZER \
  { 0, HYDRANT_HSL_TAG, 0, 0, 0, 0 }

void hydrant_hsl_init(gex_HSL_t* hsl, int debug);
void hydrant_hsl_destroy(gex_HSL_t* hsl, int debug);
void hydrant_hsl_lock(gex_HSL_t* hsl, int debug);
void hydrant_hsl_unlock(gex_HSL_t* hsl, int debug);
int hydrant_hsl_trylock(gex_HSL_t* hsl, int debug);

#ifdef GASNET_DEBUG
#define HYDRANT_HSL_DEBUG 1
#else
#define HYDRANT_HSL_DEBUG 0
#endif
#if defined(GASNET_SEQ) && !defined(GASNET_DEBUG) && !GASNET_HIDDEN_AM_CONCURRENCY_LEVEL
#define HYDRANT_HSL_NOTHING 1
#else
#define HYDRANT_HSL_NOTHING 0
#endif

static inline void gex_HSL_Init(gex_HSL_t* hsl) { hydrant_hsl_init(hsl, HYDRANT_HSL_DEBUG); }
static inline void gex_HSL_Destroy(gex_HSL_t* hsl) { hydrant_hsl_destroy(hsl, HYDRANT_HSL_DEBUG); }
static inline void gex_HSL_Lock(gex_HSL_t* hsl) {
#if HYDRANT_HSL_NOTHING
  (void)hsl;
#else
  hydrant_hsl_lock(hsl, HYDRANT_HSL_DEBUG);
#endif
}
static inline void gex_HSL_Unlock(gex_HSL_t* hsl) {
#if HYDRANT_HSL_NOTHING
  (void)hsl;
#else
  hydrant_hsl_unlock(hsl, HYDRANT_HSL_DEBUG);
#endif
}
/* GASNET_OK if the lock was taken, GASNET_ERR_NOT_READY if another thread holds it. */
static inline int gex_HSL_Trylock(gex_HSL_t* hsl) {
#if HYDRANT_HSL_NOTHING
  (void)hsl;
  return GASNET_OK;
#else
  return hydrant_hsl_trylock(hsl, HYDRANT_HSL_DEBUG);
#endif
}

typedef gex_HSL_t gasnet_hsl_t;
#define GASNET_HSL_INITIALIZER GEX_HSL_INITIALIZER
#define gasnet_hsl_init gex_HSL_Init
#define gasnet_hsl_destroy gex_HSL_Destroy
#define gasnet_hsl_lock gex_HSL_Lock
#define gasnet_hsl_unlock gex_HSL_Unlock
#define gasnet_hsl_trylock gex_HSL_Trylock

HYDRANT_GASNET_END
#endif
