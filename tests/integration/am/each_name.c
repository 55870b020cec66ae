/* Calls that the other cases do not make: forms of messages without a number in their name, limits, queries,
 * client data, and GASNet-1's ways to sync. Rank r sends to rank r + 1. */
#include "client.h"

static gex_AM_Index_t ask_index, answer_index;
static gasnett_atomic_t answered = gasnett_atomic_init(0);
static volatile int form_seen = -1, sum_seen = 0;
static volatile size_t bytes_seen = 0;

static void on_answer(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t form,
                      gex_AM_Arg_t more) {
  (void)token;
  CHECK(bytes == 0 || holds(payload, bytes, (unsigned)form));
  form_seen = form;
  sum_seen = more;
  bytes_seen = bytes;
  gasnett_atomic_increment(&answered, 0);
}
static void on_short_answer(gex_Token_t token, gex_AM_Arg_t form, gex_AM_Arg_t more) {
  on_answer(token, NULL, 0, form, more);
}
static gex_AM_Index_t short_index, long_index;

/* The reply has the form that the request asks for. `bytes` of the requester's pattern come back. */
static void on_ask(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t form,
                   gex_AM_Arg_t more) {
  const gex_Event_t* const now = GEX_EVENT_NOW;
  gasnet_node_t from = 99;
  gex_AM_SrcDesc_t sd;
  char* there;
  CHECK(gasnet_AMGetMsgSource(token, &from) == GASNET_OK && from == (me + size - 1) % size);
  CHECK(holds(payload, bytes, (unsigned)form));
  CHECK(gex_Token_MaxReplyMedium(token, now, 0, 2) >= gex_AM_LUBReplyMedium());
  CHECK(gex_Token_MaxReplyLong(token, now, 0, 2) >= gex_AM_LUBReplyLong());
  switch (form) {
    case 0: CHECK(gasnet_AMReplyShort(token, short_index, form, more) == GASNET_OK); break;
    case 1:
      CHECK((more == 5 ? gasnet_AMReplyMedium(token, answer_index, payload, bytes, form, more)
                       : gasnet_AMReplyMedium2(token, answer_index, payload, bytes, form, more)) ==
            GASNET_OK);
      break;
    case 2:
      there = area(from, me, 1);
      CHECK((more == 5 ? gasnet_AMReplyLong(token, long_index, payload, bytes, there, form, more)
                       : gasnet_AMReplyLong2(token, long_index, payload, bytes, there, form,
                                             more)) == GASNET_OK);
      break;
    case 3:
      sd = gex_AM_PrepareReplyMedium(token, NULL, bytes, bytes, NULL, 0, 2);
      memcpy(gex_AM_SrcDescAddr(sd), payload, bytes);
      gex_AM_CommitReplyMedium(sd, answer_index, bytes, form, more);
      break;
    case 4:
      sd = gex_AM_PrepareReplyMedium(token, NULL, bytes, bytes, NULL, 0, 2);
      memcpy(gex_AM_SrcDescAddr(sd), payload, bytes);
      CHECK((more == 5 ? gex_AM_CommitReplyMedium_v2(sd, answer_index, bytes, 0, form, more)
                       : gex_AM_CommitReplyMedium2_v2(sd, answer_index, bytes, 0, form, more)) ==
            GASNET_OK);
      break;
    case 5:
      sd = gex_AM_PrepareReplyLong(token, NULL, bytes, bytes, NULL, NULL, 0, 2);
      memcpy(gex_AM_SrcDescAddr(sd), payload, bytes);
      there = area(from, me, 1);
      if (more == 5)
        gex_AM_CommitReplyLong(sd, long_index, bytes, there, form, more);
      else
        gex_AM_CommitReplyLong2(sd, long_index, bytes, there, form, more);
      break;
    default:
      sd = gex_AM_PrepareReplyLong(token, NULL, bytes, bytes, NULL, NULL, 0, 2);
      memcpy(gex_AM_SrcDescAddr(sd), payload, bytes);
      there = area(from, me, 1);
      CHECK((more == 5 ? gex_AM_CommitReplyLong_v2(sd, long_index, bytes, there, 0, form, more)
                       : gex_AM_CommitReplyLong2_v2(sd, long_index, bytes, there, 0, form, more)) ==
            GASNET_OK);
  }
}

#define FORMS 7
#define BYTES 300

