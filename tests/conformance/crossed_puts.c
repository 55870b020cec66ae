/* crossed_puts ROUNDS: a client of GASNet-EX with two ranks, for firehose limits that let a rank pin six
 * regions of 128 KiB, four of them for its peer. In each round both ranks do the same at once:
 *   - They put pieces of memory outside the segment all over the peer's segment. Each piece misses at both
 *     ends, and a rank's local pins are held by puts that wait for pins of the peer.
 *   - They put three pieces to memory that the peer has pinned, and one to memory that it has not. Until the
 *     three have arrived, all six regions are held at both ends, and both ranks' requests get "not now".
 * Exit status: 0 if all data arrived, 1 if the memory has other contents. */
#include <gasnetex.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECES ((size_t)12)
#define PIECE_BYTES ((size_t)128 << 10)
#define STEP_BYTES ((size_t)1 << 20) /* no two pieces are in one region */
#define HELD ((size_t)3)
#define HELD_AT (PIECES * STEP_BYTES)
#define HELD_BYTES ((size_t)64 << 10)
#define ALL_BYTES (HELD_AT + HELD * STEP_BYTES)

#define CALL(call)                                                      \
  do {                                                                  \
    if ((call) != GASNET_OK) {                                          \
      fprintf(stderr, "ERROR: %s:%d: %s\n", __FILE__, __LINE__, #call); \
      gasnet_exit(1);                                                   \
    }                                                                   \
  } while (0)

static gex_TM_t team;
static gex_Rank_t me, peer;
static char *mine, *theirs, *segment;

static void barrier(void) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

static void put(size_t to, size_t from, size_t bytes) {
  gex_RMA_PutNBI(team, peer, theirs + to, mine + from, bytes, GEX_EVENT_DEFER, 0);
}

/* The expected word at this offset of a rank's memory in a round. */
static uint64_t word(gex_Rank_t writer, uint64_t round, size_t at) {
  return ((uint64_t)writer << 56 | round << 32) + at;
}

static void fill(uint64_t round, size_t begin, size_t bytes) {
  for (size_t at = begin; at < begin + bytes; at += sizeof(uint64_t))
    *(uint64_t*)(mine + at) = word(me, round, at);
}

/* Checks that the bytes at `to` came from `from`. */
static void check(uint64_t round, size_t to, size_t from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t got = *(uint64_t*)(segment + to + at);
    if (got == word(peer, round, from + at)) continue;
    printf("ERROR: rank %u, round %llu: %llx at %zx\n", (unsigned)me, (unsigned long long)round,
           (unsigned long long)got, to + at);
    gasnet_exit(1);
  }
}

/* Rank 0 puts its pieces from the first to the last, the other rank from the last to the first. */
static void all_over(uint64_t round) {
  for (size_t piece = 0; piece < PIECES; ++piece) fill(round, piece * STEP_BYTES, PIECE_BYTES);
  barrier();
  for (size_t i = 0; i < PIECES; ++i) {
    const size_t at = (me == 0 ? i : PIECES - 1 - i) * STEP_BYTES;
    put(at, at, PIECE_BYTES);
  }
  gex_NBI_Wait(GEX_EC_PUT, 0);
  barrier();
  for (size_t piece = 0; piece < PIECES; ++piece)
    check(round, piece * STEP_BYTES, piece * STEP_BYTES, PIECE_BYTES);
  barrier();
}

static void put_held(void) {
  for (size_t i = 0; i < HELD; ++i)
    put(HELD_AT + i * STEP_BYTES, HELD_AT + i * STEP_BYTES, HELD_BYTES);
}

static void held_and_late(uint64_t round) {
  for (size_t i = 0; i < HELD; ++i) fill(round, HELD_AT + i * STEP_BYTES, HELD_BYTES);
  put_held();
  gex_NBI_Wait(GEX_EC_PUT, 0);
  for (size_t late = 0; late < PIECES; ++late) {
    barrier();
    put_held();
    put(late * STEP_BYTES, HELD_AT, HELD_BYTES);
    /* The completions of the puts wait beside the peer's message, which a poll handles first. */
    usleep(20000);
    gex_NBI_Wait(GEX_EC_PUT, 0);
  }
  barrier();
  for (size_t i = 0; i < HELD; ++i)
    check(round, HELD_AT + i * STEP_BYTES, HELD_AT + i * STEP_BYTES, HELD_BYTES);
  for (size_t late = 0; late < PIECES; ++late) check(round, late * STEP_BYTES, HELD_AT, HELD_BYTES);
  barrier();
}

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t own;
  void* address = NULL;
  CALL(gex_Client_Init(&client, &endpoint, &team, "crossed_puts", &argc, &argv, 0));
  CALL(gex_Segment_Attach(&own, team, ALL_BYTES));
  me = gex_TM_QueryRank(team);
  peer = 1 - me;
  if (gex_TM_QuerySize(team) != 2 || argc != 2) gasnet_exit(2);
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, peer, &address, NULL, NULL, 0));
  theirs = address;
  segment = gex_Segment_QueryAddr(own);
  mine = mmap(NULL, ALL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mine == MAP_FAILED) gasnet_exit(3);

  const uint64_t rounds = strtoull(argv[1], NULL, 0);
  for (uint64_t round = 1; round <= rounds; ++round) {
    all_over(round);
    held_and_late(round);
  }
  printf("rank %u: %llu rounds\n", (unsigned)me, (unsigned long long)rounds);
  fflush(stdout);
  barrier();
  gasnet_exit(0);
}
