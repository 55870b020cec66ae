/* atomic_compare.c - Remote atomics between two ranks of a node, to be compiled against any implementation of
 * GASNet-EX and run in turn (compare.py): docs/atomics.md has the figures of Hydrant and of GASNet's
 * smp-conduit. Not part of the build.
 *
 *   cc -O2 -D_GNU_SOURCE -DGASNET_PAR=1 atomic_compare.c <include and library flags of one> -o atomic_compare
 *   GASNET_PSHM_NODES=2 ./atomic_compare [PERCENT]
 *
 * Prints ns per operation, medians of 15 repetitions, of operations on a word in rank 1's segment: alone
 * (rank 0 works, rank 1 waits), and contended (both work). Each row is followed by the same loop with the
 * processor's own instructions on the same word ("bare"), taken in turn, and the median of the ratios. A
 * result goes to an array, as with gex_AD_OpNBI_*(). PERCENT scales the rounds.
 */
#include <gasnetex.h>

#include <gasnet_coll.h>
#include <gasnet_ratomic.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kRepetitions = 15, kResults = 1024 };

static gex_TM_t team;
static gex_AD_t integers, doubles;
static void* target; /* the word, at its owner's address */
static void* mapped; /* the same in this process */
static uint64_t results[kResults];
static double double_results[kResults];
static volatile gex_OP_t hidden_fadd = GEX_OP_FADD; /* no constant */

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline uint64_t largest(uint64_t* word, uint64_t value) {
  uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, old > value ? old : value, 1, __ATOMIC_SEQ_CST,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}
static inline double add_double(uint64_t* word, double value) {
  union {
    double value;
    uint64_t bits;
  } old, sum;
  old.bits = __atomic_load_n(word, __ATOMIC_RELAXED);
  do {
    sum.value = old.value + value;
  } while (!__atomic_compare_exchange_n(word, &old.bits, sum.bits, 1, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED));
  return old.value;
}

#define LOOP(name, body)                                    \
  static __attribute__((noinline)) void name(long rounds) { \
    uint64_t* const word = (uint64_t*)mapped;               \
    void* const at = target;                                \
    const gex_OP_t variable = hidden_fadd;                  \
    long i;                                                 \
    (void)word, (void)at, (void)variable;                   \
    for (i = 0; i < rounds; ++i) {                          \
      const long r = i % kResults;                          \
      (void)r;                                              \
      body;                                                 \
    }                                                       \
  }
