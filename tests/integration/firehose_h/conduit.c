/* A conduit like those in GASNet's own tree. Its internal header comes first, and it uses no GASNet
 * header of this project. It polls before firehose_init and after firehose_fini, and calls
 * firehose_poll() only when messages have arrived. Two processes put into each other, with few regions
 * to pin. */
#define _GNU_SOURCE
/* clang-format off */
#include <gasnet_internal.h>
#include <firehose.h>
/* clang-format on */

#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "check.h"

#if defined(HYDRANT_GASNET_MODES_H)
#error "a header of this project's GASNet was included"
#endif

enum { CHUNK = 128 * 1024, CHUNKS = 64, DEPTH = 8, REGIONS = 6 };

gex_Rank_t gasneti_mynode, gasneti_nodes = 2;
gex_TM_t gasneti_thunk_tm;
static firehose_info_t info;
static unsigned char* segment; /* this rank's part, then the other rank's; both ranks map both */
static int wire;

typedef struct {
  int ready[2];
  int done[2];     /* completed puts of each rank */
  int declined[2]; /* received replies, which are declines at first */
  int let_go;      /* held requests may be released */
  uint64_t messages[2];
} words_t;
static words_t* words;
#define LOAD(word) __atomic_load_n(&words->word, __ATOMIC_ACQUIRE)
#define STORE(word, value) __atomic_store_n(&words->word, value, __ATOMIC_RELEASE)

static uintptr_t chunk_of(gex_Rank_t rank, unsigned i) {
  return (uintptr_t)segment + ((size_t)rank * CHUNKS + i) * CHUNK;
}

/* ---- messages ---- */

struct test_token {
  gex_Rank_t from;
};
static int in_handler;
static int replied;

unsigned int test_token_info(gex_Token_t token, gex_Token_Info_t* about) {
  about->gex_srcrank = token->from;
  return GEX_TI_SRCRANK;
}

int test_send(int is_reply, gex_Rank_t node, int handler, const void* data, size_t len) {
  unsigned char frame[2 + TEST_MAX_MEDIUM];
  CHECK(node == 1 - gasneti_mynode && len <= TEST_MAX_MEDIUM);
  /* Requests are never sent in a handler; a reply is sent once, in the handler of a request. */
  CHECK(is_reply ? in_handler == 1 && !replied++ : in_handler == 0);
  frame[0] = (unsigned char)is_reply;
  frame[1] = (unsigned char)handler;
  memcpy(frame + 2, data, len);
  CHECK(send(wire, frame, 2 + len, MSG_NOSIGNAL) == (ssize_t)(2 + len));
  __atomic_fetch_add(&words->messages[gasneti_mynode], 1, __ATOMIC_RELAXED);
  return 0;
}

static void register_handlers(void) {
  gex_AM_Entry_t* entry = firehose_get_handlertable();
  unsigned char index = 200;
  for (; entry->gex_fnptr; ++entry) entry->gex_index = index++;
  CHECK(index == 202);
}

typedef void (*medium_fn_t)(gex_Token_t token, void* data, size_t len);

/* Returns the number of messages received. */
static int reap_received(void) {
  unsigned char frame[2 + TEST_MAX_MEDIUM];
  const int limit = 16;
  int count = 0;
  while (count < limit) {
    const ssize_t got = recv(wire, frame, sizeof frame, MSG_DONTWAIT);
    struct test_token token;
    medium_fn_t handler;
    if (got < 2) break;
    token.from = 1 - gasneti_mynode;
    handler = (medium_fn_t)firehose_get_handlertable()[frame[1] - 200].gex_fnptr;
    in_handler = frame[0] != 0 ? 2 : 1;
    replied = 0;
    handler(&token, frame + 2, (size_t)got - 2);
    in_handler = 0;
    if (frame[0] != 0) __atomic_fetch_add(&words->declined[gasneti_mynode], 1, __ATOMIC_RELEASE);
    ++count;
  }
  return count;
}

/* ---- puts ---- */

typedef struct {
  const firehose_request_t* remote;
  const firehose_request_t* local;
  int active, ready; /* ready: 1 after the other rank's reply */
  unsigned from, to, polls;
} put_t;
static put_t ops[DEPTH];
static int completed_puts;
static int keep_local; /* completions of local pins are not reaped */

static void put_callback(void* context, const firehose_request_t* request, int all_local_hit) {
  put_t* put = (put_t*)context;
  (void)all_local_hit;
  put->remote = request;
  put->ready = 1;
}

