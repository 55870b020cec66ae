/* core_client CASE [DETAIL]: one case of the core API, using only the public headers. */
#include <sys/syscall.h>
#include <unistd.h>

#include "../../support/forbid_calls.h"
#include "../../support/patience.h"
#include "client.h"

gex_TM_t team;
gex_EP_t endpoint;
gex_Client_t client;
gex_Rank_t me, size;
char* segment[MAX_RANKS];

static void attach(void) {
  gex_Segment_t own;
  uintptr_t before = 1;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, me, NULL, NULL, &before, 0));
  CHECK(before == 0);
  CHECK(gex_Segment_Attach(&own, team, SEGMENT_BYTES) == GASNET_OK);
#if GASNET_SEGMENT_EVERYTHING
  /* All memory is a segment: each rank announces an area by a message to all ranks. */
  CHECK(own == GEX_SEGMENT_INVALID);
#else
  for (gex_Rank_t rank = 0; rank < size; ++rank) {
    void* address = NULL;
    uintptr_t bytes = 0;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, rank, &address, NULL, &bytes, 0));
    CHECK(bytes == SEGMENT_BYTES);
    segment[rank] = (char*)address;
  }
#endif
}

#if GASNET_SEGMENT_EVERYTHING
static volatile unsigned told;
static void on_address(gex_Token_t token, void* payload, size_t bytes) {
  gex_Token_Info_t info;
  gex_Token_Info(token, &info, GEX_TI_SRCRANK);
  CHECK(bytes == sizeof segment[0]);
  memcpy(&segment[info.gex_srcrank], payload, bytes);
  ++told;
}
static void tell_addresses(void) {
  gex_AM_Entry_t entry = {
      0, (gex_AM_Fn_t)on_address, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 0, NULL, "address"};
  char* mine = (char*)malloc(SEGMENT_BYTES);
  CHECK(gex_EP_RegisterHandlers(endpoint, &entry, 1) == GASNET_OK);
  BARRIER();
  for (gex_Rank_t rank = 0; rank < size; ++rank) {
    CHECK(gex_AM_RequestMedium0(team, rank, entry.gex_index, &mine, sizeof mine, GEX_EVENT_NOW,
                                0) == 0);
  }
  GASNET_BLOCKUNTIL(told == size);
}
#endif

static volatile int answered;
static void on_answer(gex_Token_t token) {
  (void)token;
  answered = 1;
}
static gex_AM_Index_t on_answer_index;
static void on_question(gex_Token_t token) {
  CHECK(gex_AM_ReplyShort0(token, on_answer_index, 0) == 0);
}

/* Rank 0 attaches at once; the other ranks first request a reply from it. */
static void ask_before_attach(void) {
  gex_AM_Entry_t rows[] = {
      {0, (gex_AM_Fn_t)on_question, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "question"},
      {0, (gex_AM_Fn_t)on_answer, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0, NULL, "answer"}};
  CHECK(gex_EP_RegisterHandlers(endpoint, rows, 2) == GASNET_OK);
  on_answer_index = rows[1].gex_index;
  BARRIER();
  if (me == 0) return;
  usleep(50000); /* by then rank 0 is inside */
  CHECK(gex_AM_RequestShort0(team, 0, rows[0].gex_index, 0) == 0);
  GASNET_BLOCKUNTIL(answered);
}

