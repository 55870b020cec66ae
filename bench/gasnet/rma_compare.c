/* rma_compare.c - Puts and gets between two ranks of a node, to be compiled against any implementation
 * of GASNet-EX and run in turn: docs/decisions/0020-put-get.md has the figures of Hydrant and of
 * GASNet's smp-conduit. Not part of the build.
 *
 *   cc -O2 -D_GNU_SOURCE -DGASNET_SEQ=1 rma_compare.c <include and library flags of one> -o rma_compare
 *   GASNET_PSHM_NODES=2 ./rma_compare [ROUNDS [ROW]]
 *
 * Prints medians of 11 repetitions of all rows, in ns per operation; for copies between the segments also
 * a memcpy of the same bytes, taken in turn, and the median of the ratios. ROW: only rows of that name,
 * without repetitions, for counting instructions. Rank 0 works, rank 1 waits in a barrier; each is bound to
 * a processor.
 */
#include <gasnetex.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kRepetitions = 11, kBatch = 256, kRows = 64 };
#define LARGEST ((size_t)16 << 20)

static gex_TM_t team;
static gex_Rank_t peer;
static char *theirs, *mine; /* segments: the peer's, at its own address, and this rank's */
static char* mapped;        /* the peer's segment as mapped in this process */
static volatile uint64_t sink;
static volatile size_t hidden_bytes;

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Separate functions, so that their instructions can be counted. bytes: for rows of variable size. */
#define LOOP(name, body)                                                  \
  static __attribute__((noinline)) void name(size_t bytes, long rounds) { \
    const gex_TM_t tm = team;                                             \
    const gex_Rank_t rank = peer;                                         \
    char *const to = theirs, *const from = mine, *const seen = mapped;    \
    long i;                                                               \
    (void)bytes, (void)tm, (void)rank, (void)to, (void)from, (void)seen;  \
    for (i = 0; i < rounds; ++i) {                                        \
      body;                                                               \
    }                                                                     \
  }
LOOP(empty_loop, __asm__ volatile("" ::: "memory"))
LOOP(put_8, gex_RMA_PutBlocking(tm, rank, to, from, 8, 0))
LOOP(get_8, gex_RMA_GetBlocking(tm, from, rank, to, 8, 0))
LOOP(put_val_8, gex_RMA_PutBlockingVal(tm, rank, to, (gex_RMA_Value_t)i, 8, 0))
LOOP(get_val_8, sink = gex_RMA_GetBlockingVal(tm, rank, to, 8, 0))
LOOP(put_64, gex_RMA_PutBlocking(tm, rank, to, from, 64, 0))
LOOP(get_64, gex_RMA_GetBlocking(tm, from, rank, to, 64, 0))
LOOP(put_nb_8, gex_Event_Wait(gex_RMA_PutNB(tm, rank, to, from, 8, GEX_EVENT_NOW, 0)))
LOOP(get_nb_8, gex_Event_Wait(gex_RMA_GetNB(tm, from, rank, to, 8, 0)))
LOOP(put_nbi_8_wait, gex_RMA_PutNBI(tm, rank, to, from, 8, GEX_EVENT_NOW, 0);
     gex_NBI_Wait(GEX_EC_PUT, 0))
LOOP(get_nbi_8_wait, gex_RMA_GetNBI(tm, from, rank, to, 8, 0); gex_NBI_Wait(GEX_EC_GET, 0))
LOOP(put_nbi_8, gex_RMA_PutNBI(tm, rank, to, from, 8, GEX_EVENT_NOW, 0);
     if (i % kBatch == 0) gex_NBI_Wait(GEX_EC_PUT, 0))
LOOP(get_nbi_8, gex_RMA_GetNBI(tm, from, rank, to, 8, 0);
     if (i % kBatch == 0) gex_NBI_Wait(GEX_EC_GET, 0))
LOOP(put_any, gex_RMA_PutBlocking(tm, rank, to, from, bytes, 0))
LOOP(get_any, gex_RMA_GetBlocking(tm, from, rank, to, bytes, 0))
LOOP(put_nbi_any, gex_RMA_PutNBI(tm, rank, to, from, bytes, GEX_EVENT_NOW, 0);
     if (i % kBatch == 0) gex_NBI_Wait(GEX_EC_PUT, 0))
LOOP(copy_there, memcpy(seen, from, bytes); __asm__ volatile("" ::: "memory"))
LOOP(copy_here, memcpy(from, seen, bytes); __asm__ volatile("" ::: "memory"))

