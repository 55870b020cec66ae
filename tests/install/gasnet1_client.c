/* An outside client of GASNet-1's core API: makes the queries that are legal between init and attach,
 * registers handlers at fixed and at free indices, and writes a number into the other rank's segment by a
 * Long. Exit status 0 if all checks pass, 1 if gasnet_exit() returned. */
#include <gasnet.h>

#include <stdio.h>

enum { kFixed = 130 };

static volatile int written;
static volatile int told;

static void on_written(gasnet_token_t token, void* place, size_t bytes,
                       gasnet_handlerarg_t answer_to) {
  if (bytes == sizeof(int)) written = *(int*)place;
  gasnet_AMReplyShort0(token, (gasnet_handler_t)answer_to);
}

static void on_told(gasnet_token_t token) {
  (void)token;
  told = 1;
}

static int is(int holds, const char* what) {
  if (!holds) fprintf(stderr, "not so: %s\n", what);
  return holds;
}
#define IS(condition) is((condition) != 0, #condition)

int main(int argc, char** argv) {
  gasnet_handlerentry_t table[2] = {{kFixed, (gex_AM_Fn_t)on_written}, {0, (gex_AM_Fn_t)on_told}};
  gasnet_seginfo_t segments[2];
  int good, number;
  if (gasnet_init(&argc, &argv) != GASNET_OK) return 1;
  good = IS(argc == 2) && IS(argv[1][0] == 'x' && argv[1][1] == '\0') && IS(gasnet_nodes() == 2) &&
         IS(gasnet_mynode() < 2) && IS(gasnet_getMaxLocalSegmentSize() >= 2 * GASNET_PAGESIZE) &&
         IS(gasnet_getMaxGlobalSegmentSize() <= gasnet_getMaxLocalSegmentSize()) &&
         IS(gasnet_getenv("PATH") != NULL) && IS(gasnet_getenv("HYDRANT_TEST_NOT_THERE") == NULL);
  if (!good || gasnet_attach(table, 2, 2 * GASNET_PAGESIZE, 0) != GASNET_OK) gasnet_exit(2);

  good = IS(table[0].index == kFixed) && IS(table[1].index >= 128 && table[1].index != kFixed) &&
         IS(gasnet_getSegmentInfo(segments, 2) == GASNET_OK) &&
         IS(segments[0].size == 2 * GASNET_PAGESIZE && segments[1].size == 2 * GASNET_PAGESIZE) &&
         IS(segments[gasnet_mynode()].addr != NULL);
  if (!good) gasnet_exit(3);
  gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED);

  number = 40 + (int)gasnet_mynode();
  gasnet_AMRequestLong1(1 - gasnet_mynode(), kFixed, &number, sizeof number,
                        segments[1 - gasnet_mynode()].addr, table[1].index);
  GASNET_BLOCKUNTIL(told && written != 0);
  good = IS(written == 41 - (int)gasnet_mynode()) &&
         IS(*(int*)segments[gasnet_mynode()].addr == written);
  gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED);
  gasnet_exit(good ? 0 : 4);
  return 1;
}