int main(int argc, char** argv) {
  const char* which = argc > 1 ? argv[1] : "";
  if (getenv("TEST_NO_CMA") != NULL) forbid_calls(SYS_process_vm_writev, SYS_process_vm_readv);
  if (getenv("TEST_NO_MEMORY") != NULL) forbid_calls(SYS_memfd_create, SYS_memfd_create);
  if (getenv("TEST_NO_PAGES") != NULL) forbid_calls(SYS_fallocate, SYS_fallocate);
  if (getenv("TEST_NO_DESCRIPTORS") != NULL) forbid_calls(SYS_eventfd2, SYS_eventfd2);
  if (gex_Client_Init(&client, &endpoint, &team, "CORE", &argc, &argv, GEX_FLAG_USES_GASNET1) !=
      GASNET_OK)
    return 98;
  me = gex_System_QueryJobRank();
  size = gex_System_QueryJobSize();
  CHECK(size <= MAX_RANKS);
  if (!strcmp(which, "publish")) {
    test_publish();
  } else if (!strcmp(which, "big-segment")) {
    const uintptr_t bytes = (uintptr_t)strtoull(argv[2], NULL, 0);
    gex_Segment_t own;
    if (gex_Segment_Attach(&own, team, bytes) != GASNET_OK) gasnet_exit(42);
    memset(gex_Segment_QueryAddr(own), 1, bytes);
  } else if (!strcmp(which, "overrun")) { /* OP END REACH FROM */
    test_overrun(argv[2], argv[3], strtoull(argv[4], NULL, 0), strtoull(argv[5], NULL, 0));
  } else if (!strcmp(which, "overrun-caught")) {
    test_overrun_caught(argv[2]);
  } else if (!strcmp(which, "outside")) {
    test_outside(argv[2]);
  } else if (!strcmp(which, "lazy-segment")) {
    test_lazy_segment(strtoull(argv[2], NULL, 0));
  } else if (!strcmp(which, "lazy-stream")) {
    test_lazy_stream(strtoull(argv[2], NULL, 0));
  } else if (!strcmp(which, "all-touched")) {
    test_all_touched(strtoull(argv[2], NULL, 0));
  } else if (!strcmp(which, "attach-again")) { /* BYTES RANK WHAT-IT-LACKS */
    test_attach_again(strtoull(argv[2], NULL, 0), (gex_Rank_t)atoi(argv[3]), argv[4]);
  } else if (!strcmp(which, "limits")) {
    printf("rank %u: local %zu global %zu\n", (unsigned)me, (size_t)gasnet_getMaxLocalSegmentSize(),
           (size_t)gasnet_getMaxGlobalSegmentSize());
  } else if (!strcmp(which, "getenv")) {
    const char* names[] = {"TEST_ALL", "TEST_SOME", "HYDRANT_JOB_RANK", "GASNET_PSHM_NODES"};
    for (int i = 0; i < 4; ++i) {
      const char* got = gasnet_getenv(names[i]);
      const char* tools = gasnett_getenv(names[i]);
      const char* own = getenv(names[i]);
      CHECK((got == NULL) == (tools == NULL) && (got == NULL || !strcmp(got, tools)));
      printf("rank %u: %s is %s, own %s\n", (unsigned)me, names[i], got == NULL ? "-" : got,
             own == NULL ? "-" : own);
    }
  } else if (!strcmp(which, "start")) { /* COMMAND: a process that the rank starts */
    const int status = system(argv[2]);
    printf("rank %u has started a process, status %d\n", (unsigned)me, WEXITSTATUS(status));
  } else if (!strcmp(which,
                     "heap-offset")) { /* of rank 0, and the increment for every other rank */
    const uintptr_t more = me == 0 ? 0 : (uintptr_t)strtoull(argv[2], NULL, 0);
    if (gasnet_attach(NULL, 0, SEGMENT_BYTES, 3 * GASNET_PAGESIZE + more) != GASNET_OK)
      gasnet_exit(42);
  } else if (!strcmp(which, "line")) { /* no rank prints another line before TEST_FILE exists */
    printf("rank %u says a line\n", (unsigned)me);
    for (int i = 0; access(getenv("TEST_FILE"), F_OK) != 0; ++i) {
      CHECK(i < 6000 * hydrant_test_patience());
      usleep(10000);
    }
  } else if (!strcmp(which, "verbose")) {
    gex_EP_t another = endpoint;
    CHECK(gex_System_GetVerboseErrors() == 1);
    if (argc > 2) gex_System_SetVerboseErrors(0);
    for (int i = 1; i < GASNET_MAXEPS; ++i)
      CHECK(gex_EP_Create(&another, client, GEX_EP_CAPABILITY_ALL, 0) == GASNET_OK);
    CHECK(gex_EP_QueryIndex(another) == GASNET_MAXEPS - 1);
    CHECK(gex_EP_Create(&another, client, GEX_EP_CAPABILITY_ALL, 0) == GASNET_ERR_RESOURCE);
    CHECK(gex_EP_RegisterHandlers(endpoint, NULL, 1) == GASNET_ERR_BAD_ARG);
  } else if (!strcmp(which, "exit") && !strcmp(argv[2], "before-attach")) {
    test_exit(argv[2]);
  } else {
    if (!strcmp(which, "early")) ask_before_attach();
    attach();
#if GASNET_SEGMENT_EVERYTHING
    tell_addresses();
#endif
    if (!strcmp(which, "arities"))
      test_arities();
    else if (!strcmp(which, "sizes"))
      test_sizes();
    else if (!strcmp(which, "negotiated"))
      test_negotiated();
    else if (!strcmp(which, "flood"))
      test_flood();
    else if (!strcmp(which, "threads"))
      test_threads();
    else if (!strcmp(which, "turns"))
      test_turns();
    else if (!strcmp(which, "handler-waits"))
      test_handler_waits(argv[2]);
    else if (!strcmp(which, "prepared"))
      test_prepared(argv[2]);
    else if (!strcmp(which, "once"))
      test_once();
    else if (!strcmp(which, "each-name"))
      test_each_name();
    else if (!strcmp(which, "diagnostics"))
      test_diagnostics(argv[2]);
    else if (!strcmp(which, "segments"))
      test_segments();
    else if (!strcmp(which, "exit"))
      test_exit(argv[2]);
    else if (!strcmp(which, "locks"))
      test_locks();
    else if (!strcmp(which, "misused-lock"))
      test_lock_misuse(argv[2]);
    else if (!strcmp(which, "intruder"))
      test_intruder(argv[2], argv[3]);
    else if (!strcmp(which, "cancelled"))
      test_cancelled();
    else if (strcmp(which, "early") != 0)
      return 97;
  }
  BARRIER();
  printf("rank %u done\n", (unsigned)me);
  gasnet_exit(0);
  return 0;
}