static void request(int form, int more, char* from) {
  const gex_Rank_t to = (me + 1) % size;
  char* const there = area(to, me, 0);
  gex_AM_SrcDesc_t sd;
  const gasnett_atomic_val_t before = gasnett_atomic_read(&answered, 0);
  fill(from, BYTES, (unsigned)form);
  switch (form) {
    case 0:
      CHECK(gasnet_AMRequestMedium(to, ask_index, from, BYTES, form, more) == GASNET_OK);
      break;
    case 1:
      CHECK(gasnet_AMRequestMedium2(to, ask_index, from, BYTES, form, more) == GASNET_OK);
      break;
    case 2:
      CHECK(gasnet_AMRequestLongAsync(to, ask_index, from, BYTES, there, form, more) == GASNET_OK);
      break;
    case 3:
      sd = gex_AM_PrepareRequestMedium(team, to, NULL, BYTES, BYTES, NULL, 0, 2);
      memcpy(gex_AM_SrcDescAddr(sd), from, BYTES);
      gex_AM_CommitRequestMedium(sd, ask_index, BYTES, form, more);
      break;
    case 4:
      sd = gex_AM_PrepareRequestMedium(team, to, NULL, BYTES, BYTES, NULL, 0, 2);
      memcpy(gex_AM_SrcDescAddr(sd), from, BYTES);
      CHECK(gex_AM_CommitRequestMedium_v2(sd, ask_index, BYTES, 0, form, more) == GASNET_OK);
      break;
    case 5:
      sd = gex_AM_PrepareRequestLong(team, to, NULL, BYTES, BYTES, NULL, NULL, 0, 2);
      memcpy(gex_AM_SrcDescAddr(sd), from, BYTES);
      gex_AM_CommitRequestLong(sd, ask_index, BYTES, there, form, more);
      break;
    default:
      sd = gex_AM_PrepareRequestLong(team, to, NULL, BYTES, BYTES, NULL, NULL, 0, 2);
      memcpy(gex_AM_SrcDescAddr(sd), from, BYTES);
      CHECK((more == 5 ? gex_AM_CommitRequestLong_v2(sd, ask_index, BYTES, there, 0, form, more)
                       : gex_AM_CommitRequestLong2_v2(sd, ask_index, BYTES, there, 0, form,
                                                      more)) == GASNET_OK);
  }
  GASNET_BLOCKUNTIL(gasnett_atomic_read(&answered, 0) != before);
  CHECK(form_seen == form && sum_seen == more && bytes_seen == (form == 0 ? 0 : BYTES));
  gex_NBI_Wait(GEX_EC_ALL, 0);
}

static void check_limits(void) {
  const gex_Event_t* const now = GEX_EVENT_NOW;
  const gex_Rank_t to = (me + 1) % size;
  CHECK(gex_AM_MaxArgs() == 16 && gasnet_AMMaxArgs() == 16);
  CHECK(gasnet_AMMaxMedium() == 65536);
  CHECK(gasnet_AMMaxLongRequest() == 2147483647 && gasnet_AMMaxLongReply() == 2147483647);
  CHECK(gex_AM_LUBRequestLong() == 2147483647 && gex_AM_LUBReplyLong() == 2147483647);
  CHECK(gex_AM_MaxRequestLong(team, to, now, 0, 16) >= gex_AM_LUBRequestLong());
  CHECK(gex_AM_MaxReplyLong(team, to, now, 0, 16) >= gex_AM_LUBReplyLong());
  CHECK(gex_AM_MaxReplyMedium(team, to, now, 0, 16) >= gex_AM_LUBReplyMedium());
  CHECK(gex_System_QueryHiddenAMConcurrencyLevel() == 0);
  CHECK(gex_System_QueryMaxThreads() >= 1);
#if GASNET_SEQ
  CHECK(gex_System_QueryMaxThreads() == 1);
#endif
  CHECK(strlen(gasnet_ErrorDesc(GASNET_ERR_BAD_ARG)) > 10);
  CHECK(strcmp(gasnet_ErrorDesc(GASNET_ERR_BAD_ARG), gasnet_ErrorDesc(GASNET_ERR_RESOURCE)) != 0);
}

