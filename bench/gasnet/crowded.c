/* crowded.c - Barriers, AM round trips and puts of a job whose ranks outnumber the processors, to be compiled
 * against any implementation of GASNet-EX and run in turn, beside other busy processes or none
 * (crowded.py). Not part of the build.
 *
 *   cc -O2 -D_GNU_SOURCE -DGASNET_SEQ=1 crowded.c <include and library flags of one> -o crowded
 *   GASNET_PSHM_NODES=9 ./crowded [SECONDS]
 *
 * Each row repeats its operation for SECONDS (default 1) and prints the mean time of one operation in us,
 * in elapsed time. No rank is bound to a processor. A barrier joins all ranks; round trips go between the
 * ranks 2k and 2k + 1, all pairs at once, 16 between two barriers; a put stores 8 bytes in the next rank's
 * segment and waits for completion, 1000 between two barriers.
 */
#include <gasnetex.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static gex_TM_t team;
static gex_Rank_t rank, ranks;
static volatile int answer;
/* By rank, at its own address; the first word is the number of the row's last round. */
static char* segments[1024];

enum { kPing = GEX_AM_INDEX_BASE, kPong };
static void ping(gex_Token_t token, gex_AM_Arg_t i) { gex_AM_ReplyShort1(token, kPong, 0, i); }
static void pong(gex_Token_t token, gex_AM_Arg_t i) { (void)token, answer = i; }

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void barrier(void) { gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED); }

static void round_trip(void) {
  static int number;
  const gex_Rank_t peer = rank ^ 1;
  if (rank % 2 != 0 || peer >= ranks) return;
  ++number;
  gex_AM_RequestShort1(team, peer, kPing, 0, number);
  GASNET_BLOCKUNTIL(answer == number);
}

static void put(void) {
  const gex_Rank_t to = (rank + 1) % ranks;
  gex_RMA_PutBlocking(team, to, segments[to] + 64, segments[rank] + 128, 8, 0);
}

/* Rank 0 announces the last round to the other ranks by a put before a barrier. A rank that has not yet left
 * the previous barrier may read it too early, so the put has the round's number. */
static void measure(const char* name, void (*operation)(void), int batch, double seconds) {
  volatile uint64_t* const ends = (volatile uint64_t*)segments[rank];
  double begin;
  long count = 0;
  uint64_t round = 0;
  *ends = 0;
  barrier();
  begin = now_us();
  while (*ends != round || round == 0) {
    int i;
    ++round;
    for (i = 0; i < batch; ++i) operation();
    count += batch;
    if (rank == 0 && now_us() - begin > seconds * 1e6) {
      gex_Rank_t to;
      for (to = 0; to < ranks; ++to)
        gex_RMA_PutBlocking(team, to, segments[to], &round, sizeof round, 0);
    }
    barrier();
  }
  if (rank == 0) {
    printf("%s %.3f\n", name, (now_us() - begin) / (double)count);
    fflush(stdout);
  }
  barrier();
}

int main(int argc, char** argv) {
  gex_AM_Entry_t handlers[] = {
      {kPing, (gex_AM_Fn_t)ping, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 1, NULL, "ping"},
      {kPong, (gex_AM_Fn_t)pong, GEX_FLAG_AM_REPLY | GEX_FLAG_AM_SHORT, 1, NULL, "pong"},
  };
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t segment;
  double seconds;
  gex_Rank_t of;
  if (gex_Client_Init(&client, &endpoint, &team, "CROWDED", &argc, &argv, 0) != GASNET_OK) return 1;
  gex_EP_RegisterHandlers(endpoint, handlers, sizeof handlers / sizeof handlers[0]);
  if (gex_Segment_Attach(&segment, team, 1 << 20) != GASNET_OK) return 1;
  rank = gex_TM_QueryRank(team);
  ranks = gex_TM_QuerySize(team);
  if (ranks > sizeof segments / sizeof segments[0]) gasnet_exit(2);
  for (of = 0; of < ranks; ++of) {
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, of, (void**)&segments[of], NULL, NULL, 0));
  }
  seconds = argc > 1 ? atof(argv[1]) : 1;
  measure("barrier", barrier, 16, seconds);
  measure("round trip", round_trip, 16, seconds);
  measure("put", put, 1000, seconds);
  gasnet_exit(0);
}