/* Simulates the adapter's completion: copies the data and releases both pins together. */
static void reap_sent(void) {
  int i;
  for (i = 0; i < DEPTH; ++i) {
    put_t* put = &ops[i];
    const firehose_request_t* both[2];
    if (!put->active || !put->ready || !put->local || put->polls-- != 0) continue;
    CHECK(put->remote->node == 1 - gasneti_mynode);
    memcpy((void*)chunk_of(1 - gasneti_mynode, put->to), (void*)chunk_of(gasneti_mynode, put->from),
           64);
    both[0] = put->remote;
    both[1] = put->local;
    memset(put, 0, sizeof *put);
    firehose_release(both, 2);
    ++completed_puts;
  }
}

static int inside_poll;
int gasneti_AMPoll(void) {
  int arrived;
  if (inside_poll) return 0;
  inside_poll = 1;
  if (!keep_local) reap_sent();
  arrived = reap_received();
  inside_poll = 0;
  if (arrived != 0) firehose_poll();
  return arrived;
}

static void start_put(unsigned from, unsigned to) {
  put_t* put = ops;
  for (;; put = ops) {
    while (put != ops + DEPTH && put->active) ++put;
    if (put != ops + DEPTH) break;
    gasneti_AMPoll();
  }
  put->active = 1;
  put->from = from;
  put->to = to;
  put->polls = 3;
  put->remote = firehose_remote_pin(1 - gasneti_mynode, chunk_of(1 - gasneti_mynode, to), CHUNK,
                                    FIREHOSE_FLAG_RETURN_IF_PINNED, NULL, NULL, put_callback, put);
  if (put->remote) put->ready = 1;
  put->local = firehose_local_pin(chunk_of(gasneti_mynode, from), CHUNK, NULL);
}

static void finish_puts(int count) {
  while (completed_puts < count) gasneti_AMPoll();
}

/* ---- callbacks ---- */

int firehose_move_callback(gex_Rank_t node, const firehose_region_t* unpin_list, size_t unpin_num,
                           firehose_region_t* pin_list, size_t pin_num) {
  static int registered;
  size_t i;
  CHECK(node == gasneti_mynode);
  (void)unpin_list;
  for (i = 0; i < pin_num; ++i) {
    pin_list[i].client.handle[0] = (void*)pin_list[i].addr;
    pin_list[i].client.lkey[0] = 1;
    pin_list[i].client.rkey[0] = 2;
  }
  registered += (int)pin_num - (int)unpin_num;
  CHECK(registered >= 0 && registered <= REGIONS);
  return 0;
}

int firehose_remote_callback(gex_Rank_t node, const firehose_region_t* pin_list, size_t num_pinned,
                             firehose_remotecallback_args_t* args) {
  CHECK(node == 1 - gasneti_mynode && num_pinned == 1 && pin_list->len != 0);
  CHECK(args->len <= sizeof args->data);
  memcpy(args->addr, args->data, args->len);
  return 0;
}

static size_t put_in_move(void* context, firehose_remotecallback_args_t* args) {
  args->addr = (uint64_t*)chunk_of(1 - gasneti_mynode, ((put_t*)context)->to);
  args->len = sizeof args->data;
  memset(args->data, 0x5a, sizeof args->data);
  return sizeof *args;
}

/* ---- scenarios ---- */

static void meet(void) {
  const int round = __atomic_add_fetch(&words->ready[gasneti_mynode], 1, __ATOMIC_ACQ_REL);
  while (LOAD(ready[1 - gasneti_mynode]) < round) {
    if (gasneti_mynode == 1) CHECK(getppid() != 1);
    gasneti_AMPoll();
    sched_yield();
  }
}

/* Puts in both directions until all are complete. */
static void puts_both_ways(void) {
  const int count = 400;
  int i;
  for (i = 0; i < count; ++i) start_put((unsigned)(i * 7) % CHUNKS, (unsigned)(i * 11) % CHUNKS);
  finish_puts(count);
}

/* The puts of both ranks hold all memory that can be pinned while the other rank requests some. Then they
 * end, and no remaining operation would send a message. */
static void hold_all(const firehose_request_t** held) {
  int i;
  for (i = 0; i < REGIONS; ++i)
    held[i] = firehose_local_pin(chunk_of(gasneti_mynode, 2 * (unsigned)i), CHUNK, NULL);
}
static void ask(unsigned flags) {
  ops[0].active = 1;
  ops[0].to = 40;
  CHECK(!firehose_remote_pin(1 - gasneti_mynode, chunk_of(1 - gasneti_mynode, 40), CHUNK, flags,
                             NULL, put_in_move, put_callback, &ops[0]));
}
static void end_ask(void) {
  const firehose_request_t* request;
  while (!ops[0].ready) gasneti_AMPoll();
  request = ops[0].remote;
  firehose_release(&request, 1);
  memset(ops, 0, sizeof ops);
}

