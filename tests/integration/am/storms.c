/* All ranks send to all ranks, from one thread or several; and all the ways to end. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

static gex_AM_Index_t on_request_index, on_reply_index, on_quit_index;
static gasnett_atomic_t requests = gasnett_atomic_init(0), replies = gasnett_atomic_init(0);

static void on_request(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t seed) {
  CHECK(holds(payload, bytes, (unsigned)seed));
  gasnett_atomic_increment(&requests, 0);
  if ((seed & 1) != 0) {
    CHECK(gex_AM_ReplyMedium1(token, on_reply_index, payload, bytes, GEX_EVENT_NOW, 0, seed) == 0);
  }
}
static void on_reply(gex_Token_t token, void* payload, size_t bytes, gex_AM_Arg_t seed) {
  (void)token;
  CHECK(holds(payload, bytes, (unsigned)seed));
  gasnett_atomic_increment(&replies, 0);
}
static void on_quit_handler(gex_Token_t token, gex_AM_Arg_t code) {
  (void)token;
  gasnet_exit(code);
}
static void enlist_all(void) {
  gex_AM_Entry_t rows[] = {
      {0, (gex_AM_Fn_t)on_request, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REQUEST, 1, NULL, "request"},
      {0, (gex_AM_Fn_t)on_reply, GEX_FLAG_AM_MEDIUM | GEX_FLAG_AM_REPLY, 1, NULL, "reply"},
      {0, (gex_AM_Fn_t)on_quit_handler, GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 1, NULL, "quit"}};
  CHECK(gex_EP_RegisterHandlers(endpoint, rows, 3) == GASNET_OK);
  on_request_index = rows[0].gex_index;
  on_reply_index = rows[1].gex_index;
  on_quit_index = rows[2].gex_index;
  BARRIER();
}

/* No rank polls explicitly: sending must poll. */
static void storm(unsigned rounds, unsigned salt) {
  char data[3000];
  const size_t limit = gex_AM_LUBRequestMedium();
  for (unsigned i = 0; i < rounds; ++i) {
    for (gex_Rank_t to = 0; to < size; ++to) {
      const size_t bytes = (i * 97 + salt) % (limit < sizeof data ? limit : sizeof data);
      fill(data, bytes, i & 0xff);
      CHECK(gex_AM_RequestMedium1(team, to, on_request_index, data, bytes, GEX_EVENT_NOW, 0,
                                  (gex_AM_Arg_t)(i & 0xff)) == 0);
    }
  }
}

enum { ROUNDS = 2000, THREAD_ROUNDS = 400, THREADS = 4 };

void test_flood(void) {
  enlist_all();
  storm(ROUNDS, me);
  GASNET_BLOCKUNTIL(gasnett_atomic_read(&replies, 0) == ROUNDS / 2 * size &&
                    gasnett_atomic_read(&requests, 0) == ROUNDS * size);
  BARRIER();
  CHECK(gasnett_atomic_read(&requests, 0) == ROUNDS * size);
}

#if GASNET_PAR
static void* one_thread(void* salt) {
  storm(THREAD_ROUNDS, (unsigned)(uintptr_t)salt);
  GASNET_BLOCKUNTIL(gasnett_atomic_read(&replies, 0) == THREADS * THREAD_ROUNDS / 2 * size);
  return NULL;
}
#endif

void test_threads(void) {
#if GASNET_PAR
  pthread_t threads[THREADS];
  enlist_all();
  for (uintptr_t i = 0; i < THREADS; ++i)
    CHECK(!pthread_create(&threads[i], NULL, one_thread, (void*)i));
  for (int i = 0; i < THREADS; ++i) CHECK(!pthread_join(threads[i], NULL));
  GASNET_BLOCKUNTIL(gasnett_atomic_read(&requests, 0) == THREADS * THREAD_ROUNDS * size);
#endif
}

/* PARSYNC threads that take turns: every call may come from another thread. */
enum { TURNS = 40, TURN_ROUNDS = 10 };
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void* take_turns(void* salt) {
  int over = 0;
  for (int i = 0; i < TURNS; ++i) {
    CHECK(!pthread_mutex_lock(&turn));
    storm(TURN_ROUNDS, (unsigned)(uintptr_t)salt);
    CHECK(!pthread_mutex_unlock(&turn));
  }
  while (!over) {
    CHECK(!pthread_mutex_lock(&turn));
    CHECK(gasnet_AMPoll() == GASNET_OK);
    over = gasnett_atomic_read(&replies, 0) == THREADS * TURNS * TURN_ROUNDS / 2 * size;
    CHECK(!pthread_mutex_unlock(&turn));
    if (!over) sched_yield();
  }
  return NULL;
}

void test_turns(void) {
  pthread_t threads[THREADS];
  enlist_all();
  for (uintptr_t i = 0; i < THREADS; ++i)
    CHECK(!pthread_create(&threads[i], NULL, take_turns, (void*)i));
  for (int i = 0; i < THREADS; ++i) CHECK(!pthread_join(threads[i], NULL));
  GASNET_BLOCKUNTIL(gasnett_atomic_read(&requests, 0) == THREADS * TURNS * TURN_ROUNDS * size);
}

