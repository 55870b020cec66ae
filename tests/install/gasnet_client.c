/* An outside client of GASNet's API, in C99 and C++: every rank sends the next rank a request to square its
 * rank and receives a reply, between two barriers. The thread mode and the network's name come from the build
 * files. Built outside the tree, against the installation. Exit status 0 if all checks pass. */
#include <gasnetex.h>

#include <gasnet_tools.h>
#include <stdio.h>

enum { kAsk = 200, kAnswer = 201 };

static volatile int answers;
static volatile gex_AM_Arg_t answer;

static void on_ask(gex_Token_t token, gex_AM_Arg_t number) {
  gex_AM_ReplyShort1(token, kAnswer, 0, number * number);
}

static void on_answer(gex_Token_t token, gex_AM_Arg_t number) {
  (void)token;
  answer = number;
  answers = 1;
}

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_TM_t team;
  gex_AM_Entry_t table[2] = {
      {kAsk, (gex_AM_Fn_t)on_ask, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 1, NULL, "ask"},
      {kAnswer, (gex_AM_Fn_t)on_answer, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 1, NULL, "answer"}};
  gex_Rank_t rank, size;
  if (gex_Client_Init(&client, &endpoint, &team, "CLIENT", &argc, &argv, 0) != GASNET_OK) return 1;
  if (gex_EP_RegisterHandlers(endpoint, table, 2) != GASNET_OK) return 1;
  rank = gex_TM_QueryRank(team);
  size = gex_TM_QuerySize(team);
  gex_Event_Wait(gex_Coll_BarrierNB(team, 0));

  gex_AM_RequestShort1(team, (rank + 1) % size, kAsk, 0, (gex_AM_Arg_t)rank + 7);
  GASNET_BLOCKUNTIL(answers);
  gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
  printf("rank %u of %u: %d\n", (unsigned)rank, (unsigned)size, (int)answer);
  gasnet_exit(answer == (gex_AM_Arg_t)((rank + 7) * (rank + 7)) ? 0 : 1);
  return 1;
}
