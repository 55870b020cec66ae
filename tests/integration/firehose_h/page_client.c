/* A page client with buckets of two pages: scenarios of firehose.h, one per run. */
#include "check.h"
#include "deferred.h"
#include "network.h"

#define BUCKET ((size_t)FH_BUCKET_SIZE)
#define LOCAL FIREHOSE_INIT_FLAG_LOCAL_ONLY
#define UNPIN FIREHOSE_INIT_FLAG_UNPIN_ON_FINI

static firehose_info_t info;
static size_t max_unpin;

int firehose_move_callback(gex_Rank_t node, const firehose_region_t* unpin_list, size_t unpin_num,
                           firehose_region_t* pin_list, size_t pin_num) {
  size_t i;
  CHECK(node == 0);
  for (i = 0; i < unpin_num; ++i) {
    CHECK(unpin_list[i].addr % BUCKET == 0 && unpin_list[i].len % BUCKET == 0);
    network_unpin(unpin_list[i].addr, unpin_list[i].len);
    if (unpin_list[i].len > max_unpin) max_unpin = unpin_list[i].len;
    CHECK(i == 0 || unpin_list[i - 1].addr + unpin_list[i - 1].len < unpin_list[i].addr);
  }
  for (i = 0; i < pin_num; ++i) {
    CHECK(pin_list[i].addr % BUCKET == 0 && pin_list[i].len % BUCKET == 0);
    network_pin(pin_list[i].addr, pin_list[i].len);
  }
  return 0;
}

static uintptr_t bucket(size_t i) { return network_start() + i * BUCKET; }

static void start(size_t buckets, uint32_t flags) {
  network_start();
  firehose_init(buckets * BUCKET, 0, 0, NULL, 0, flags, &info);
}

static const firehose_request_t* pin(size_t first, size_t n) {
  const firehose_request_t* request = firehose_local_pin(bucket(first), n * BUCKET, NULL);
  CHECK(request != NULL && request->addr <= bucket(first));
  CHECK(request->addr + request->len >= bucket(first + n));
  CHECK(request->addr % BUCKET == 0 && request->len % BUCKET == 0);
  CHECK(network_is_pinned(request->addr, request->len));
  return request;
}

static void drop(const firehose_request_t* request) { firehose_release(&request, 1); }

static void hits_do_not_move(void) {
  size_t moves;
  start(64, LOCAL | UNPIN);
  CHECK(info.max_LocalPinSize == 64 * BUCKET && info.max_LocalRegions == 0);
  CHECK(info.max_RemotePinSize == 0 && info.max_RemoteRegions == 0);
  drop(pin(10, 4));
  moves = network_counts().pins;
  drop(pin(10, 4));
  drop(pin(11, 2));
  drop(firehose_local_pin(bucket(12) + 5000, 100, NULL));
  CHECK(network_counts().pins == moves);
  drop(pin(12, 4)); /* two of its buckets are new */
  CHECK(network_counts().bytes == 6 * BUCKET);
  firehose_poll();
  firehose_fini();
  CHECK(network_counts().bytes == 0);
}

static void try_and_partial_never_pin(void) {
  firehose_request_t mine;
  const firehose_request_t* found;
  start(64, LOCAL | UNPIN);
  CHECK(firehose_try_local_pin(bucket(3), BUCKET, &mine) == NULL);
  drop(pin(8, 2));
  drop(pin(4, 2));
  found = firehose_try_local_pin(bucket(4), 2 * BUCKET, &mine);
  CHECK(found == &mine && found->addr <= bucket(4) && found->len >= 2 * BUCKET);
  drop(found);
  CHECK(firehose_try_local_pin(bucket(4), 3 * BUCKET, NULL) == NULL);
  found = firehose_partial_local_pin(bucket(0), 1000 * BUCKET, NULL);
  CHECK(found != NULL && found->addr <= bucket(4) && found->addr + found->len > bucket(4));
  drop(found);
  found = firehose_partial_local_pin(bucket(6), 1000 * BUCKET, NULL);
  CHECK(found != NULL && found->addr <= bucket(8) && found->addr + found->len > bucket(8));
  drop(found);
  CHECK(firehose_partial_local_pin(bucket(10), 1000 * BUCKET, NULL) == NULL);
  firehose_fini();
}

static void eviction_stays_in_budget(void) {
  size_t i;
  start(16, LOCAL | UNPIN);
  for (i = 0; i < 100; ++i) drop(pin(8 * i % 512, 5));
  CHECK(network_counts().max_bytes <= 16 * BUCKET);
  firehose_fini();
  CHECK(network_counts().bytes == 0);
}

