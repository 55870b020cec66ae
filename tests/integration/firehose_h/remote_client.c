/* A client with remote pins, compiled for regions and for pages: scenarios of firehose.h between two
 * processes, one per run. Node 0 pins memory of node 1. */
#define _GNU_SOURCE
#include "remote_client.h"

#include <firehose.h>

#include "check.h"
#include "network.h"

#define REINIT FIREHOSE_INIT_FLAG_MAY_REINIT
#define UNPIN FIREHOSE_INIT_FLAG_UNPIN_ON_FINI
enum { PER_NODE = 48, MINE = 16, LARGEST = 8 }; /* pages */

firehose_info_t remote_info;
#ifdef FIREHOSE_CLIENT_T
static uint64_t next_registration = 1;
#endif

/* ---- callbacks ---- */

void (*forbidden)(void);

int firehose_move_callback(gex_Rank_t node, const firehose_region_t* unpin_list, size_t unpin_num,
                           firehose_region_t* pin_list, size_t pin_num) {
  size_t i;
  CHECK(node == peer_me);
  for (i = 0; i < unpin_num; ++i) {
#ifdef FIREHOSE_CLIENT_T
    if (unpin_list[i].client.registration == 0) continue;
#endif
    network_unpin(unpin_list[i].addr, unpin_list[i].len);
    if (peer_me == 1)
      __atomic_fetch_add(&peer_words->deregistered, unpin_list[i].len, __ATOMIC_RELAXED);
  }
  for (i = 0; i < pin_num; ++i) {
#ifdef FIREHOSE_CLIENT_T
    if (network_forbidden(pin_list[i].addr, pin_list[i].len)) continue; /* the key is 0 */
    pin_list[i].client.registration = next_registration++;
    pin_list[i].client.addr = pin_list[i].addr;
#endif
    network_pin(pin_list[i].addr, pin_list[i].len);
    if (peer_me == 1)
      __atomic_fetch_add(&peer_words->registered, pin_list[i].len, __ATOMIC_RELAXED);
  }
  return 0;
}

int firehose_remote_callback(gex_Rank_t node, const firehose_region_t* pin_list, size_t num_pinned,
                             firehose_remotecallback_args_t* args) {
  size_t i;
  if (peer_me == 0) forbidden();
  CHECK(peer_me == 1 && node == 0 && num_pinned == 1);
  CHECK(network_is_pinned(pin_list->addr, pin_list->len));
#ifdef FIREHOSE_CLIENT_T
  CHECK(pin_list->client.registration != 0 && pin_list->client.addr == pin_list->addr);
#endif
  /* The data of a small put in the arguments. */
  for (i = 0; i < sizeof args->data; ++i) CHECK(args->data[i] == (unsigned char)(args->number + i));
  CHECK(args->number != 0);
  __atomic_fetch_add(&peer_words->remote_callbacks, 1, __ATOMIC_RELEASE);
  return 0;
}

static unsigned args_made;
size_t make_args(void* context, firehose_remotecallback_args_t* args) {
  size_t i;
  ++args_made;
  args->number = 1 + (uint64_t)(uintptr_t)context;
  for (i = 0; i < sizeof args->data; ++i) args->data[i] = (unsigned char)(args->number + i);
  return sizeof *args;
}

void completed(void* context, const firehose_request_t* request, int all_local_hit) {
  answer_t* answer = (answer_t*)context;
  CHECK(answer != NULL);
  CHECK(request->node == 1);
  answer->request = request;
  answer->all_local_hit = all_local_hit;
  ++answer->calls;
}

static const firehose_request_t* set_aside;
static unsigned set_aside_polls;
void client_poll(void) {
  peer_receive();
  if (set_aside == NULL || --set_aside_polls != 0) return;
  firehose_release(&set_aside, 1);
  set_aside = NULL;
}

void poll_once(void) {
  client_poll();
  firehose_poll();
}

/* ---- both nodes ---- */

void remote_begin(void) {
  const size_t bytes = (PER_NODE + MINE) * PAGE; /* a quarter of it is MAXVICTIM */
#ifdef FIREHOSE_PAGE
  firehose_init(bytes, 0, 0, NULL, 0, UNPIN | REINIT, &remote_info);
#else
  firehose_init(bytes, 0, LARGEST * PAGE, NULL, 0, UNPIN | REINIT, &remote_info);
#endif
  peer_meet();
}

void remote_end(void) {
  firehose_fini();
  CHECK(network_counts().bytes == 0);
}

