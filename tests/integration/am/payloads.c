/* Payloads of all sizes to segment, heap and stack of the peer; negotiated payloads; and segments. */
#include "client.h"

static gex_AM_Index_t on_payload_index, on_done_index, on_reply_index;
static volatile unsigned done;
static char* volatile target; /* of this rank, for Longs to memory outside of segments */
static char* volatile peers_target;

static void on_payload(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t seed) {
  CHECK(holds(payload, bytes, (unsigned)seed));
  gex_Token_Info_t info;
  gex_Token_Info(token, &info, GEX_TI_ALL);
  if (!info.gex_is_long) CHECK(((uintptr_t)payload & 7) == 0);
  CHECK(gex_AM_ReplyShort1(token, on_done_index, 0, (gex_AM_Arg_t)bytes) == 0);
}
static void on_done(gex_Token_t token, gex_AM_Arg_t bytes) {
  (void)token;
  (void)bytes;
  ++done;
}
static void on_reply(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t seed) {
  (void)token;
  CHECK(holds(payload, bytes, (unsigned)seed));
  ++done;
}
/* Replies with a negotiated message of the requested length. */
static void on_ask(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t seed) {
  CHECK(holds(payload, bytes, (unsigned)seed));
  gex_AM_SrcDesc_t sd = gex_AM_PrepareReplyMedium(token, NULL, bytes, bytes, NULL, 0, 1);
  CHECK(sd != GEX_AM_SRCDESC_NO_OP && gex_AM_SrcDescSize(sd) >= bytes);
  fill(gex_AM_SrcDescAddr(sd), bytes, (unsigned)seed + 1);
  gex_AM_CommitReplyMedium1(sd, on_reply_index, bytes, seed + 1);
}
static void on_target(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t seed) {
  (void)token;
  (void)seed;
  CHECK(bytes == sizeof peers_target);
  memcpy((void*)&peers_target, payload, bytes);
}

static gex_AM_Index_t on_ask_index, on_target_index;
static void enlist_all(void) {
  gex_AM_Entry_t rows[] = {
      {0, (gex_AM_Fn_t)on_payload, GEX_FLAG_AM_MEDLONG | GEX_FLAG_AM_REQUEST, 1, NULL, "payload"},
      {0, (gex_AM_Fn_t)on_done, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 1, NULL, "done"},
      {0, (gex_AM_Fn_t)on_reply, GEX_FLAG_AM_MEDLONG | GEX_FLAG_AM_REPLY, 1, NULL, "reply"},
      {0, (gex_AM_Fn_t)on_ask, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 1, NULL, "ask"},
      {0, (gex_AM_Fn_t)on_target, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 1, NULL, "target"}};
  CHECK(gex_EP_RegisterHandlers(endpoint, rows, 5) == GASNET_OK);
  on_payload_index = rows[0].gex_index;
  on_done_index = rows[1].gex_index;
  on_reply_index = rows[2].gex_index;
  on_ask_index = rows[3].gex_index;
  on_target_index = rows[4].gex_index;
  BARRIER();
}

static void send_medium(gex_Rank_t to, char* data, size_t bytes) {
  const unsigned before = done;
  fill(data, bytes, (unsigned)bytes);
  CHECK(gex_AM_RequestMedium1(team, to, on_payload_index, data, bytes, GEX_EVENT_NOW, 0,
                              (gex_AM_Arg_t)bytes) == 0);
  memset(data, 0, bytes); /* local completion was awaited */
  GASNET_BLOCKUNTIL(done == before + 1);
}
static void send_long(gex_Rank_t to, char* data, size_t bytes, char* where) {
  const unsigned before = done;
  fill(data, bytes, (unsigned)bytes + 5);
  CHECK(gex_AM_RequestLong1(team, to, on_payload_index, data, bytes, where, GEX_EVENT_NOW, 0,
                            (gex_AM_Arg_t)bytes + 5) == 0);
  memset(data, 0, bytes);
  GASNET_BLOCKUNTIL(done == before + 1);
}