static void both_are_declined(void) {
  const firehose_request_t* held[REGIONS];
  int turn;
  for (turn = 0; turn < 20; ++turn) {
    int before;
    hold_all(held);
    meet();
    before = LOAD(declined[gasneti_mynode]);
    ask(turn % 2 != 0 ? FIREHOSE_FLAG_ENABLE_REMOTE_CALLBACK : 0);
    while (LOAD(declined[gasneti_mynode]) == before) gasneti_AMPoll();
    CHECK(!ops[0].ready);
    meet();
    firehose_release(held, REGIONS);
    end_ask();
    meet();
  }
  CHECK(*(unsigned char*)chunk_of(gasneti_mynode, 40) == 0x5a); /* written by a move */
}

/* Rank 1 holds everything until the flag allows release; rank 0 receives only replies. */
static void one_waits_long(void) {
  const firehose_request_t* held[REGIONS];
  int i;
  if (gasneti_mynode == 1) {
    hold_all(held);
    meet();
    while (!LOAD(let_go)) gasneti_AMPoll(), sched_yield();
    firehose_release(held, REGIONS);
    return;
  }
  meet();
  ask(0);
  for (i = 0; i < 100; ++i) {
    usleep(1000);
    gasneti_AMPoll();
  }
  CHECK(!ops[0].ready);
  STORE(let_go, 1);
  end_ask();
}

static void run_rank(void (*body)(void)) {
  firehose_poll(); /* a conduit polls from its first connection on */
  gasneti_AMPoll();
  register_handlers();
  firehose_init((size_t)10 << 20, REGIONS, CHUNK, NULL, 0, FIREHOSE_INIT_FLAG_UNPIN_ON_FINI, &info);
  CHECK(info.max_RemotePinSize == CHUNK);
  meet();
  body();
  meet();
  firehose_fini();
  firehose_poll();
}

static void (*scenario)(void);
static void run_job(void) {
  int ends[2];
  int status = -1;
  pid_t child;
  words = (words_t*)mmap(NULL, sizeof *words, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                         -1, 0);
  segment = (unsigned char*)mmap(NULL, (size_t)2 * CHUNKS * CHUNK, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(words != MAP_FAILED && segment != MAP_FAILED);
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  child = fork();
  CHECK(child >= 0);
  wire = ends[child == 0];
  close(ends[child != 0]);
  hydrant_test_alarm(120);
  if (child == 0) {
    gasneti_mynode = 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_rank(scenario);
    _exit(0);
  }
  run_rank(scenario);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void waits_are_reported(void) {
  setenv("FIREHOSE_WAIT_WARN", "20ms", 1);
  scenario = one_waits_long;
  check_says(run_job, "has waited");
  check_says(run_job, "has no room now");
}

/* A warning that concerns the whole job is printed by one rank. */
static void nothing(void) {}
static void limits_are_warned_of_once(void) {
  setenv("GASNET_FIREHOSE_MAXVICTIM_M", "4", 1); /* plus 8 MiB: more than exists */
  scenario = nothing;
  check_says_once(run_job, "are more than the");
}

static const struct {
  const char* name;
  void (*run)(void);
  int alone;
} scenarios[] = {
    {"puts_both_ways", puts_both_ways, 0},
    {"both_are_declined", both_are_declined, 0},
    {"waits_are_reported", waits_are_reported, 1},
    {"limits_are_warned_of_once", limits_are_warned_of_once, 1},
};

int main(int argc, char** argv) {
  size_t i;
  hydrant_test_alarm(120);
  setenv("GASNET_FIREHOSE_M", "8", 1);
  setenv("GASNET_FIREHOSE_MAXVICTIM_M", "2", 1);
  setenv("GASNET_FIREHOSE_R", "4", 1);
  setenv("GASNET_FIREHOSE_MAXVICTIM_R", "2", 1);
  for (i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; ++i) {
    if (strcmp(argv[1], scenarios[i].name) != 0) continue;
    scenario = scenarios[i].run;
    if (scenarios[i].alone) {
      scenarios[i].run();
    } else {
      run_job();
    }
    return 0;
  }
  return 2;
}