static void* leave(void* code) {
  gasnet_exit((int)(intptr_t)code);
  return NULL;
}
static void leave_with_29(int number) {
  (void)number;
  gasnet_exit(29);
}
static void* read_forever(void* stream) {
  (void)getc((FILE*)stream);
  return NULL;
}
static void leave_by_signal(int number) {
  (void)number;
  gasnet_exit(98);
}
/* Interrupts the exiting thread while it waits for another thread that reads. */
static void be_interrupted_in_exit(void) {
  const struct itimerval soon = {{0, 20000}, {0, 20000}};
  pthread_t reader;
  int ends[2];
  CHECK(!pipe(ends));
  CHECK(!pthread_create(&reader, NULL, read_forever, fdopen(ends[0], "r")));
  usleep(20000);
  signal(SIGALRM, leave_by_signal);
  CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
  gasnet_exit(29);
}
/* exit(3) runs this destructor, and the library's earlier exit hook. */
static int leaves_late = 0;
__attribute__((destructor)) static void leave_late(void) {
  if (!leaves_late) return;
  fprintf(stdout, "rank %u leaves late", (unsigned)me);
  gasnet_exit(98);
}
/* A child of a rank is not a rank. */
static void fork_one_that_exits(void) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) gasnet_exit(98);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 98);
}
static void spin(void) {
  for (;;) continue;
}

void test_exit(const char* how) {
  if (!strcmp(how, "before-attach")) {
    if (me == 0) gasnet_exit(21);
    spin();
  }
  enlist_all();
  if (!strcmp(how, "handler")) {
    if (me == 0) gex_AM_RequestShort1(team, size - 1, on_quit_index, 0, 22);
    GASNET_BLOCKUNTIL(0);
  } else if (!strcmp(how, "prepared")) {
    if (me == 0) {
      CHECK(gex_AM_PrepareRequestMedium(team, size - 1, NULL, 1000, 1000, NULL, 0, 1) != NULL);
      gasnet_exit(23);
    }
    GASNET_BLOCKUNTIL(0);
  } else if (!strcmp(how, "threads")) {
    pthread_t one, two;
    if (me == 0) {
      CHECK(!pthread_create(&one, NULL, leave, (void*)(intptr_t)24));
      CHECK(!pthread_create(&two, NULL, leave, (void*)(intptr_t)24));
    }
    for (;;) pause();
  } else if (!strcmp(how, "main")) {
    exit(25);
  } else if (!strcmp(how, "spin")) {
    if (me == 0) gasnet_exit(26);
    spin();
  } else if (!strcmp(how, "zero-spin")) { /* buffered output must still appear */
    printf("rank %u was here", (unsigned)me);
    if (me == 0) gasnet_exit(0);
    spin();
  } else if (!strcmp(how, "zero-wait")) {
    printf("rank %u was here", (unsigned)me);
    if (me == 0) gasnet_exit(0);
    BARRIER();
  } else if (!strcmp(how, "file")) {
    FILE* file = fopen(getenv("TEST_FILE"), me == 0 ? "w" : "r");
    if (me == 0) fputs("all of it", file);
    BARRIER();
    gasnet_exit(27);
  } else if (!strcmp(how, "reader")) { /* a thread holds the lock of a stream for ever */
    pthread_t reader;
    int ends[2];
    CHECK(!pipe(ends));
    CHECK(!pthread_create(&reader, NULL, read_forever, fdopen(ends[0], "r")));
    usleep(20000);
    gasnet_exit(28);
  } else if (!strcmp(how, "interrupted")) {
    if (me == 0) be_interrupted_in_exit();
    GASNET_BLOCKUNTIL(0);
  } else if (!strcmp(how, "late")) {
    leaves_late = 1;
    exit(30);
  } else if (!strcmp(how, "child")) {
    fork_one_that_exits();
    BARRIER();
    usleep(500000); /* the other ranks would have been notified by then */
    gasnet_exit(31);
  } else if (!strcmp(how, "quit")) { /* a SIGQUIT from outside */
    if (me == 0) raise(SIGQUIT);
    GASNET_BLOCKUNTIL(0);
  } else if (!strcmp(how, "interrupt") || !strcmp(how, "interrupt-caught")) {
    if (!strcmp(how, "interrupt-caught")) signal(SIGQUIT, leave_with_29);
    BARRIER();
    if (me == size - 1) {
      kill(getpid(), SIGINT);
      spin();
    }
    GASNET_BLOCKUNTIL(0);
  } else if (!strcmp(how, "killed")) { /* during a flood */
    if (me == size - 1) {
      storm(100, me);
      raise(SIGKILL);
    }
    for (;;) storm(100, me);
  } else {
    gasnet_exit(96);
  }
}
