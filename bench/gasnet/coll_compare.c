/* coll_compare.c - collectives and splits of teams among the ranks of a node, to be compiled against any
 * implementation of GASNet-EX and run in turn: docs/collectives.md has the figures of Hydrant and of
 * GASNet's smp-conduit. Not part of the build.
 *
 *   cc -O2 -D_GNU_SOURCE -DGASNET_SEQ=1 coll_compare.c <include and library flags of one> -o coll_compare
 *   GASNET_PSHM_NODES=2 ./coll_compare [PERCENT [heap]]
 *
 * compare.py runs several and prints ratios. Prints medians of 9 repetitions, ns per operation:
 * initiation and wait, the next one behind it. Data are in the segment, or on the heap. "bound" is the least
 * work of a reduction to all of that length: each rank adds its share of two vectors, and writes it once per
 * rank, in its own memory. PERCENT (default 100) scales the rounds, for implementations that need seconds for
 * each.
 */
#include <gasnetex.h>

#include <gasnet_coll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kRepetitions = 9, kHalf = 4 << 20, kScratch = 1 << 16 };

static gex_TM_t team;
static char *source, *dest, *scratch;

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void barrier(size_t bytes) {
  (void)bytes;
  gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
}
static void broadcast(size_t bytes) {
  gex_Event_Wait(gex_Coll_BroadcastNB(team, 0, dest, source, bytes, 0));
}
static void reduce_to_one(size_t bytes) {
  gex_Event_Wait(gex_Coll_ReduceToOneNB(team, 0, dest, source, GEX_DT_I64, 8, bytes / 8, GEX_OP_ADD,
                                        NULL, NULL, 0));
}
static void reduce_to_all(size_t bytes) {
  gex_Event_Wait(gex_Coll_ReduceToAllNB(team, dest, source, GEX_DT_I64, 8, bytes / 8, GEX_OP_ADD,
                                        NULL, NULL, 0));
}
static void bound(size_t bytes) {
  const size_t ranks = gex_TM_QuerySize(team), count = bytes / 8 / ranks;
  for (size_t source_rank = 1; source_rank < ranks; ++source_rank) {
    const long* one = (const long*)source + source_rank * count;
    long* sum = (long*)dest;
    for (size_t i = 0; i < count; ++i) sum[i] = one[i] + ((const long*)source)[i];
  }
  for (size_t other = 1; other < ranks; ++other) memcpy(dest + other * count * 8, dest, count * 8);
  __asm__ volatile("" ::: "memory");
}
static void split(size_t bytes) {
  gex_TM_t made;
  gex_Memvec_t given;
  (void)bytes;
  gex_TM_Split(&made, team, 0, (int)gex_TM_QueryRank(team), scratch, kScratch, 0);
  gex_TM_Destroy(made, &given, 0);
}

static void measure(const char* name, void (*once)(size_t), size_t bytes, int rounds) {
  double ns[kRepetitions];
  for (int r = 0; r < kRepetitions; ++r) {
    barrier(0);
    const double begun = now_ns();
    for (int i = 0; i < rounds; ++i) once(bytes);
    ns[r] = (now_ns() - begun) / rounds;
  }
  qsort(ns, kRepetitions, sizeof *ns, ascending);
  if (gex_TM_QueryRank(team) == 0) {
    printf("%-18s %8zu bytes %12.1f ns\n", name, bytes, ns[kRepetitions / 2]);
    fflush(stdout);
  }
}

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t segment;
  if (gex_Client_Init(&client, &endpoint, &team, "coll_compare", &argc, &argv, 0) != GASNET_OK)
    return 1;
  if (gex_Segment_Attach(&segment, team, 3 * (uintptr_t)kHalf) != GASNET_OK) return 1;
  source = gex_Segment_QueryAddr(segment);
  scratch = source + 2 * (size_t)kHalf;
  if (argc > 2 && strcmp(argv[2], "heap") == 0) source = malloc(2 * (size_t)kHalf);
  if (source == NULL) return 1;
  dest = source + kHalf;
  memset(source, 1, 2 * (size_t)kHalf);
  const int percent = argc > 1 ? atoi(argv[1]) : 100;
#define ROUNDS(n) ((n)*percent / 100 + 1)
  measure("barrier", barrier, 0, ROUNDS(20000));
  measure("reduction to all", reduce_to_all, 8, ROUNDS(20000));
  measure("reduction to all", reduce_to_all, 4096, ROUNDS(2000));
  measure("reduction to all", reduce_to_all, 1 << 20, ROUNDS(20));
  measure("bound", bound, 1 << 20, ROUNDS(200));
  measure("reduction to one", reduce_to_one, 8, ROUNDS(20000));
  measure("broadcast", broadcast, 8, ROUNDS(20000));
  measure("broadcast", broadcast, 4096, ROUNDS(2000));
  measure("broadcast", broadcast, 1 << 20, ROUNDS(50));
  measure("split and destroy", split, 0, ROUNDS(200));
  barrier(0);
  gasnet_exit(0);
}
