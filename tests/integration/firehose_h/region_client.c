/* A region client with a 64-byte key: scenarios of firehose.h, one per run. */
#define _GNU_SOURCE
#include <pthread.h>

#include "check.h"
#include "deferred.h"
#include "network.h"
#include "region_callbacks.h"

#define PAGE FIREHOSE_TEST_PAGE
#define LOCAL FIREHOSE_INIT_FLAG_LOCAL_ONLY
#define UNPIN FIREHOSE_INIT_FLAG_UNPIN_ON_FINI

static firehose_info_t info;

/* Starts firehose with a budget for `regions` regions of `pages` pages. */
static void start(size_t regions, size_t pages, uint32_t flags) {
  network_start();
  firehose_init(regions * pages * PAGE, regions, pages * PAGE, NULL, 0, flags, &info);
}

static const firehose_request_t* pin(size_t page, size_t pages) {
  const firehose_request_t* request = firehose_local_pin(network_page(page), pages * PAGE, NULL);
  CHECK(request != NULL);
  CHECK(request->addr <= network_page(page));
  CHECK(request->addr + request->len >= network_page(page + pages));
  CHECK(request->addr % PAGE == 0 && request->len % PAGE == 0);
  CHECK(request->node == FIREHOSE_MYNODE);
  return request;
}

static void drop(const firehose_request_t* request) { firehose_release(&request, 1); }

static void hits_do_not_move(void) {
  firehose_request_t mine;
  const firehose_request_t* both[2];
  start(64, 64, LOCAL | UNPIN);
  both[0] = pin(10, 3);
  CHECK(key_is_right(both[0]));
  CHECK(network_is_pinned(both[0]->addr, both[0]->len));
  CHECK(network_counts().pins == 1);
  both[1] = firehose_local_pin(network_page(11) + 100, 50, &mine);
  CHECK(both[1] == &mine && key_is_right(&mine));
  CHECK(mine.client.registration == both[0]->client.registration);
  firehose_release(both, 2);
  drop(pin(10, 3));
  CHECK(network_counts().pins == 1 && network_counts().unpins == 0);
  firehose_poll();
  firehose_fini();
  CHECK(network_counts().unpins == 1 && network_counts().bytes == 0);
}

static void try_and_partial_never_pin(void) {
  firehose_request_t mine;
  const firehose_request_t* found;
  start(64, 64, LOCAL | UNPIN);
  CHECK(firehose_try_local_pin(network_page(20), 1, &mine) == NULL);
  CHECK(firehose_partial_local_pin(network_page(0), 4096 * PAGE, &mine) == NULL);
  CHECK(network_counts().pins == 0);
  drop(pin(40, 2));
  drop(pin(20, 2));
  CHECK(firehose_try_local_pin(network_page(20), 2 * PAGE, &mine) == &mine);
  CHECK(key_is_right(&mine));
  found = &mine;
  drop(found);
  CHECK(firehose_try_local_pin(network_page(20), 3 * PAGE, NULL) == NULL);
  found = firehose_partial_local_pin(network_page(0), 4000 * PAGE, NULL);
  CHECK(found != NULL && found->addr <= network_page(20));
  CHECK(found->addr + found->len > network_page(20));
  drop(found);
  found = firehose_partial_local_pin(network_page(22), 1000 * PAGE, NULL);
  CHECK(found != NULL && found->addr <= network_page(40));
  CHECK(found->addr + found->len > network_page(40) && key_is_right(found));
  drop(found);
  CHECK(network_counts().pins == 2);
  firehose_fini();
}

static void eviction_stays_in_budget(void) {
  size_t i;
  start(4, 4, LOCAL | UNPIN);
  CHECK(info.max_LocalRegions == 4 && info.max_LocalPinSize == 4 * PAGE);
  for (i = 0; i < 64; ++i) drop(pin(8 * i, 4));
  CHECK(network_counts().pins == 64);
  CHECK(network_counts().max_bytes <= 16 * PAGE);
  CHECK(network_counts().bytes >= 4 * PAGE); /* victims stay */
  firehose_fini();
  CHECK(network_counts().bytes == 0);
}

static void blocked_pin_polls(void) {
  const firehose_request_t* held[4];
  size_t i;
  start(4, 4, LOCAL | UNPIN);
  for (i = 0; i < 4; ++i) held[i] = pin(8 * i, 4);
  CHECK(firehose_try_local_pin(network_page(100), PAGE, NULL) == NULL);
  release_in_poll(held[2], 5);
  drop(pin(100, 4));
  CHECK(polls() >= 5);
  CHECK(network_counts().max_bytes <= 16 * PAGE);
  drop(held[0]);
  drop(held[1]);
  drop(held[3]);
  firehose_fini();
}

/* The blocked pin can continue only after the report was read, so a silent wait hangs and fails. */
static void read_report(int from) {
  const char* const wanted[] = {"firehose_local_pin has waited", "pinned", "by thread",
                                "and 4 more"};
  char text[32768];
  size_t length = 0;
  size_t found = 0;
  while (found < 4) {
    const ssize_t got = read(from, text + length, sizeof text - 1 - length);
    CHECK(got > 0);
    length += (size_t)got;
    text[length] = '\0';
    for (found = 0; found < 4 && strstr(text, wanted[found]); ++found) continue;
  }
}

static const firehose_request_t* reported[20];
static int reporter_done;

static void* release_after_report(void* argument) {
  const int* ends = argument;
  size_t i;
  read_report(ends[0]);
  __atomic_store_n(&reporter_done, 1, __ATOMIC_RELEASE);
  for (i = 0; i < 20; ++i) drop(reported[i]);
  return NULL;
}

