/* event_loop.c - a loop that sleeps in poll(2) until a message or an input of the program's own comes. A
 * greeting goes around the ranks; the input of rank 0 starts it.
 *
 *   hydrant-run -n 2 ./event_loop
 */
#define GASNET_SEQ 1
#include <gasnetex.h>
#include <hydrant/rma.h>
#include <hydrant/waiting.h>

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

static gex_TM_t team;
static gex_AM_Index_t greeting;
static volatile int is_greeted = 0;

static void on_greeting(gex_Token_t token, gex_AM_Arg_t from) {
  (void)token;
  printf("rank %u was greeted by rank %d\n", (unsigned)gex_TM_QueryRank(team), (int)from);
  is_greeted = 1;
}

static void greet_next(void) {
  const gex_Rank_t me = gex_TM_QueryRank(team);
  gex_AM_RequestShort1(team, (me + 1) % gex_TM_QuerySize(team), greeting, 0, (gex_AM_Arg_t)me);
}

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_AM_Entry_t handler = {
      0, (gex_AM_Fn_t)on_greeting, GEX_FLAG_AM_REQUEST | GEX_FLAG_AM_SHORT, 1, NULL, "greeting"};
  int messages, input[2]; /* a pipe stands for a socket or a terminal */
  if (gex_Client_Init(&client, &endpoint, &team, "event_loop", &argc, &argv, 0) != GASNET_OK)
    return 1;
  if (gex_EP_RegisterHandlers(endpoint, &handler, 1) != GASNET_OK) return 1;
  greeting = handler.gex_index;
  if (hydrant_event_descriptor_open(&messages) != GASNET_OK)
    return puts(hydrant_last_error_text()), 1;
  if (pipe(input) != 0) return 1;
  gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
  if (gex_TM_QueryRank(team) == 0 && write(input[1], "!", 1) != 1) return 1;

  while (!is_greeted) {
    struct pollfd sources[2] = {{-1, POLLIN, 0}, {-1, POLLIN, 0}};
    sources[0].fd = messages;
    sources[1].fd = input[0];
    gasnet_AMPoll();
    /* Arm; then look at the condition; then sleep. In this order no message is missed. */
    if (hydrant_event_descriptor_arm(messages) != GASNET_OK) continue;
    if (is_greeted || poll(sources, 2, -1) < 0) continue;
    if (sources[1].revents != 0) {
      char byte;
      if (read(input[0], &byte, 1) == 1) greet_next();
    }
  }
  if (gex_TM_QueryRank(team) != 0) greet_next();

  gex_Event_Wait(gex_Coll_BarrierNB(team, 0));
  hydrant_event_descriptor_close(messages);
  gasnet_exit(0);
  return 0;
}