static void check_objects(void) {
  gex_Client_t same_client;
  gex_EP_t same_endpoint;
  gex_TM_t same_team;
  gex_Segment_t same_segment, own = gex_EP_QuerySegment(endpoint);
  const gex_ProgressThreadInfo_t* threads = NULL;
  unsigned count = 9;
  int a = 0, b = 0, c = 0;
  gasnet_QueryGexObjects(&same_client, &same_endpoint, &same_team, &same_segment);
  CHECK(same_client == client && same_endpoint == endpoint && same_team == team &&
        same_segment == own);
  CHECK(!strcmp(gex_Client_QueryName(client), "CORE"));
  CHECK((gex_Client_QueryFlags(client) & ~GEX_FLAG_USES_GASNET1) == 0);
  CHECK(gex_Client_QueryCData(client) == NULL && gex_EP_QueryCData(endpoint) == NULL);
  gex_Client_SetCData(client, &a);
  gex_EP_SetCData(endpoint, &b);
  CHECK(gex_Client_QueryCData(client) == &a && gex_EP_QueryCData(endpoint) == &b);
  if (own != GEX_SEGMENT_INVALID) {
    CHECK(gex_Segment_QueryCData(own) == NULL);
    gex_Segment_SetCData(own, &c);
    CHECK(gex_Segment_QueryCData(own) == &c);
    CHECK(gex_Segment_QueryClient(own) == client && gex_Segment_QueryFlags(own) == 0);
  }
  /* Legal in clients that start the threads themselves. */
  gex_System_SetVerboseErrors(0);
  CHECK(gex_System_QueryProgressThreads(client, &count, &threads, 0) == GASNET_ERR_RESOURCE);
  CHECK(gex_System_QueryProgressThreads(client, NULL, &threads, 0) == GASNET_ERR_BAD_ARG);
  gex_System_SetVerboseErrors(1);
}

static void check_syncs(char* from) {
  const gex_Rank_t to = (me + 1) % size;
  gasnet_handle_t handles[2];
  uint64_t word = 0;
  fill(from, 64, 1);
  CHECK(gex_RMA_PutNBIVal(team, to, area(to, me, 0), 77, 8, 0) == 0);
  gex_NBI_Wait(GEX_EC_PUT, 0);
  gasnet_get(&word, to, area(to, me, 0), 8);
  CHECK(word == 77);
  handles[0] = gasnet_put_nb(to, area(to, me, 0), from, 64);
  while (gasnet_try_syncnb_nopoll(handles[0]) != GASNET_OK) gasnet_AMPoll();
  CHECK(gasnet_try_syncnb_nopoll(GASNET_INVALID_HANDLE) == GASNET_OK);
  for (int round = 0; round < 4; ++round) {
    handles[0] = gasnet_put_nb(to, area(to, me, 0), from, 64);
    handles[1] = gasnet_get_nb(from + 64, to, area(to, me, 0), 64);
    if (round == 0) {
      gasnet_wait_syncnb_some(handles, 2);
      gasnet_wait_syncnb_all(handles, 2);
    } else if (round == 1) {
      while (gasnet_try_syncnb_all(handles, 2) != GASNET_OK) gasnet_AMPoll();
    } else if (round == 2) {
      while (gasnet_try_syncnb_all_nopoll(handles, 2) != GASNET_OK) gasnet_AMPoll();
    } else {
      while (gasnet_try_syncnb_some_nopoll(handles, 2) != GASNET_OK) gasnet_AMPoll();
      gasnet_wait_syncnb_all(handles, 2);
    }
    CHECK(handles[0] == GASNET_INVALID_HANDLE && handles[1] == GASNET_INVALID_HANDLE);
    gasnet_get(from + 64, to, area(to, me, 0), 64);
    CHECK(holds(from + 64, 64, 1));
  }
}

void test_each_name(void) {
  static char from[BYTES];
  gex_AM_Entry_t rows[] = {
      {0, (gex_AM_Fn_t)on_ask, GEX_FLAG_AM_MEDLONG | GEX_FLAG_AM_REQUEST, 2, NULL, "ask"},
      {0, (gex_AM_Fn_t)on_answer, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, 2, NULL, "answer"},
      {0, (gex_AM_Fn_t)on_short_answer, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 2, NULL, "short"},
      {0, (gex_AM_Fn_t)on_answer, GEX_FLAG_AM_LONG | GEX_FLAG_AM_REPLY, 2, NULL, "long"}};
  CHECK(gex_EP_RegisterHandlers(endpoint, rows, 4) == GASNET_OK);
  ask_index = rows[0].gex_index;
  answer_index = rows[1].gex_index;
  short_index = rows[2].gex_index;
  long_index = rows[3].gex_index;
  BARRIER();
  check_limits();
  check_objects();
  check_syncs(from);
  for (int form = 0; form < FORMS; ++form) {
    request(form, 5, from);
    request(form, 6, from);
  }
  BARRIER();
}