void remote_serve(void) {
  const firehose_request_t* held[16];
  int n = 0;
  remote_begin();
  for (;;) {
    const int command = PEER_LOAD(command);
    const uintptr_t addr = peer_words->addr;
    poll_once();
    if (command == 0) continue;
    if (command == PEER_PIN) held[n++] = firehose_local_pin(addr, peer_words->len, NULL);
    if (command == PEER_RELEASE) firehose_release(held, n), n = 0;
    if (command == PEER_INVALIDATE) firehose_local_invalidate(addr, peer_words->len);
    if (command == PEER_FORBID) network_forbid((addr - network_start()) / PAGE, 1);
    if (command == PEER_STOP) break;
    __atomic_store_n(&peer_words->command, 0, __ATOMIC_RELEASE);
    while (command == PEER_DEAF && PEER_LOAD(command) == 0) usleep(1000);
  }
}

/* ---- node 0 ---- */

static void wait_for(answer_t* answer) {
  while (answer->calls == 0) poll_once();
  CHECK(answer->calls == 1);
}

static void drop(const firehose_request_t* request) { firehose_release(&request, 1); }

static void check_request(const firehose_request_t* request, size_t page, size_t pages) {
  CHECK(request != NULL && request->node == 1 && request->addr <= network_page(page));
  CHECK(request->addr + request->len >= network_page(page + pages));
  CHECK(request->addr % PAGE == 0 && request->len % PAGE == 0);
#ifdef FIREHOSE_CLIENT_T
  CHECK(request->client.registration != 0 && request->client.addr <= request->addr);
#endif
}

/* Pins memory of node 1, however long that takes. */
static const firehose_request_t* pin(size_t page, size_t pages, answer_t* answer) {
  const firehose_request_t* now;
  memset(answer, 0, sizeof *answer);
  now =
      firehose_remote_pin(1, network_page(page), pages * PAGE, HIT, NULL, NULL, completed, answer);
  if (now == NULL) {
    wait_for(answer);
    now = answer->request;
  } else {
    CHECK(answer->calls == 0);
  }
  check_request(now, page, pages);
  return now;
}

static void hits_send_nothing(void) {
  firehose_request_t mine;
  answer_t answer = {NULL, 0, 0};
  const firehose_request_t* request;
  uint64_t sent;
  remote_begin();
  CHECK(firehose_try_remote_pin(1, network_page(10), PAGE, 0, NULL) == NULL);
  CHECK(firehose_partial_remote_pin(1, network_page(0), 100 * PAGE, 0, NULL) == NULL);
  CHECK(PEER_LOAD(messages[0]) == 0);
  request =
      firehose_remote_pin(1, network_page(10), 3 * PAGE, HIT, &mine, NULL, completed, &answer);
  CHECK(request == NULL);
  wait_for(&answer);
  CHECK(answer.request == &mine && !answer.all_local_hit);
  check_request(&mine, 10, 3);
  CHECK(PEER_LOAD(messages[0]) == 1 && PEER_LOAD(messages[1]) == 1);
  CHECK(PEER_LOAD(registered) == 3 * PAGE);
  sent = PEER_LOAD(messages[0]);
  drop(&mine);
  request = firehose_remote_pin(1, network_page(11), PAGE, HIT, NULL, NULL, completed, &answer);
  CHECK(answer.calls == 1);
  check_request(request, 11, 1);
  drop(request);
  /* Without the flag the callback runs before the call returns. */
  answer.calls = 0;
  CHECK(!firehose_remote_pin(1, network_page(10), 10, 0, NULL, NULL, completed, &answer));
  CHECK(answer.calls == 1 && answer.all_local_hit);
  check_request(answer.request, 10, 1);
  drop(answer.request);
  request = firehose_try_remote_pin(1, network_page(12), PAGE, 0, &mine);
  CHECK(request == &mine);
  drop(request);
  CHECK(!firehose_try_remote_pin(1, network_page(12), 2 * PAGE, 0, &mine));
  request = firehose_partial_remote_pin(1, network_page(0), 1000 * PAGE, 0, NULL);
  CHECK(request != NULL && request->addr <= network_page(10));
  CHECK(request->addr + request->len > network_page(10));
  drop(request);
  CHECK(PEER_LOAD(messages[0]) == sent && PEER_LOAD(registered) == 3 * PAGE);
}

static void arguments_arrive_before_the_reply(void) {
  answer_t answer = {NULL, 0, 0};
  remote_begin();
  CHECK(!firehose_remote_pin(1, network_page(5), PAGE, HIT | CALL, NULL, make_args, completed,
                             &answer));
  CHECK(args_made == 1); /* before the call returned */
  wait_for(&answer);
  CHECK(!answer.all_local_hit && PEER_LOAD(remote_callbacks) == 1);
  drop(answer.request);
  /* The other node gets no message, so no callback runs there and no arguments are made. */
  answer.calls = 0;
  CHECK(!firehose_remote_pin(1, network_page(5), PAGE, CALL, NULL, make_args, completed, &answer));
  CHECK(answer.calls == 1 && answer.all_local_hit);
  drop(answer.request);
  CHECK(args_made == 1 && PEER_LOAD(remote_callbacks) == 1);
}