static void blocked_pin_polls(void) {
  const firehose_request_t* held[2];
  start(16, LOCAL | UNPIN);
  held[0] = pin(0, 8);
  held[1] = pin(100, 6);
  release_in_poll(held[0], 4);
  drop(pin(200, 3));
  CHECK(polls() >= 4 && network_counts().max_bytes <= 16 * BUCKET);
  drop(held[1]);
  firehose_fini();
  CHECK(network_counts().bytes == 0);
}

static void neighbours_are_unpinned_together(void) {
  size_t i;
  start(64, LOCAL | UNPIN);
  for (i = 0; i < 8; ++i) drop(pin(20 + i, 1));
  firehose_fini();
  CHECK(network_counts().bytes == 0 && max_unpin == 8 * BUCKET);
}

static void prepinned_stay(void) {
  firehose_region_t own;
  size_t i;
  network_start();
  own.addr = bucket(1000);
  own.len = 32 * BUCKET;
  network_pin(own.addr, own.len);
  firehose_init(48 * BUCKET, 0, 0, &own, 1, LOCAL | UNPIN, &info);
  CHECK(info.max_LocalPinSize == 16 * BUCKET);
  drop(pin(1003, 9));
  CHECK(network_counts().pins == 1);
  for (i = 0; i < 64; ++i) drop(pin(8 * i, 4));
  drop(pin(1000, 32));
  drop(pin(600, 16)); /* max_LocalPinSize, besides the prepinned regions */
  CHECK(network_counts().max_bytes <= 48 * BUCKET);
  firehose_fini();
  CHECK(network_counts().bytes == 32 * BUCKET && network_is_pinned(own.addr, own.len));
}

static void init_with_regions(void) { firehose_init(64 * BUCKET, 16, 0, NULL, 0, LOCAL, &info); }
static void init_with_region_size(void) {
  firehose_init(64 * BUCKET, 0, BUCKET, NULL, 0, LOCAL, &info);
}
static void region_arguments_must_be_zero(void) {
  check_aborts(init_with_regions, "a FIREHOSE_PAGE client passes 0");
  check_aborts(init_with_region_size, "a FIREHOSE_PAGE client passes 0");
}

static void verbose_run(void) {
  setenv("GASNET_FIREHOSE_VERBOSE", "1", 1);
  start(64, LOCAL);
  drop(pin(0, 2));
  firehose_fini();
}
static void verbose_says_limits_and_counts(void) {
  check_says(verbose_run, "firehose: init: page mode, buckets of 8192");
  check_says(verbose_run, "firehose: fini: ");
}

static void without_local_only(void) {
  uintptr_t m = 0;
  uintptr_t victims = 0;
  start(64, UNPIN);
  CHECK(info.max_LocalPinSize == 16 * BUCKET);
  firehose_get_params(64 * BUCKET, &m, &victims);
  CHECK(m == 48 * BUCKET && victims == 16 * BUCKET);
  drop(pin(0, 16));
  firehose_fini();
}
static void peers_share_is_set_aside(void) {
  check_says(without_local_only, "FIREHOSE_INIT_FLAG_LOCAL_ONLY gives it to local pins");
}

static void environment_decides(void) {
  uintptr_t m = 0;
  uintptr_t victims = 0;
  setenv("GASNET_FIREHOSE_MAXVICTIM_M", "128K", 1);
  firehose_get_params((uintptr_t)1 << 20, &m, &victims);
  CHECK(victims == 128 << 10 && m == (1 << 20) - (128 << 10));
  setenv("GASNET_FIREHOSE_M", "0.5", 1); /* in MiB */
  firehose_get_params((uintptr_t)1 << 30, &m, &victims);
  CHECK(victims == 128 << 10 && m == 512 << 10);
  start(1024, LOCAL | UNPIN);
  CHECK(info.max_LocalPinSize == 128 << 10);
  firehose_fini();
}

static void handler_table_is_empty(void) {
  CHECK(firehose_get_handlertable() != NULL);
  CHECK(firehose_get_handlertable()->gex_fnptr == NULL);
}

static const scenario_t scenarios[] = {
    {"hits_do_not_move", hits_do_not_move},
    {"try_and_partial_never_pin", try_and_partial_never_pin},
    {"eviction_stays_in_budget", eviction_stays_in_budget},
    {"blocked_pin_polls", blocked_pin_polls},
    {"neighbours_are_unpinned_together", neighbours_are_unpinned_together},
    {"prepinned_stay", prepinned_stay},
    {"region_arguments_must_be_zero", region_arguments_must_be_zero},
    {"verbose_says_limits_and_counts", verbose_says_limits_and_counts},
    {"peers_share_is_set_aside", peers_share_is_set_aside},
    {"environment_decides", environment_decides},
    {"handler_table_is_empty", handler_table_is_empty},
};

int main(int argc, char** argv) {
  return run_scenario(scenarios, sizeof scenarios / sizeof *scenarios, argc, argv);
}