#define NB(ad, type, place, op, a, b) \
  gex_Event_Wait(gex_AD_OpNB_##type(ad, place, 1, at, op, a, b, 0))
LOOP(fadd, NB(integers, U64, results + r, GEX_OP_FADD, 3, 0))
LOOP(fadd_variable, NB(integers, U64, results + r, variable, 3, 0))
LOOP(fadd_nbi, gex_AD_OpNBI_U64(integers, results + r, 1, at, GEX_OP_FADD, 3, 0, 0);
     if (r == 0) gex_NBI_Wait(GEX_EC_RMW, 0))
LOOP(add, NB(integers, U64, NULL, GEX_OP_ADD, 3, 0))
LOOP(fcas, NB(integers, U64, results + r, GEX_OP_FCAS, 0, 0))
LOOP(swap, NB(integers, U64, results + r, GEX_OP_SWAP, 3, 0))
LOOP(get, NB(integers, U64, results + r, GEX_OP_GET, 0, 0))
LOOP(set, NB(integers, U64, NULL, GEX_OP_SET, 3, 0))
LOOP(fetch_max, NB(integers, U64, results + r, GEX_OP_FMAX, 3, 0))
LOOP(fadd_double, NB(doubles, DBL, double_results + r, GEX_OP_FADD, 1.0, 0))

LOOP(bare_fadd, results[r] = __atomic_fetch_add(word, 3, __ATOMIC_SEQ_CST))
LOOP(bare_add, (void)__atomic_fetch_add(word, 3, __ATOMIC_SEQ_CST))
LOOP(bare_fcas, uint64_t old = 0;
     __atomic_compare_exchange_n(word, &old, 0, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
     results[r] = old)
LOOP(bare_swap, results[r] = __atomic_exchange_n(word, 3, __ATOMIC_SEQ_CST))
LOOP(bare_get, results[r] = __atomic_load_n(word, __ATOMIC_SEQ_CST))
LOOP(bare_set, __atomic_store_n(word, 3, __ATOMIC_SEQ_CST))
LOOP(bare_largest, results[r] = largest(word, 3))
LOOP(bare_double, double_results[r] = add_double(word, 1.0))

/* An Active Message and its reply, for comparison with operations that are messages. Rank 1 waits in a
 * barrier, as in the other rows. */
enum { kPing = 200, kPong };
static volatile long pongs;
static void on_ping(gex_Token_t token) { gex_AM_ReplyShort0(token, kPong, 0); }
static void on_pong(gex_Token_t token) { (void)token, ++pongs; }
static void round_trip(long rounds) {
  long i;
  pongs = 0;
  for (i = 1; i <= rounds; ++i) {
    gex_AM_RequestShort0(team, 1, kPing, 0);
    GASNET_BLOCKUNTIL(pongs == i);
  }
}

struct row {
  const char* name;
  void (*run)(long rounds);
  void (*bare)(long rounds);
};
static const struct row rows[] = {
    {"FADD U64", fadd, bare_fadd},
    {"FADD U64, variable opcode", fadd_variable, bare_fadd},
    {"FADD U64, NBI", fadd_nbi, bare_fadd},
    {"ADD U64", add, bare_add},
    {"FCAS U64", fcas, bare_fcas},
    {"SWAP U64", swap, bare_swap},
    {"GET U64", get, bare_get},
    {"SET U64", set, bare_set},
    {"FMAX U64", fetch_max, bare_largest},
    {"FADD DBL", fadd_double, bare_double},
};

static const struct row message = {"Short round trip", round_trip, NULL};

static void barrier(void) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

static double run_once(void (*run)(long), long rounds, int works) {
  double start;
  barrier();
  start = now_ns();
  if (works) run(rounds);
  start = (now_ns() - start) / (double)rounds;
  barrier();
  return start;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return x < y ? -1 : x > y;
}
static double median(double* values) {
  qsort(values, kRepetitions, sizeof *values, compare);
  return values[kRepetitions / 2];
}

static void measure(const struct row* row, long rounds, int contended, int is_first) {
  double times[kRepetitions], bare[kRepetitions], ratio[kRepetitions];
  const char* const how = contended ? ", contended" : "";
  int i;
  if (mapped == NULL) return;
  for (i = 0; i < kRepetitions; ++i) {
    times[i] = run_once(row->run, rounds, contended || is_first);
    if (row->bare == NULL) continue;
    bare[i] = run_once(row->bare, rounds, contended || is_first);
    ratio[i] = times[i] / bare[i];
  }
  if (!is_first) return;
  printf("%s%s 8 bytes %.2f ns\n", row->name, how, median(times));
  if (row->bare == NULL) return;
  printf("%s%s, bare 8 bytes %.2f ns\n", row->name, how, median(bare));
  printf("%s%s: %.2f of bare\n", row->name, how, median(ratio));
  fflush(stdout);
}

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t segment;
  cpu_set_t cpus;
  gex_AM_Entry_t handlers[] = {
      {kPing, (gex_AM_Fn_t)on_ping, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "ping"},
      {kPong, (gex_AM_Fn_t)on_pong, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0, NULL, "pong"}};
  long rounds = 200000;
  int contended;
  size_t i;
  gex_Client_Init(&client, &endpoint, &team, "atomic_compare", &argc, &argv, 0);
  if (argc > 1) rounds = rounds * atol(argv[1]) / 100;
  if (gex_TM_QuerySize(team) != 2 || rounds < 1) gasnet_exit(2);
  CPU_ZERO(&cpus);
  CPU_SET(gex_TM_QueryRank(team), &cpus);
  sched_setaffinity(0, sizeof cpus, &cpus);
  gex_EP_RegisterHandlers(endpoint, handlers, 2);
  gex_Segment_Attach(&segment, team, 1 << 20);
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, 1, &target, &mapped, NULL, 0));
  gex_AD_Create(
      &integers, team, GEX_DT_U64,
      GEX_OP_FADD | GEX_OP_ADD | GEX_OP_FCAS | GEX_OP_SWAP | GEX_OP_GET | GEX_OP_SET | GEX_OP_FMAX,
      0);
  gex_AD_Create(&doubles, team, GEX_DT_DBL, GEX_OP_FADD, 0);
  measure(&message, rounds / 20 + 1, 0, gex_TM_QueryRank(team) == 0);
  for (contended = 0; contended < 2; ++contended) {
    for (i = 0; i < sizeof rows / sizeof *rows; ++i)
      measure(rows + i, rounds, contended, gex_TM_QueryRank(team) == 0);
  }
  gasnet_exit(0);
  return 0;
}
