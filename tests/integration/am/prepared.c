/* Calls between the prepare and the commit of a negotiated message: they end the job of a client with
 * GASNET_DEBUG. Without it each does its work, and the message arrives unharmed. */
#include "client.h"

enum { BYTES = 3000 }; /* more than the ring takes */

static gex_AM_Index_t on_message_index, on_question_index, on_answer_index;
static gasnett_atomic_t messages = gasnett_atomic_init(0), questions = gasnett_atomic_init(0);

static void on_message(gex_Token_t token, void* payload, size_t bytes) {
  (void)token;
  CHECK(bytes == BYTES && holds(payload, bytes, 1));
  gasnett_atomic_increment(&messages, 0);
}
static void on_question(gex_Token_t token) {
  gex_AM_SrcDesc_t sd = gex_AM_PrepareReplyMedium(token, NULL, BYTES, BYTES, NULL, 0, 0);
  fill(gex_AM_SrcDescAddr(sd), BYTES, 2);
  gex_AM_CommitReplyMedium0(sd, on_answer_index, BYTES);
  gasnett_atomic_increment(&questions, 0);
}
static void on_answer(gex_Token_t token, void* payload, size_t bytes) {
  (void)token;
  CHECK(bytes == BYTES && holds(payload, bytes, 2));
}

static void call_between(const char* what, gex_Rank_t right) {
  char here[32] = "";
  if (!strcmp(what, "poll")) gasnet_AMPoll();
  if (!strcmp(what, "block")) GASNET_BLOCKUNTIL(gasnett_atomic_read(&questions, 0) != 0);
  if (!strcmp(what, "short")) gex_AM_RequestShort0(team, right, on_question_index, 0);
  if (!strcmp(what, "put"))
    gex_RMA_PutBlocking(team, right, area(right, me, 0), here, sizeof here, 0);
  if (!strcmp(what, "get")) gex_RMA_GetBlocking(team, here, right, area(right, me, 0), 8, 0);
  if (!strcmp(what, "value")) (void)gex_RMA_GetBlockingVal(team, right, area(right, me, 0), 8, 0);
  if (!strcmp(what, "barrier")) BARRIER();
  if (!strcmp(what, "test")) CHECK(gex_Event_Test(GEX_EVENT_INVALID) == GASNET_OK);
  if (!strcmp(what, "wait")) gex_Event_Wait(GEX_EVENT_INVALID);
  if (!strcmp(what, "translate")) CHECK(gex_TM_TranslateRankToJobrank(team, right) == right);
  if (!strcmp(what, "prepare")) gex_AM_PrepareRequestMedium(team, right, NULL, 0, 8, NULL, 0, 0);
}

void test_prepared(const char* what) {
  gex_AM_Entry_t rows[] = {
      {0, (gex_AM_Fn_t)on_message, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 0, NULL, "message"},
      {0, (gex_AM_Fn_t)on_question, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "question"},
      {0, (gex_AM_Fn_t)on_answer, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, 0, NULL, "answer"}};
  const gex_Rank_t right = (me + 1) % size;
  CHECK(gex_EP_RegisterHandlers(endpoint, rows, 3) == GASNET_OK);
  on_message_index = rows[0].gex_index;
  on_question_index = rows[1].gex_index;
  on_answer_index = rows[2].gex_index;
  BARRIER();
  if (!strcmp(what, "block") && me != 0)
    CHECK(gex_AM_RequestShort0(team, 0, on_question_index, 0) == 0);
  gex_AM_SrcDesc_t sd = gex_AM_PrepareRequestMedium(team, right, NULL, BYTES, BYTES, NULL, 0, 0);
  fill(gex_AM_SrcDescAddr(sd), BYTES, 1);
  if (me == 0 || !strcmp(what, "barrier")) call_between(what, right);
  gex_AM_CommitRequestMedium0(sd, on_message_index, BYTES);
  GASNET_BLOCKUNTIL(gasnett_atomic_read(&messages, 0) == 1);
}