static void who_joins_another_had_no_call(void) {
  answer_t first = {NULL, 0, 0};
  answer_t second = {NULL, 0, 0};
  remote_begin();
  CHECK(
      !firehose_remote_pin(1, network_page(5), 4 * PAGE, CALL, NULL, make_args, completed, &first));
  CHECK(!firehose_remote_pin(1, network_page(6), PAGE, CALL, NULL, make_args, completed, &second));
  CHECK(args_made == 1);
  wait_for(&first);
  wait_for(&second);
  CHECK(!first.all_local_hit && second.all_local_hit && PEER_LOAD(remote_callbacks) == 1);
  check_request(second.request, 6, 1);
  drop(first.request);
  drop(second.request);
}

static void limits_are_promises(void) {
  const firehose_request_t* held[PER_NODE];
  answer_t answer;
  size_t n = 0;
  size_t i;
  remote_begin();
  CHECK(remote_info.max_LocalPinSize >= LARGEST * PAGE);
#ifdef FIREHOSE_PAGE
  CHECK(remote_info.max_RemotePinSize == PER_NODE * PAGE && remote_info.max_RemoteRegions == 0);
  for (i = 0; i < PER_NODE; ++i) held[n++] = pin(2 * i, 1, &answer);
#else
  CHECK(remote_info.max_RemotePinSize == LARGEST * PAGE);
  CHECK(remote_info.max_RemoteRegions == PER_NODE / LARGEST);
  for (i = 0; i < remote_info.max_RemoteRegions; ++i) held[n++] = pin(16 * i, LARGEST, &answer);
#endif
  /* The other node can still pin its own guaranteed share. */
  peer_do(PEER_PIN, network_page(1000), LARGEST * PAGE);
  peer_do(PEER_PIN, network_page(1100), LARGEST * PAGE);
  peer_do(PEER_RELEASE, 0, 0);
  firehose_release(held, (int)n);
  for (i = 0; i < 100; ++i) drop(pin(16 * i % 1024, LARGEST, &answer));
}

static void held_quota_makes_pins_wait(void) {
  const firehose_request_t* held[PER_NODE / LARGEST];
  answer_t answer;
  size_t i;
  remote_begin();
  for (i = 0; i < PER_NODE / LARGEST; ++i) held[i] = pin(16 * i, LARGEST, &answer);
  set_aside = held[2];
  set_aside_polls = 5;
  drop(pin(2000, LARGEST, &answer)); /* released inside FIREHOSE_AMPOLL, which this calls */
  CHECK(set_aside == NULL);
  held[2] = held[PER_NODE / LARGEST - 1];
  firehose_release(held, PER_NODE / LARGEST - 1);
}

/* Node 1 holds all its budget for itself: it declines until it releases it. */
static void fill_node_1(void) {
  size_t i;
  for (i = 0; i < (PER_NODE + MINE) / LARGEST; ++i)
    peer_do(PEER_PIN, network_page(1000 + 16 * i), LARGEST * PAGE);
}
/* Firehoses that this node does not use make room for blocked pins on node 1. */
static void idle_firehoses_go_back_when_wanted(void) {
  answer_t answer;
  size_t i;
  remote_begin();
  for (i = 0; i < PER_NODE / LARGEST; ++i) drop(pin(16 * i, LARGEST, &answer));
  fill_node_1();
  for (i = 0; i < PER_NODE / LARGEST; ++i)
    CHECK(!firehose_try_remote_pin(1, network_page(16 * i), LARGEST * PAGE, 0, NULL));
  peer_do(PEER_RELEASE, 0, 0);
}

static void declined_pins_succeed_later(void) {
  answer_t answer = {NULL, 0, 0};
  answer_t joined = {NULL, 0, 0};
  size_t i;
  remote_begin();
  fill_node_1();
  CHECK(!firehose_remote_pin(1, network_page(5), PAGE, CALL, NULL, make_args, completed, &answer));
  CHECK(!firehose_remote_pin(1, network_page(5), PAGE, CALL, NULL, make_args, completed, &joined));
  while (PEER_LOAD(messages[1]) < 8) poll_once();
  CHECK(answer.calls == 0 && PEER_LOAD(remote_callbacks) == 0);
  for (i = 0; i < 3; ++i) client_poll();
  peer_do(PEER_RELEASE, 0, 0);
  wait_for(&answer);
  wait_for(&joined);
  /* Arguments are made only before the call returns, so a joined request has none, whichever came first. */
  CHECK(joined.all_local_hit && args_made == 1);
  CHECK(PEER_LOAD(remote_callbacks) == (answer.all_local_hit ? 0 : 1));
  check_request(answer.request, 5, 1);
  drop(answer.request);
  drop(joined.request);
}

