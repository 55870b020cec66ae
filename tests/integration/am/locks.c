/* Handler-safe locks: mutual exclusion, and misuse that ends a debug client's job. */
#include <pthread.h>
#include <unistd.h>

#include "client.h"

#define ROUNDS 2000
#define WORKERS 3

static gex_HSL_t lock = GEX_HSL_INITIALIZER;
/* Guarded by the lock: equal whenever the lock is free. */
static volatile uint64_t first, second;
static volatile uint64_t by_trylock;
static volatile uint32_t handled;
static gex_AM_Index_t step_index;

/* Called with the lock held. */
static void step_guarded(void) {
  CHECK(first == second);
  first = first + 1;
  for (volatile int i = 0; i < 20; ++i) {
  }
  second = second + 1;
}

static void on_step(gex_Token_t token) {
  (void)token;
  gex_HSL_Lock(&lock);
  step_guarded();
  handled = handled + 1;
  gex_HSL_Unlock(&lock);
}

static void work(void) {
  for (int i = 0; i < ROUNDS; ++i) {
    if (i % 2 == 0) {
      gex_HSL_Lock(&lock);
    } else {
      int answer;
      while ((answer = gex_HSL_Trylock(&lock)) != GASNET_OK) {
        CHECK(answer == GASNET_ERR_NOT_READY);
        gasnet_AMPoll();
      }
      by_trylock = by_trylock + 1;
    }
    step_guarded();
    gex_HSL_Unlock(&lock);
    CHECK(gex_AM_RequestShort0(team, (me + (gex_Rank_t)i) % size, step_index, 0) == 0);
  }
}

#ifdef GASNET_PAR
static void* worker(void* unused) {
  (void)unused;
  work();
  return NULL;
}
static void* try_held(void* answer) {
  *(int*)answer = gex_HSL_Trylock(&lock);
  if (*(int*)answer == GASNET_OK) gex_HSL_Unlock(&lock);
  return NULL;
}
static int trylock_elsewhere(void) {
  pthread_t other;
  int answer = -1;
  CHECK(!pthread_create(&other, NULL, try_held, &answer));
  CHECK(!pthread_join(other, NULL));
  return answer;
}
#endif

static uint64_t guarded_steps(void) {
  uint64_t steps;
  gex_HSL_Lock(&lock);
  steps = first;
  CHECK(second == steps && handled <= steps);
  gex_HSL_Unlock(&lock);
  return steps;
}

void test_locks(void) {
  gex_AM_Entry_t row = {
      0, (gex_AM_Fn_t)on_step, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "step"};
  unsigned threads = 1;
  gasnet_hsl_t other = GASNET_HSL_INITIALIZER;
  CHECK(gex_EP_RegisterHandlers(endpoint, &row, 1) == GASNET_OK);
  step_index = row.gex_index;
  BARRIER();
#ifdef GASNET_PAR
  pthread_t workers[WORKERS];
  threads = 1 + WORKERS;
  for (int i = 0; i < WORKERS; ++i) CHECK(!pthread_create(&workers[i], NULL, worker, NULL));
#endif
  work();
#ifdef GASNET_PAR
  for (int i = 0; i < WORKERS; ++i) CHECK(!pthread_join(workers[i], NULL));
#endif
  /* Every rank sends to all ranks in turn, so each rank's handlers run as often as it sends. */
  const uint64_t sent_to_each = (uint64_t)threads * ROUNDS;
  CHECK(ROUNDS % size == 0);
  GASNET_BLOCKUNTIL(handled == sent_to_each);
  BARRIER();
  CHECK(guarded_steps() == 2 * sent_to_each);
  CHECK(by_trylock == sent_to_each / 2);
  /* Two locks at a time, released in reverse order. */
  gasnet_hsl_lock(&lock);
  CHECK(gasnet_hsl_trylock(&other) == GASNET_OK);
#ifdef GASNET_PAR
  CHECK(trylock_elsewhere() == GASNET_ERR_NOT_READY);
#endif
  gasnet_hsl_unlock(&other);
  gasnet_hsl_unlock(&lock);
#ifdef GASNET_PAR
  CHECK(trylock_elsewhere() == GASNET_OK);
#endif
  gasnet_hsl_destroy(&other);
  gasnet_hsl_init(&other);
  gasnet_hsl_lock(&other);
  gasnet_hsl_unlock(&other);
  gasnet_hsl_destroy(&other);
}

/* ---- misuse ---- */

static void on_keep(gex_Token_t token) {
  (void)token;
  gex_HSL_Lock(&lock);
}
#ifdef GASNET_PAR
static void* unlock_it(void* unused) {
  (void)unused;
  gex_HSL_Unlock(&lock);
  return NULL;
}
#endif

static void hold_across(const char* what, gex_AM_Index_t keep_index) {
  char byte = 1;
  gex_HSL_Lock(&lock);
  if (!strcmp(what, "poll")) gasnet_AMPoll();
  if (!strcmp(what, "request")) gex_AM_RequestShort0(team, 0, keep_index, 0);
  if (!strcmp(what, "prepare")) gex_AM_PrepareRequestMedium(team, 0, NULL, 8, 64, NULL, 0, 0);
  if (!strcmp(what, "barrier")) BARRIER();
  if (!strcmp(what, "put")) gex_RMA_PutBlocking(team, 0, segment[0], &byte, 1, 0);
  if (!strcmp(what, "long")) usleep(1600000);
  gex_HSL_Unlock(&lock);
}

void test_lock_misuse(const char* what) {
  gex_AM_Entry_t row = {
      0, (gex_AM_Fn_t)on_keep, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 0, NULL, "keep"};
  gex_HSL_t other = GEX_HSL_INITIALIZER;
  CHECK(gex_EP_RegisterHandlers(endpoint, &row, 1) == GASNET_OK);
  BARRIER();
  if (me != 0) return;
  if (!strcmp(what, "none")) {
    memset(&other, 0, sizeof other);
    gex_HSL_Lock(&other);
  } else if (!strcmp(what, "twice")) {
    gex_HSL_Lock(&lock);
    gex_HSL_Lock(&lock);
  } else if (!strcmp(what, "try-twice")) {
    gex_HSL_Lock(&lock);
    gex_HSL_Trylock(&lock);
  } else if (!strcmp(what, "free")) {
    gex_HSL_Unlock(&lock);
  } else if (!strcmp(what, "order")) {
    gex_HSL_Lock(&lock);
    gex_HSL_Lock(&other);
    gex_HSL_Unlock(&lock);
  } else if (!strcmp(what, "init-twice")) {
    gex_HSL_Init(&lock);
  } else if (!strcmp(what, "destroy-held")) {
    gex_HSL_Lock(&other);
    gex_HSL_Destroy(&other);
  } else if (!strcmp(what, "destroyed")) {
    gex_HSL_Destroy(&other);
    gex_HSL_Lock(&other);
  } else if (!strcmp(what, "handler")) {
    gex_AM_RequestShort0(team, 0, row.gex_index, 0);
#ifdef GASNET_PAR
  } else if (!strcmp(what, "foreign")) {
    pthread_t thief;
    gex_HSL_Lock(&lock);
    CHECK(!pthread_create(&thief, NULL, unlock_it, NULL));
    pthread_join(thief, NULL);
#endif
  } else {
    hold_across(what, row.gex_index);
  }
}