struct row {
  const char* name;
  size_t bytes;
  void (*run)(size_t bytes, long rounds);
  void (*floor)(size_t bytes, long rounds);
  double ns[kRepetitions], floor_ns[kRepetitions], ratio[kRepetitions];
};
static struct row rows[kRows] = {
    {.name = "empty_loop", .bytes = 8, .run = empty_loop},
    {.name = "put_8", .bytes = 8, .run = put_8},
    {.name = "get_8", .bytes = 8, .run = get_8},
    {.name = "put_val_8", .bytes = 8, .run = put_val_8},
    {.name = "get_val_8", .bytes = 8, .run = get_val_8},
    {.name = "put_64", .bytes = 64, .run = put_64},
    {.name = "get_64", .bytes = 64, .run = get_64},
    {.name = "put_nb_8", .bytes = 8, .run = put_nb_8},
    {.name = "get_nb_8", .bytes = 8, .run = get_nb_8},
    {.name = "put_nbi_8_wait", .bytes = 8, .run = put_nbi_8_wait},
    {.name = "get_nbi_8_wait", .bytes = 8, .run = get_nbi_8_wait},
    {.name = "put_nbi_8", .bytes = 8, .run = put_nbi_8},
    {.name = "get_nbi_8", .bytes = 8, .run = get_nbi_8},
    {.name = "put_nbi_any", .bytes = 8, .run = put_nbi_any},
};

/* Two rows for each size. */
static int add_sizes(int count) {
  static const size_t sizes[] = {1,    3,     8,     24,    64,     256,     1024,    4096,
                                 8191, 16384, 32768, 65536, 262144, 1 << 20, 4 << 20, LARGEST};
  size_t i;
  for (i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    rows[count++] =
        (struct row){.name = "put_any", .bytes = sizes[i], .run = put_any, .floor = copy_there};
    rows[count++] =
        (struct row){.name = "get_any", .bytes = sizes[i], .run = get_any, .floor = copy_here};
  }
  return count;
}

static double time_of(void (*run)(size_t, long), size_t bytes, long rounds) {
  const double begin = now_ns();
  hidden_bytes = bytes;
  run(hidden_bytes, rounds);
  return (now_ns() - begin) / (double)rounds;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}
static double median(double* values) {
  qsort(values, kRepetitions, sizeof *values, ascending);
  return values[kRepetitions / 2];
}

static void measure(int count, long rounds) {
  int r, i;
  for (r = 0; r < kRepetitions; ++r) {
    for (i = 0; i < count; ++i) {
      struct row* row = &rows[i];
      const long n = 1 + rounds / (long)(1 + row->bytes / 512);
      const int floor_first = row->floor && r % 2 == 0;
      if (floor_first) row->floor_ns[r] = time_of(row->floor, row->bytes, n);
      row->ns[r] = time_of(row->run, row->bytes, n);
      if (row->floor && !floor_first) row->floor_ns[r] = time_of(row->floor, row->bytes, n);
      if (row->floor) row->ratio[r] = row->ns[r] / row->floor_ns[r];
    }
  }
  for (i = 0; i < count; ++i) {
    printf("%-15s %9zu bytes %12.2f ns", rows[i].name, rows[i].bytes, median(rows[i].ns));
    if (rows[i].floor)
      printf(", memcpy %12.2f ns, %.3f x", median(rows[i].floor_ns), median(rows[i].ratio));
    printf("\n");
  }
}

/* Binds the rank to a processor, with real-time priority if permitted. */
static void bind(gex_Rank_t rank) {
  const struct sched_param priority = {.sched_priority = 1};
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(rank, &set);
  sched_setaffinity(0, sizeof set, &set);
  if (rank == 0) sched_setscheduler(0, SCHED_FIFO, &priority);
}

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t segment;
  void *address, *local;
  gex_Rank_t rank;
  long rounds;
  int i, count;
  if (gex_Client_Init(&client, &endpoint, &team, "RMA_COMPARE", &argc, &argv, 0) != GASNET_OK ||
      gex_Segment_Attach(&segment, team, LARGEST) != GASNET_OK)
    return 1;
  rank = gex_TM_QueryRank(team);
  peer = gex_TM_QuerySize(team) == 1 ? 0 : rank ^ 1;
  if (gex_TM_QuerySize(team) > 1) bind(rank);
  gex_Segment_QueryBound(team, rank, &address, NULL, NULL);
  mine = address;
  memset(mine, 1, LARGEST);
  gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED);
  gex_Segment_QueryBound(team, peer, &address, &local, NULL);
  theirs = address;
  mapped = local ? local : address;
  rounds = argc > 1 ? atol(argv[1]) : 20000;
  count = 0;
  while (rows[count].name != NULL) ++count;
  if (rank == 0 && argc > 2) {
    for (i = 0; i < count; ++i)
      if (strcmp(rows[i].name, argv[2]) == 0) rows[i].run(rows[i].bytes, rounds);
  } else if (rank == 0) {
    measure(add_sizes(count), rounds);
  }
  gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED);
  gasnet_exit(0);
}
