/* vis_compare.c - strided and indexed puts and gets between two ranks, to be compiled against any
 * implementation of GASNet-EX. docs/vis.md has figures. Not part of the build.
 *
 *   cc -O2 -D_GNU_SOURCE -DGASNET_SEQ=1 vis_compare.c <include and library flags of one> -o vis_compare
 *   GASNET_PSHM_NODES=2 ./vis_compare
 *   HYDRANT_INJECT=delay=2us,bandwidth=10G GASNET_PSHM_NODES=2 ./vis_compare
 *
 * Prints medians of 9 repetitions, ns per operation that blocks. "halo" is a column of 8-byte elements of a
 * matrix, "transpose" a matrix of them, "loop" the same work by a hand-written loop where the peer's memory
 * is mapped. "put of N" and "get of N" move 256 KiB in scattered pieces of N bytes, indexed;
 * "contiguous" in one piece.
 */
#include <gasnetex.h>

#include <gasnet_coll.h>
#include <gasnet_vis.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kRepetitions = 9, kEdge = 512, kBytes = 256 << 10, kSegment = 8 << 20 };

static gex_TM_t team;
static char *mine, *peers, *mapped;
static void *near[kBytes / 8], *far[kBytes / 8];
static size_t piece;

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void halo(void) {
  const ptrdiff_t strides[1] = {kEdge * 8};
  const size_t count[1] = {kEdge};
  gex_VIS_StridedPutBlocking(team, 1, peers, strides, mine, strides, 8, count, 1, 0);
}
static void halo_loop(void) {
  for (size_t i = 0; i < kEdge; ++i)
    *(volatile double*)(mapped + i * kEdge * 8) = *(double*)(mine + i * kEdge * 8);
}
static void transpose(void) {
  const ptrdiff_t rows[2] = {8, kEdge * 8};
  const ptrdiff_t columns[2] = {kEdge * 8, 8};
  const size_t count[2] = {kEdge, kEdge};
  gex_VIS_StridedPutBlocking(team, 1, peers, columns, mine, rows, 8, count, 2, 0);
}
static void transpose_loop(void) {
  for (size_t i = 0; i < kEdge; ++i)
    for (size_t j = 0; j < kEdge; ++j)
      *(volatile double*)(mapped + (j * kEdge + i) * 8) = *(double*)(mine + (i * kEdge + j) * 8);
}
static void put_contiguous(void) { gex_RMA_PutBlocking(team, 1, peers, mine, kBytes, 0); }
static void get_contiguous(void) { gex_RMA_GetBlocking(team, mine, 1, peers, kBytes, 0); }
static void put_pieces(void) {
  gex_VIS_IndexedPutBlocking(team, 1, kBytes / piece, far, piece, kBytes / piece, near, piece, 0);
}
static void get_pieces(void) {
  gex_VIS_IndexedGetBlocking(team, kBytes / piece, near, piece, 1, kBytes / piece, far, piece, 0);
}

static double measure(void (*call)(void)) {
  double samples[kRepetitions];
  size_t rounds = 1;
  for (double took = 0; took < 2e6; rounds *= 2) {
    const double start = now_ns();
    for (size_t i = 0; i < rounds; ++i) call();
    took = now_ns() - start;
  }
  for (int r = 0; r < kRepetitions; ++r) {
    const double start = now_ns();
    for (size_t i = 0; i < rounds; ++i) call();
    samples[r] = (now_ns() - start) / (double)rounds;
  }
  qsort(samples, kRepetitions, sizeof *samples, ascending);
  return samples[kRepetitions / 2];
}
static double row(const char* name, void (*call)(void), double beside) {
  const double ns = measure(call);
  printf("%-20s %10.1f ns", name, ns);
  if (beside > 0) printf("  %6.2f of its floor", beside / ns);
  printf("\n");
  return ns;
}

static void lay_out(size_t bytes) {
  piece = bytes;
  for (size_t i = 0; i < kBytes / bytes; ++i) {
    near[i] = mine + i * bytes * 2;
    far[i] = peers + i * bytes * 2;
  }
}

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t ep;
  gex_Segment_t segment;
  void *owner = NULL, *here = NULL;
  uintptr_t bytes = 0;
  if (gex_Client_Init(&client, &ep, &team, "vis_compare", &argc, &argv, 0) != GASNET_OK) return 2;
  if (gex_Segment_Attach(&segment, team, kSegment) != GASNET_OK) return 2;
  gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
  if (gex_TM_QuerySize(team) != 2) return 2;
  mine = (char*)gex_Segment_QueryAddr(segment);
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, 1, &owner, &here, &bytes, 0));
  peers = (char*)owner;
  mapped = (char*)here;
  for (size_t i = 0; i < kSegment; ++i) mine[i] = (char)i;
  gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
  if (gex_TM_QueryRank(team) == 0) {
    row("halo", halo, mapped != NULL ? row("halo loop", halo_loop, 0) : 0);
    row("transpose", transpose, mapped != NULL ? row("transpose loop", transpose_loop, 0) : 0);
    const double put = row("put contiguous", put_contiguous, 0);
    const double get = row("get contiguous", get_contiguous, 0);
    for (size_t each = 8; each <= 16384; each *= 2) {
      char name[32];
      lay_out(each);
      snprintf(name, sizeof name, "put of %zu", each);
      row(name, put_pieces, put);
      snprintf(name, sizeof name, "get of %zu", each);
      row(name, get_pieces, get);
    }
  }
  /* The target polls, as a program that communicates does. */
  if (gex_TM_QueryRank(team) == 0) {
    mine[0] = 77;
    gex_RMA_PutBlocking(team, 1, peers + kSegment - 1, mine, 1, 0);
  } else {
    volatile char* end = mine + kSegment - 1;
    while (*end != 77) gasnet_AMPoll();
  }
  gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
  gasnet_exit(0);
  return 0;
}
