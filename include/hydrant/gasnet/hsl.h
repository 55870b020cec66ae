/* hydrant/gasnet/hsl.h - handler-safe locks, under GASNet-EX's and GASNet-1's names.
 *
 * Held briefly, released in the reverse order, never across a poll or a message; a handler releases all
 * before it replies or returns. A debug client's misuse ends the job with a text. In SEQ without GASNET_DEBUG
 * they are nothing: handlers run in the one thread's own calls.
 */
#ifndef HYDRANT_GASNET_HSL_H
#define HYDRANT_GASNET_HSL_H

#include <gasnet_errors.h>
#include <hydrant/gasnet/modes.h>

#include <stdint.h>

HYDRANT_GASNET_BEGIN

typedef struct hydrant_hsl {
  volatile uint32_t state;   /* 0 free, 1 held, 2 held and somebody sleeps */
  uint32_t tag;              /* debug: that it is a lock */
  void* owner;               /* debug: the holder's thread */
  struct hydrant_hsl* outer; /* debug: what this thread locked before */
  uint64_t since;            /* debug: when it was locked, ns */
  uint64_t depth;            /* debug: how many handlers the holder was in */
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
/* GASNET_OK if it is locked now, GASNET_ERR_NOT_READY if somebody else holds it. */
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
