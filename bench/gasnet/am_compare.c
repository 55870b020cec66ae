/* am_compare.c - Active Messages between pairs of ranks, to be compiled against any implementation
 * of GASNet-EX and run in turn: docs/core_api.md has the figures of Hydrant and of GASNet's
 * smp-conduit. Not part of the build.
 *
 *   cc -O2 -D_GNU_SOURCE -DGASNET_SEQ=1 am_compare.c <include and library flags of one> -o am_compare
 *   GASNET_PSHM_NODES=2 ./am_compare [ROUNDS]
 *
 * Prints medians of 11 repetitions, ns. A round trip is a request and its reply of the same size; a
 * flood is one way, per message, until the last has arrived. Two ranks are bound to processors 0
 * and 1; with more ranks, 0 and 1 exchange messages, 2 and 3 and so on, at once and unbound; 0 reports.
 */
#include <gasnetex.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kPing = 200, kPong, kCount, kMediumPing, kMediumPong, kMediumCount, kRepetitions = 11 };

static gex_TM_t team;
static gex_Rank_t rank, peer;
static volatile int last_reply, arrived;
static char payload[32768];

static void ping(gex_Token_t token, gex_AM_Arg_t i) { gex_AM_ReplyShort1(token, kPong, 0, i); }
static void pong(gex_Token_t token, gex_AM_Arg_t i) {
  (void)token;
  last_reply = i;
}
static void count(gex_Token_t token, gex_AM_Arg_t i) {
  (void)token;
  (void)i;
  arrived = arrived + 1;
}
static void medium_ping(gex_Token_t token, void* data, size_t bytes, gex_AM_Arg_t i) {
  gex_AM_ReplyMedium1(token, kMediumPong, data, bytes, GEX_EVENT_NOW, 0, i);
}
static void medium_pong(gex_Token_t token, void* data, size_t bytes, gex_AM_Arg_t i) {
  (void)data;
  (void)bytes;
  pong(token, i);
}
static void medium_count(gex_Token_t token, void* data, size_t bytes, gex_AM_Arg_t i) {
  (void)data;
  (void)bytes;
  count(token, i);
}

static double now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void barrier(void) { gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED); }

/* bytes < 0 means a Short. */
static void request(int bytes, int short_handler, int medium_handler, int i) {
  if (bytes < 0) {
    gex_AM_RequestShort1(team, peer, (gex_AM_Index_t)short_handler, 0, i);
  } else {
    gex_AM_RequestMedium1(team, peer, (gex_AM_Index_t)medium_handler, payload, (size_t)bytes,
                          GEX_EVENT_NOW, 0, i);
  }
}

static double round_trip(int bytes, int rounds) {
  double begin;
  int i;
  last_reply = 0;
  barrier();
  begin = now_ns();
  for (i = 1; rank < peer && i <= rounds; ++i) {
    request(bytes, kPing, kMediumPing, i);
    GASNET_BLOCKUNTIL(last_reply == i);
  }
  begin = (now_ns() - begin) / rounds;
  barrier();
  return begin;
}

static double flood(int bytes, int messages) {
  double begin;
  int i;
  arrived = 0;
  barrier();
  begin = now_ns();
  if (rank < peer) {
    for (i = 1; i <= messages; ++i) request(bytes, kCount, kMediumCount, i);
  } else {
    GASNET_BLOCKUNTIL(arrived == messages);
  }
  barrier();
  return (now_ns() - begin) / messages;
}

static void measure(const char* name, int bytes, double (*run)(int, int), int rounds) {
  double ns[kRepetitions];
  int i;
  for (i = 0; i < kRepetitions; ++i) ns[i] = run(bytes, rounds);
  qsort(ns, kRepetitions, sizeof ns[0], ascending);
  if (rank == 0)
    printf("%s, %d bytes: %.1f ns\n", name, bytes < 0 ? 0 : bytes, ns[kRepetitions / 2]);
}

int main(int argc, char** argv) {
  static const int sizes[] = {8, 512, 2048, 32768};
  gex_AM_Entry_t handlers[] = {
      {kPing, (gex_AM_Fn_t)ping, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 1, NULL, "ping"},
      {kPong, (gex_AM_Fn_t)pong, GEX_FLAG_AM_REPLY | GEX_FLAG_AM_SHORT, 1, NULL, "pong"},
      {kCount, (gex_AM_Fn_t)count, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 1, NULL, "count"},
      {kMediumPing, (gex_AM_Fn_t)medium_ping, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_MEDIUM, 1, NULL,
       "medium_ping"},
      {kMediumPong, (gex_AM_Fn_t)medium_pong, GEX_FLAG_AM_REPLY | GEX_FLAG_AM_MEDIUM, 1, NULL,
       "medium_pong"},
      {kMediumCount, (gex_AM_Fn_t)medium_count, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_MEDIUM, 1, NULL,
       "medium_count"},
  };
  gex_Client_t client;
  gex_EP_t endpoint;
  cpu_set_t set;
  size_t i;
  int rounds;
  if (gex_Client_Init(&client, &endpoint, &team, "AM_COMPARE", &argc, &argv, 0) != GASNET_OK)
    return 1;
  gex_EP_RegisterHandlers(endpoint, handlers, sizeof handlers / sizeof handlers[0]);
  rank = gex_TM_QueryRank(team);
  peer = rank ^ 1;
  if (gex_TM_QuerySize(team) % 2 != 0) {
    fprintf(stderr, "am_compare: %u ranks: use an even number\n", (unsigned)gex_TM_QuerySize(team));
    gasnet_exit(2);
  }
  if (gex_TM_QuerySize(team) == 2) {
    CPU_ZERO(&set);
    CPU_SET(rank, &set);
    sched_setaffinity(0, sizeof set, &set);
  }
  rounds = argc > 1 ? atoi(argv[1]) : 4000;
  measure("short round trip", -1, round_trip, rounds);
  measure("short flood", -1, flood, 5 * rounds);
  for (i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    measure("medium round trip", sizes[i], round_trip, rounds / 4 + 1);
    measure("medium flood", sizes[i], flood, rounds);
  }
  barrier();
  gasnet_exit(0);
}
