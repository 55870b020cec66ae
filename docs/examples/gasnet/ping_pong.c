/* ping_pong.c - Active Messages: rank 0 sends requests, the handler on the other rank replies.
 *
 *   hydrant-run -n 2 ./ping_pong
 */
#define GASNET_SEQ 1
#include <gasnetex.h>

#include <stdio.h>
#include <string.h>

enum { kPing = 200, kPong = 201, kRounds = 10000 };

static int replies; /* needs no lock: handlers run in this thread's own calls */

static void ping(gex_Token_t token, void* text, size_t bytes, gex_AM_Arg_t round) {
  (void)bytes;
  if (round == 0)
    printf("rank %u got: %s\n", (unsigned)gex_System_QueryJobRank(), (const char*)text);
  gex_AM_ReplyShort1(token, kPong, 0, round);
}

static void pong(gex_Token_t token, gex_AM_Arg_t round) {
  (void)token;
  replies = round + 1;
}

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_TM_t team;
  gex_AM_Entry_t handlers[] = {
      {kPing, (gex_AM_Fn_t)ping, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_MEDIUM, 1, NULL, "ping"},
      {kPong, (gex_AM_Fn_t)pong, GEX_FLAG_AM_REPLY | GEX_FLAG_AM_SHORT, 1, NULL, "pong"},
  };
  gex_Rank_t rank, peer;
  if (gex_Client_Init(&client, &endpoint, &team, "PING_PONG", &argc, &argv, 0) != GASNET_OK)
    return 1;
  if (gex_EP_RegisterHandlers(endpoint, handlers, 2) != GASNET_OK) gasnet_exit(1);
  gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED); /* all ranks register before any of them sends */

  rank = gex_TM_QueryRank(team);
  peer = gex_TM_QuerySize(team) - 1;
  if (rank == 0) {
    const char text[] = "hello from rank 0";
    const gasnett_tick_t start = gasnett_ticks_now();
    int round;
    for (round = 0; round < kRounds; ++round) {
      gex_AM_RequestMedium1(team, peer, kPing, text, sizeof text, GEX_EVENT_NOW, 0, round);
      GASNET_BLOCKUNTIL(replies == round + 1);
    }
    printf("%d round trips, %.0f ns each\n", kRounds,
           (double)gasnett_ticks_to_ns(gasnett_ticks_now() - start) / (double)kRounds);
  }
  gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED);
  gasnet_exit(0);
}
