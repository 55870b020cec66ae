/* Threads that call although the program's thread mode forbids it, and threads that are cancelled. */
#include <pthread.h>
#include <unistd.h>

#include "../../support/patience.h"
#include "client.h"

/* ---- a second thread in SEQ and PARSYNC ---- */

static volatile int is_inside;
static const char* intrusion;

static void* intrude(void* unused) {
  char here[8] = "";
  (void)unused;
  (void)pthread_setname_np(pthread_self(), "intruder");
  for (int i = 0; !is_inside && i < 6000 * hydrant_test_patience(); ++i) usleep(10000);
  if (!strcmp(intrusion, "poll"))
    (void)gasnet_AMPoll();
  else if (!strcmp(intrusion, "request"))
    (void)gex_AM_RequestShort0(team, me, GEX_AM_INDEX_BASE, 0);
  else if (!strcmp(intrusion, "put"))
    (void)gex_RMA_PutBlocking(team, me, segment[me], here, sizeof here, 0);
  else if (!strcmp(intrusion, "wait"))
    gex_NBI_Wait(GEX_EC_ALL, 0);
  else if (!strcmp(intrusion, "barrier"))
    gasnet_barrier_notify(0, GASNET_BARRIERFLAG_UNNAMED);
  else if (!strcmp(intrusion, "prepare"))
    (void)gex_AM_PrepareRequestMedium(team, me, NULL, 0, 8, NULL, 0, 0);
  else if (!strcmp(intrusion, "register"))
    (void)gex_EP_RegisterHandlers(endpoint, NULL, 0);
  else if (!strcmp(intrusion, "query"))
    (void)gex_EP_QueryBoundSegmentNB(team, me, NULL, NULL, NULL, 0);
  return NULL;
}

/* Keeps the first thread inside its own request until the second thread has called. */
static void on_hold(gex_Token_t token) {
  (void)token;
  is_inside = 1;
  for (int i = 0; i < 6000 * hydrant_test_patience(); ++i) usleep(10000);
}

/* `how`: "beside" while the first thread is inside a call, "alone" while it waits elsewhere. */
void test_intruder(const char* how, const char* what) {
  pthread_t thread;
  gex_AM_Entry_t row = {
      0, (gex_AM_Fn_t)on_hold, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "hold"};
  CHECK(gex_EP_RegisterHandlers(endpoint, &row, 1) == GASNET_OK);
  BARRIER();
  if (me == 0) {
    intrusion = what;
    if (!strcmp(how, "alone")) is_inside = 1;
    CHECK(!pthread_create(&thread, NULL, intrude, NULL));
    if (!strcmp(how, "beside")) CHECK(gex_AM_RequestShort0(team, me, row.gex_index, 0) == 0);
    CHECK(!pthread_join(thread, NULL));
  }
}

/* ---- cancelled threads ---- */

#if GASNET_PAR
enum { CANCELLED_ROUNDS = 150, CANCELLED_THREADS = 3 };
static gex_AM_Index_t on_ask_index, on_told_index;
static gasnett_atomic_t asked = gasnett_atomic_init(0), told = gasnett_atomic_init(0);
static gasnett_atomic_t failed = gasnett_atomic_init(0);

/* A handler may have cancellation points. It runs inside some call of some thread. */
static void on_ask(gex_Token_t token) {
  pthread_testcancel();
  CHECK(gex_AM_ReplyShort0(token, on_told_index, 0) == 0);
  pthread_testcancel();
}
static void on_told(gex_Token_t token) {
  (void)token;
  pthread_testcancel();
  gasnett_atomic_increment(&told, 0);
}
static void note_failure(void* call) {
  fprintf(stderr, "rank %u: a thread was cancelled inside %s\n", (unsigned)me, (const char*)call);
  gasnett_atomic_increment(&failed, 0);
}

/* Each call must return before the thread is cancelled. */
#define WHOLE(call)                           \
  do {                                        \
    static char name[] = #call;               \
    pthread_cleanup_push(note_failure, name); \
    call;                                     \
    pthread_cleanup_pop(0);                   \
    pthread_testcancel();                     \
  } while (0)

static void* work(void* salt) {
  unsigned random = (unsigned)(uintptr_t)salt;
  char here[256];
  fill(here, sizeof here, 1);
  for (;;) {
    const gex_Rank_t to = (gex_Rank_t)(rand_r(&random) % size);
    char* there = area(to, me, 0);
    switch (rand_r(&random) % 5) {
      case 0:
        WHOLE(CHECK(gex_AM_RequestShort0(team, to, on_ask_index, 0) == 0);
              gasnett_atomic_increment(&asked, 0));
        break;
      case 1: WHOLE(CHECK(gasnet_AMPoll() == GASNET_OK)); break;
      case 2:
        WHOLE(CHECK(gex_RMA_PutBlocking(team, to, there, here, sizeof here, 0) == GASNET_OK));
        break;
      case 3: WHOLE(gex_Event_Wait(gex_RMA_GetNB(team, here, to, there, sizeof here, 0))); break;
      default:
        /* Sleeps until all requests have got their replies. */
        WHOLE(GASNET_BLOCKUNTIL(gasnett_atomic_read(&told, 0) >= gasnett_atomic_read(&asked, 0)));
    }
  }
  return NULL;
}
#endif

void test_cancelled(void) {
#if GASNET_PAR
  gex_AM_Entry_t rows[] = {
      {0, (gex_AM_Fn_t)on_ask, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "ask"},
      {0, (gex_AM_Fn_t)on_told, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REPLY, 0, NULL, "told"}};
  unsigned random = me + 1;
  CHECK(gex_EP_RegisterHandlers(endpoint, rows, 2) == GASNET_OK);
  on_ask_index = rows[0].gex_index;
  on_told_index = rows[1].gex_index;
  BARRIER();
  for (int round = 0; round < CANCELLED_ROUNDS; ++round) {
    pthread_t threads[CANCELLED_THREADS];
    for (int i = 0; i < CANCELLED_THREADS; ++i)
      CHECK(!pthread_create(&threads[i], NULL, work, (void*)(uintptr_t)rand_r(&random)));
    for (int i = 0; i < CANCELLED_THREADS; ++i) {
      usleep((useconds_t)(rand_r(&random) % 2000));
      CHECK(!pthread_cancel(threads[i]));
    }
    for (int i = 0; i < CANCELLED_THREADS; ++i) {
      void* end = NULL;
      CHECK(!pthread_join(threads[i], &end));
      CHECK(end == PTHREAD_CANCELED);
    }
    CHECK(gasnett_atomic_read(&failed, 0) == 0);
  }
  GASNET_BLOCKUNTIL(gasnett_atomic_read(&told, 0) == gasnett_atomic_read(&asked, 0));
#endif
}