static void long_wait_says_who_holds(void) {
  int ends[2];
  pthread_t thread;
  size_t i;
  setenv("FIREHOSE_WAIT_WARN", "20ms", 1);
  start(20, 4, LOCAL);
  for (i = 0; i < 20; ++i) reported[i] = pin(8 * i, 4);
  CHECK(pipe(ends) == 0);
  CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
  CHECK(pthread_create(&thread, NULL, release_after_report, ends) == 0);
  drop(pin(200, 4));
  CHECK(__atomic_load_n(&reporter_done, __ATOMIC_ACQUIRE));
  CHECK(pthread_join(thread, NULL) == 0);
  firehose_fini();
}

static void fini_unpins_on_request_only(void) {
  firehose_request_t held;
  const uint32_t again = FIREHOSE_INIT_FLAG_MAY_REINIT;
  start(16, 16, LOCAL | again);
  drop(pin(0, 4));
  firehose_fini();
  CHECK(network_counts().unpins == 0 && network_is_pinned(network_page(0), 4 * PAGE));
  start(16, 16, LOCAL | UNPIN | again);
  CHECK(firehose_try_local_pin(network_page(0), PAGE, NULL) == NULL);
  drop(pin(100, 4));
  CHECK(firehose_local_pin(network_page(200), 4 * PAGE, &held) ==
        &held); /* unpinned nevertheless */
  firehose_fini();
  CHECK(network_counts().unpins == 2 && !network_is_pinned(network_page(200), PAGE));
}

static void prepinned_stay(void) {
  firehose_region_t own[2];
  const firehose_request_t* request;
  const firehose_request_t* held[4];
  size_t i;
  memset(own, 0, sizeof own);
  network_start();
  own[0].addr = network_page(1000);
  own[0].len = 32 * PAGE;
  own[1].addr = network_page(2000);
  own[1].len = PAGE;
  for (i = 0; i < 2; ++i) own[i].client.registration = 500 + i;
  firehose_init(33 * PAGE + 16 * PAGE, 2 + 4, 4 * PAGE, own, 2, LOCAL | UNPIN, &info);
  memset(own, 0xFF, sizeof own); /* the list belongs to the client again */
  CHECK(info.max_LocalRegions == 4 && info.max_LocalPinSize == 4 * PAGE);
  request = firehose_local_pin(network_page(1010), 4 * PAGE, NULL);
  CHECK(request->client.registration == 500 && request->addr == network_page(1000));
  CHECK(request->len == 32 * PAGE);
  drop(request);
  for (i = 0; i < 32; ++i) drop(pin(8 * i, 4));    /* all four regions of the budget, repeatedly */
  for (i = 0; i < 4; ++i) held[i] = pin(8 * i, 4); /* max_LocalRegions */
  request = firehose_try_local_pin(network_page(2000) + 1, 1, NULL);
  CHECK(request != NULL && request->client.registration == 501);
  drop(request);
  firehose_release(held, 4);
  CHECK(network_counts().pins == 36 && network_counts().max_bytes <= 16 * PAGE);
  firehose_fini();
  CHECK(network_counts().unpins == 36);
}

static void unusable_keys_do_not_spread(void) {
  const firehose_request_t* bad;
  const firehose_request_t* request;
  size_t i;
  size_t before;
  start(64, 64, LOCAL | UNPIN);
  network_forbid(32, 1);
  bad = firehose_local_pin(network_page(32), PAGE, NULL);
  CHECK(bad->client.registration == 0);
  drop(bad);
  for (i = 0; i < 64; ++i) {
    if (i == 32) continue;
    request = pin(i, 1);
    CHECK(key_is_right(request));
    CHECK(network_is_pinned(network_page(i), PAGE));
    drop(request);
  }
  before = refusals();
  for (i = 0; i < 100; ++i) {
    bad = firehose_local_pin(network_page(32) + 5, 1, NULL);
    CHECK(bad->client.registration == 0);
    drop(bad);
  }
  CHECK(refusals() == before); /* remembered, not tried again */
  firehose_fini();
  CHECK(network_counts().bytes == 0);
}

static void network_that_is_full_makes_victims(void) {
  size_t i;
  start(64, 4, LOCAL | UNPIN);
  limit_network(16 * PAGE); /* far below the budget */
  for (i = 0; i < 64; ++i) drop(pin(8 * i, 4));
  CHECK(network_counts().max_bytes <= 16 * PAGE);
  firehose_fini();
}

static void invalidate_forgets(void) {
  const firehose_request_t* held;
  unsigned long long first;
  start(64, 64, LOCAL | UNPIN);
  held = pin(10, 2);
  first = held->client.registration;
  firehose_local_invalidate(network_page(10), 2 * PAGE);
  CHECK(firehose_try_local_pin(network_page(10), PAGE, NULL) == NULL);
  CHECK(network_is_pinned(network_page(10), 2 * PAGE)); /* still held */
  drop(pin(10, 2));
  CHECK(network_counts().pins == 2);
  CHECK(held->client.registration == first);
  drop(held);
  firehose_fini();
  CHECK(network_counts().bytes == 0);
}

static const scenario_t scenarios[] = {
    {"hits_do_not_move", hits_do_not_move},
    {"try_and_partial_never_pin", try_and_partial_never_pin},
    {"eviction_stays_in_budget", eviction_stays_in_budget},
    {"blocked_pin_polls", blocked_pin_polls},
    {"long_wait_says_who_holds", long_wait_says_who_holds},
    {"fini_unpins_on_request_only", fini_unpins_on_request_only},
    {"prepinned_stay", prepinned_stay},
    {"unusable_keys_do_not_spread", unusable_keys_do_not_spread},
    {"network_that_is_full_makes_victims", network_that_is_full_makes_victims},
    {"invalidate_forgets", invalidate_forgets},
};

int main(int argc, char** argv) {
  return run_scenario(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