void test_sizes(void) {
  enum { STACK_BYTES = 200000 };
  char on_stack[STACK_BYTES];
  const gex_Rank_t to = (me + 1) % size, from = (me + size - 1) % size;
  const size_t most = gex_AM_MaxRequestMedium(team, to, GEX_EVENT_NOW, 0, 1);
  char* data = (char*)malloc(most > STACK_BYTES ? most : STACK_BYTES);
  enlist_all();
  CHECK(most >= 512 && gex_AM_LUBRequestMedium() <= most);
  for (size_t bytes = 0; bytes < 300; ++bytes) send_medium(to, data, bytes);
  for (size_t bytes = 512; bytes <= most; bytes *= 2) {
    send_medium(to, data, bytes - 1);
    send_medium(to, data, bytes);
    if (bytes < most) send_medium(to, data, bytes + 1);
  }
  send_medium(to, data, most);
  const size_t longs[] = {0, 1, 7, 8, 63, 64, 4095, 4097, 65536, 65537, AREA_BYTES};
  for (size_t i = 0; i < sizeof longs / sizeof longs[0]; ++i) {
    if (longs[i] <= STACK_BYTES) send_long(to, data, longs[i], area(to, me, 0));
  }
  /* Memory outside of segments. */
  for (int where = 0; where < 2; ++where) {
    char* heap = (char*)malloc(STACK_BYTES);
    target = where == 0 ? heap : on_stack;
    peers_target = NULL;
    BARRIER();
    char* mine = target;
    CHECK(gex_AM_RequestMedium1(team, from, on_target_index, &mine, sizeof mine, GEX_EVENT_NOW, 0,
                                0) == 0);
    GASNET_BLOCKUNTIL(peers_target != NULL);
    send_long(to, data, 100, peers_target + 1);
    send_long(to, data, STACK_BYTES, peers_target);
    send_long(to, data, 0, (char*)(uintptr_t)16);
    BARRIER();
    free(heap);
  }
  free(data);
}

void test_negotiated(void) {
  enlist_all();
  for (gex_Rank_t to = 0; to < size; ++to) {
    const size_t most = gex_AM_MaxRequestMedium(team, to, NULL, GEX_FLAG_AM_PREPARE_LEAST_ALLOC, 1);
    const size_t sizes[] = {0, 1, 100, 240, 5000, most};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
      const size_t bytes = sizes[i];
      const unsigned before = done;
      gex_AM_SrcDesc_t sd = gex_AM_PrepareRequestMedium(team, to, NULL, bytes, most, NULL, 0, 1);
      CHECK(gex_AM_SrcDescSize(sd) >= bytes && gex_AM_SrcDescSize(sd) <= most);
      CHECK(((uintptr_t)gex_AM_SrcDescAddr(sd) & 7) == 0);
      fill(gex_AM_SrcDescAddr(sd), bytes, 3);
      gex_AM_CommitRequestMedium1(sd, on_ask_index, bytes, 3);
      GASNET_BLOCKUNTIL(done == before + 1);
      /* Three negotiated messages: with the client's own buffer and a call that may fail, a Long, and a
       * cancelled one. */
      char* own = (char*)malloc(bytes + 1);
      gex_Event_t lc;
      fill(own, bytes, 9);
      sd = gex_AM_PrepareRequestMedium(team, to, own, bytes, bytes, &lc, 0, 1);
      CHECK(gex_AM_SrcDescAddr(sd) == own && gex_AM_SrcDescSize(sd) == bytes);
      if (gex_AM_CommitRequestMedium1_v2(sd, on_payload_index, bytes, GEX_FLAG_IMMEDIATE, 9) != 0)
        CHECK(gex_AM_CommitRequestMedium1_v2(sd, on_payload_index, bytes, 0, 9) == 0);
      gex_Event_Wait(lc);
      GASNET_BLOCKUNTIL(done == before + 2);
      sd = gex_AM_PrepareRequestLong(team, to, NULL, bytes, bytes, NULL, NULL, 0, 1);
      fill(gex_AM_SrcDescAddr(sd), bytes, 4);
      gex_AM_CommitRequestLong1(sd, on_payload_index, bytes, area(to, me, 0), 4);
      GASNET_BLOCKUNTIL(done == before + 3);
      sd = gex_AM_PrepareRequestMedium(team, to, NULL, bytes, most, NULL, 0, 1);
      CHECK(gex_AM_CancelRequestMedium(sd, 0) == GASNET_OK);
      free(own);
    }
  }
}