static void memory_that_goes_is_recalled(void) {
  answer_t answer;
  const firehose_request_t* request;
  remote_begin();
  drop(pin(20, 4, &answer));
  request = pin(40, 4, &answer);
  peer_do(PEER_INVALIDATE, network_page(20), 4 * PAGE);
  while ((request = firehose_try_remote_pin(1, network_page(20), PAGE, 0, NULL)) != NULL) {
    drop(request);
    poll_once();
  }
  request = answer.request;
  /* Held memory stays registered there until its release. */
  peer_do(PEER_INVALIDATE, network_page(40), 4 * PAGE);
  for (;;) {
    const firehose_request_t* more = firehose_try_remote_pin(1, network_page(40), PAGE, 0, NULL);
    if (more == NULL) break;
    drop(more);
    poll_once();
  }
  while (PEER_LOAD(deregistered) == 0) poll_once(); /* of the first request */
  CHECK(PEER_LOAD(deregistered) + 4 * PAGE == PEER_LOAD(registered));
  drop(request);
  while (PEER_LOAD(deregistered) != PEER_LOAD(registered)) poll_once();
  drop(pin(20, 4, &answer));
  CHECK(answer.calls == 1);
}

static void deaf_run(void) {
  answer_t answer = {NULL, 0, 0};
  unsigned i;
  remote_begin();
  peer_do(PEER_DEAF, 0, 0);
  CHECK(!firehose_remote_pin(1, network_page(5), PAGE, 0, NULL, NULL, completed, &answer));
  for (i = 0; i < 100; ++i) {
    usleep(1000);
    firehose_poll();
  }
  CHECK(answer.calls == 0);
  peer_do(PEER_RELEASE, 0, 0); /* wakes it */
  wait_for(&answer);
  drop(answer.request);
}
static void declined_run(void) {
  answer_t answer = {NULL, 0, 0};
  unsigned i;
  remote_begin();
  fill_node_1();
  CHECK(!firehose_remote_pin(1, network_page(5), PAGE, 0, NULL, NULL, completed, &answer));
  for (i = 0; i < 100; ++i) {
    usleep(1000);
    poll_once();
  }
  peer_do(PEER_RELEASE, 0, 0);
  wait_for(&answer);
  drop(answer.request);
}
static void start_deaf(void) { peer_start(deaf_run, remote_serve, remote_end); }
static void start_declined(void) { peer_start(declined_run, remote_serve, remote_end); }
static void long_waits_name_the_node(void) {
  setenv("FIREHOSE_WAIT_WARN", "20ms", 1);
  check_says(start_deaf, "for node 1 to pin");
  check_says(start_deaf, "has not answered");
  check_says(start_declined, "has no room now");
}

#ifdef FIREHOSE_CLIENT_T
static void ask_for_forbidden_memory(void) {
  answer_t answer;
  remote_begin();
  peer_do(PEER_FORBID, network_page(7), PAGE);
  pin(7, 1, &answer);
}
static void start_forbidden(void) {
  peer_start(ask_for_forbidden_memory, remote_serve, remote_end);
}
static void unusable_keys_are_not_given_away(void) {
  check_aborts(start_forbidden, "FH_MAY_MERGE refuses");
}
#endif

static const struct {
  const char* name;
  void (*run)(void);
  int alone; /* the scenario forks itself */
} scenarios[] = {
    {"hits_send_nothing", hits_send_nothing, 0},
    {"arguments_arrive_before_the_reply", arguments_arrive_before_the_reply, 0},
    {"who_joins_another_had_no_call", who_joins_another_had_no_call, 0},
    {"limits_are_promises", limits_are_promises, 0},
    {"held_quota_makes_pins_wait", held_quota_makes_pins_wait, 0},
    {"idle_firehoses_go_back_when_wanted", idle_firehoses_go_back_when_wanted, 0},
    {"declined_pins_succeed_later", declined_pins_succeed_later, 0},
    {"memory_that_goes_is_recalled", memory_that_goes_is_recalled, 0},
    {"long_waits_name_the_node", long_waits_name_the_node, 1},
    {"wrong_calls_are_fatal", wrong_calls_are_fatal, 0},
#ifdef FIREHOSE_CLIENT_T
    {"unusable_keys_are_not_given_away", unusable_keys_are_not_given_away, 1},
#endif
    {"calls_in_callbacks_are_fatal", calls_in_callbacks_are_fatal, 1},
};

static void (*body)(void);
static void run_body(void) { body(); }

int main(int argc, char** argv) {
  size_t i;
  hydrant_test_alarm(120);
  network_start();
  for (i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; ++i) {
    if (strcmp(argv[1], scenarios[i].name) != 0) continue;
    body = scenarios[i].run;
    if (scenarios[i].alone) {
      body();
    } else {
      peer_start(run_body, remote_serve, remote_end);
    }
    return 0;
  }
  return 2;
}
