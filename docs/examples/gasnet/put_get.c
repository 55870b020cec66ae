/* put_get.c - one-sided copies: every rank writes into its right neighbour's memory and reads it back, in the
 * segment and outside of it. HYDRANT_STATS prints which paths the copies took.
 *
 *   HYDRANT_STATS=table:- hydrant-run -n 2 ./put_get
 */
#define GASNET_SEQ 1
#include <gasnetex.h>

#include <stdlib.h>
#include <string.h>

enum { kBytes = 1 << 20, kWords = 16 };

static char heap[kBytes]; /* at the same address on every rank, if the program is not randomised */

static void barrier(void) { gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED); }

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_TM_t team;
  gex_Segment_t segment;
  gex_Rank_t rank, right;
  void *theirs, *their_heap;
  char *data, *back;
  gex_Event_t event;
  gex_Rank_t word;
  if (gex_Client_Init(&client, &endpoint, &team, "PUT_GET", &argc, &argv, 0) != GASNET_OK) return 1;
  if (gex_Segment_Attach(&segment, team, 2 * kBytes) != GASNET_OK) gasnet_exit(1);
  rank = gex_TM_QueryRank(team);
  right = (rank + 1) % gex_TM_QuerySize(team);
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, right, &theirs, NULL, NULL, 0));

  /* Each rank publishes the address of its heap at the start of its segment. */
  *(void**)gex_Segment_QueryAddr(segment) = heap;
  barrier();
  gex_RMA_GetBlocking(team, &their_heap, right, theirs, sizeof their_heap, 0);
  barrier();

  /* Puts single words, without waiting for each. */
  for (word = 0; word < kWords; ++word)
    gex_RMA_PutNBIVal(team, right, (uint64_t*)theirs + word, (uint64_t)100 * rank + word, 8, 0);
  gex_NBI_Wait(GEX_EC_PUT, 0);

  /* Puts a block into the segment; the source may be reused at once. */
  data = (char*)malloc(kBytes);
  back = (char*)malloc(kBytes);
  if (data == NULL || back == NULL) gasnet_exit(1);
  memset(data, 'a' + (int)(rank % 26), kBytes);
  event = gex_RMA_PutNB(team, right, (char*)theirs + kBytes, data, kBytes, GEX_EVENT_NOW, 0);
  memset(data, 'A' + (int)(rank % 26), kBytes);
  gex_Event_Wait(event);

  /* Puts a block outside of it: any memory of any rank can be a target. */
  gex_RMA_PutBlocking(team, right, their_heap, data, kBytes, 0);

  gex_RMA_GetBlocking(team, back, right, (char*)theirs + kBytes, kBytes, 0);
  if (back[0] != 'a' + (int)(rank % 26) || back[kBytes - 1] != back[0]) gasnet_exit(2);
  gex_RMA_GetBlocking(team, back, right, their_heap, kBytes, 0);
  if (memcmp(back, data, kBytes) != 0) gasnet_exit(3);
  barrier();
  if (*(uint64_t*)gex_Segment_QueryAddr(segment) !=
      100 * (uint64_t)((rank + gex_TM_QuerySize(team) - 1) % gex_TM_QuerySize(team)))
    gasnet_exit(4);
  free(data);
  free(back);
  barrier();
  gasnet_exit(0);
}