void test_segments(void) {
  gasnet_seginfo_t seginfo[MAX_RANKS];
  gasnet_nodeinfo_t nodeinfo[MAX_RANKS];
  gex_RankInfo_t* near;
  gex_Rank_t near_count, my_index, sets, set, hosts, host;
  CHECK(gasnet_getSegmentInfo(seginfo, (int)size) == GASNET_OK);
  CHECK(gasnet_getNodeInfo(nodeinfo, (int)size) == GASNET_OK);
  gex_System_QueryNbrhdInfo(&near, &near_count, &my_index);
  gex_System_QueryMyPosition(&sets, &set, &hosts, &host);
  CHECK(near[my_index].gex_jobrank == me && set < sets);
  CHECK(hosts == (gex_Rank_t)atoi(getenv("TEST_HOSTS")) && host < hosts);
  CHECK(nodeinfo[me].supernode == set);
  if (gasnet_getenv("GASNET_SUPERNODE_MAXSIZE") != NULL)
    CHECK(near_count <= (gex_Rank_t)atoi(gasnet_getenv("GASNET_SUPERNODE_MAXSIZE")));
  for (gex_Rank_t rank = 0; rank < size; ++rank) {
    void *owner = NULL, *here = NULL;
    uintptr_t bytes = 0;
    int is_near = 0;
    for (gex_Rank_t i = 0; i < near_count; ++i) is_near |= near[i].gex_jobrank == rank;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, rank, &owner, &here, &bytes, 0));
    CHECK(seginfo[rank].addr == owner && seginfo[rank].size == bytes && bytes == SEGMENT_BYTES);
    CHECK((here != NULL) == is_near);
    CHECK((nodeinfo[rank].supernode == nodeinfo[me].supernode) == is_near);
    if (is_near) {
      CHECK((char*)owner + nodeinfo[rank].offset == (char*)here);
      ((volatile char*)here)[me] = (char)(me + 1);
      ((volatile char*)here)[bytes - 1 - me] = (char)(me + 101);
    }
  }
  BARRIER();
  for (gex_Rank_t i = 0; i < near_count; ++i) {
    const gex_Rank_t rank = near[i].gex_jobrank;
    CHECK(segment[me][rank] == (char)(rank + 1));
    CHECK(segment[me][SEGMENT_BYTES - 1 - rank] == (char)(rank + 101));
  }
}

void test_publish(void) {
  gex_Segment_t own;
  void* owner = NULL;
  uintptr_t bytes = 1;
  const uintptr_t mine = (me + 1) * (uintptr_t)GASNET_PAGESIZE;
  CHECK(gex_Segment_Create(&own, client, NULL, mine, GEX_MK_HOST, 0) == GASNET_OK);
  CHECK(gex_EP_PublishBoundSegment(team, NULL, 0, 0) == GASNET_OK); /* no segment is bound yet */
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, (me + 1) % size, NULL, NULL, &bytes, 0));
  CHECK(bytes == 0);
  CHECK(gex_EP_BindSegment(endpoint, own, 0) == GASNET_OK);
  const size_t count = me != size - 1 || size == 1; /* the last rank does not publish */
  CHECK(gex_EP_PublishBoundSegment(team, &endpoint, count, 0) == GASNET_OK);
  for (gex_Rank_t rank = 0; rank < size; ++rank) {
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, rank, &owner, NULL, &bytes, 0));
    const int hidden = size > 1 && rank == size - 1 && rank != me;
    CHECK(bytes == (hidden ? 0 : (rank + 1) * (uintptr_t)GASNET_PAGESIZE));
    segment[rank] = (char*)owner;
  }
  enlist_all();
  char data[GASNET_PAGESIZE];
  if (size < 2 || (me + 1) % size != size - 1)
    send_long((me + 1) % size, data, sizeof data, segment[(me + 1) % size]);
}
