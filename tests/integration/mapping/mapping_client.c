/* mapping_client [private]: every rank repeatedly puts to an arena of its neighbour and gets the data
 * back, frees and reuses memory that the neighbour has mapped, and prints the counts per path.
 * "private": uses malloc's memory, which cannot be mapped. */
#include <gasnet.h>
#include <gasnetex.h>
#include <hydrant/alloc.h>
#include <hydrant/rma.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)8 << 20)
#define PIECE ((size_t)65536)
#define ROUNDS 4

static gex_TM_t team;
static gex_Rank_t me, peer;
static unsigned char* mine;
static unsigned char* theirs;
static unsigned char buffer[PIECE], back[PIECE];

static void barrier(void) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

static void exchange(gex_Segment_t segment) {
  void* there = NULL;
  *(unsigned char**)gex_Segment_QueryAddr(segment) = mine;
  barrier();
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, peer, &there, NULL, NULL, 0));
  gex_RMA_GetBlocking(team, &theirs, peer, there, sizeof theirs, 0);
  barrier();
}

static size_t wrong(int tag) {
  size_t i, bad = 0;
  for (i = 0; i < BYTES; ++i) bad += mine[i] != (unsigned char)tag;
  return bad;
}

static void write_all(int tag) {
  size_t at;
  memset(buffer, tag, PIECE);
  for (at = 0; at < BYTES; at += PIECE) {
    gex_RMA_PutBlocking(team, peer, theirs + at, buffer, PIECE, 0);
    gasnet_AMPoll();
    gex_RMA_GetBlocking(team, back, peer, theirs + at, PIECE, 0);
    if (memcmp(buffer, back, PIECE) != 0) {
      printf("rank %u got other bytes than it put\n", me);
      gasnet_exit(1);
    }
  }
}

static uint64_t ops(hydrant_path_t path) {
  hydrant_path_counts_t counts;
  (void)hydrant_query_path(peer, path, &counts);
  return counts.put_ops + counts.get_ops;
}

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t segment;
  int round;
  const int is_private = argc > 1 && strcmp(argv[1], "private") == 0;
  if (gex_Client_Init(&client, &endpoint, &team, "mapping_client", &argc, &argv, 0) != GASNET_OK)
    return 1;
  if (gex_Segment_Attach(&segment, team, (uintptr_t)1 << 20) != GASNET_OK) return 1;
  me = gex_TM_QueryRank(team);
  peer = (me + 1) % gex_TM_QuerySize(team);
  for (round = 1; round <= ROUNDS; ++round) {
    const gex_Rank_t left = (me + gex_TM_QuerySize(team) - 1) % gex_TM_QuerySize(team);
    mine = is_private ? malloc(BYTES) : hydrant_alloc_shared(4096, BYTES);
    if (mine == NULL) return 1;
    memset(mine, 0, BYTES);
    exchange(segment);
    write_all((int)(16 * me) + round);
    barrier();
    if (wrong((int)(16 * left) + round) != 0) {
      printf("rank %u: %zu wrong bytes in round %d\n", me, wrong((int)(16 * left) + round), round);
      gasnet_exit(1);
    }
    barrier();
    if (is_private) {
      free(mine);
    } else {
      hydrant_free(mine);
      (void)hydrant_alloc_trim();
    }
  }
  barrier();
  printf("rank %u: cma %llu firehose %llu\n", me, (unsigned long long)ops(HYDRANT_PATH_CMA),
         (unsigned long long)ops(HYDRANT_PATH_FIREHOSE));
  printf("all held\n");
  fflush(stdout);
  gasnet_exit(0);
}
