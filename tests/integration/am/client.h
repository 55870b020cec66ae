/* Shared by the cases of core_client.c: the job's objects, checks, and the address of each rank's
 * memory. */
#ifndef CLIENT_H
#define CLIENT_H

#include <gasnet.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 8
#define SEGMENT_BYTES (2u << 20)
#define AREA_BYTES ((size_t)128 << 10) /* of each sender, in the segment of a receiver */

extern gex_TM_t team;
extern gex_EP_t endpoint;
extern gex_Client_t client;
extern gex_Rank_t me, size;
extern char* segment[MAX_RANKS]; /* addresses in their owners */

/* A failed check ends the job with code 99. */
#define CHECK(cond)                                                                             \
  do {                                                                                          \
    if (!(cond)) {                                                                              \
      fprintf(stderr, "rank %u: %s:%d: FAILED: %s\n", (unsigned)me, __FILE__, __LINE__, #cond); \
      gasnet_exit(99);                                                                          \
    }                                                                                           \
  } while (0)

#define BARRIER() CHECK(gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED) == GASNET_OK)

static inline unsigned char pattern_at(size_t i, unsigned seed) {
  return (unsigned char)(i * 7 + seed);
}
static inline void fill(void* to, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; ++i) ((unsigned char*)to)[i] = pattern_at(i, seed);
}
static inline int holds(const void* at, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; ++i) {
    if (((const unsigned char*)at)[i] != pattern_at(i, seed)) return 0;
  }
  return 1;
}
/* The area in the segment of `to` where `from` may write. */
static inline char* area(gex_Rank_t to, gex_Rank_t from, int is_reply) {
  return segment[to] + (from * 2 + (is_reply ? 1 : 0)) * AREA_BYTES;
}

void test_arities(void);
void test_sizes(void);
void test_negotiated(void);
void test_flood(void);
void test_threads(void);
void test_turns(void);
void test_once(void);
void test_diagnostics(const char* which);
void test_each_name(void);
void test_handler_waits(const char* which);
void test_prepared(const char* what);
void test_segments(void);
void test_publish(void);
void test_exit(const char* how);
void test_locks(void);
void test_lock_misuse(const char* what);
void test_intruder(const char* how, const char* what);
void test_cancelled(void);
void test_overrun(const char* op, const char* end, size_t reach, size_t from);
void test_overrun_caught(const char* when);
void test_outside(const char* op);
void test_lazy_segment(uintptr_t bytes);
void test_lazy_stream(uintptr_t bytes);
void test_all_touched(uintptr_t bytes);
void test_attach_again(uintptr_t bytes, gex_Rank_t odd, const char* lacks);

#endif
