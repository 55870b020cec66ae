/* A region client with forbidden calls: each case must end the program with an explanation. */
#include "check.h"
#include "deferred.h"
#include "network.h"
#include "region_callbacks.h"

#define PAGE FIREHOSE_TEST_PAGE
#define LOCAL FIREHOSE_INIT_FLAG_LOCAL_ONLY

static firehose_info_t info;

static void start(void) {
  network_start();
  firehose_init(64 * PAGE, 16, 4 * PAGE, NULL, 0, LOCAL, &info);
}

static hydrant_fh_client_t good_client(void) {
  hydrant_fh_client_t client;
  memset(&client, 0, sizeof client);
  client.size = sizeof client;
  client.mode = HYDRANT_MODE_REGION;
  client.client_bytes = 16;
  client.region_bytes = 32;
  client.client_offset = 16;
  client.shape = HYDRANT_FH_SHAPE(HYDRANT_MODE_REGION, 16);
  client.api_version = FIREHOSE_API_VERSION;
  client.victim_ratio = 0.25;
  client.move = hydrant_fh_call_move;
  return client;
}

static void init_as(const hydrant_fh_client_t* client) {
  hydrant_fh_limits_t limits;
  hydrant_fh_init(NULL, client, 64 * PAGE, 16, 4 * PAGE, NULL, 0, LOCAL, &limits);
}

static void other_version(void) {
  hydrant_fh_client_t client = good_client();
  client.shape += 1u << 24;
  init_as(&client);
}
static void other_struct_size(void) {
  hydrant_fh_client_t client = good_client();
  client.size -= sizeof(void*);
  init_as(&client);
}
static void other_api(void) {
  hydrant_fh_client_t client = good_client();
  client.api_version = 0x200;
  init_as(&client);
}
static void key_too_large(void) {
  hydrant_fh_client_t client = good_client();
  client.client_bytes = 72;
  client.region_bytes = 88;
  client.shape = HYDRANT_FH_SHAPE(HYDRANT_MODE_REGION, 72);
  init_as(&client);
}
static void key_outside_region(void) {
  hydrant_fh_client_t client = good_client();
  client.client_offset = 24;
  init_as(&client);
}
static void odd_bucket(void) {
  hydrant_fh_client_t client = good_client();
  client.bucket_bytes = 3 * PAGE;
  init_as(&client);
}

static void pin_before_init(void) { firehose_local_pin(network_page(0), PAGE, NULL); }
static void fini_before_init(void) { firehose_fini(); }
static void init_twice(void) {
  start();
  start();
}
static void init_again_without_flag(void) {
  start();
  firehose_fini();
  start();
}
static void pin_after_fini(void) {
  start();
  firehose_fini();
  firehose_local_pin(network_page(0), PAGE, NULL);
}
static void misaligned_prepinned(void) {
  firehose_region_t region;
  memset(&region, 0, sizeof region);
  region.addr = network_page(1);
  region.len = PAGE / 2;
  firehose_init(64 * PAGE, 16, 4 * PAGE, &region, 1, LOCAL, &info);
}
static void too_long(void) {
  start();
  firehose_local_pin(network_page(0), 4 * PAGE + 1, NULL);
}
static void empty_range(void) {
  start();
  firehose_local_pin(network_page(0), 0, NULL);
}
static void wraps(void) {
  start();
  firehose_local_pin(UINTPTR_MAX - PAGE, 4 * PAGE, NULL);
}
static void move_fails(void) {
  start();
  fail_next_pin(5);
  firehose_local_pin(network_page(0), PAGE, NULL);
}
static void released_twice(void) {
  firehose_request_t mine;
  const firehose_request_t* request;
  start();
  request = firehose_local_pin(network_page(0), PAGE, &mine);
  firehose_release(&request, 1);
  firehose_release(&request, 1);
}
/* The following cases need HYDRANT_DEBUG, unless noted otherwise. */
static void released_twice_of_ours(void) {
  const firehose_request_t* first;
  const firehose_request_t* again;
  start();
  first = again = firehose_local_pin(network_page(0), PAGE, NULL);
  firehose_release(&first, 1);
  firehose_release(&again, 1);
}
static void released_by_copy(void) {
  firehose_request_t mine, copy;
  const firehose_request_t* request;
  start();
  request = firehose_local_pin(network_page(0), PAGE, &mine);
  copy = mine;
  firehose_release(&request, 1);
  request = &copy;
  firehose_release(&request, 1);
}
static void release_one(void) {
  static firehose_request_t mine;
  const firehose_request_t* request = &mine;
  firehose_release(&request, 1);
}
static void look_around(void) { firehose_try_local_pin(network_page(9), PAGE, NULL); }
static void forget_one(void) { firehose_local_invalidate(network_page(9), PAGE); }
static void pin_with(void (*call)(void)) {
  start();
  call_in_move(call);
  firehose_local_pin(network_page(0), PAGE, NULL);
}
static void release_in_move(void) { pin_with(release_one); }
static void look_in_move(void) { pin_with(look_around); }
static void invalidate_in_move(void) { pin_with(forget_one); }
static void fini_in_move(void) { pin_with(firehose_fini); }

static void budget_contradiction(void) {
  setenv("GASNET_FIREHOSE_MAXVICTIM_M", "1G", 1);
  start();
}

static void never_fatal(void) {
  start();
  CHECK(firehose_try_local_pin(network_page(0), 0, NULL) == NULL);
  CHECK(firehose_try_local_pin(UINTPTR_MAX - PAGE, 4 * PAGE, NULL) == NULL);
  CHECK(firehose_try_local_pin(network_page(0), 5 * PAGE, NULL) == NULL);
  CHECK(firehose_partial_local_pin(network_page(0), 0, NULL) == NULL);
  firehose_fini();
  fprintf(stderr, "reached the end\n");
}

static const struct {
  const char* name;
  void (*run)(void);
  const char* text;
} cases[] = {
    {"other_version", other_version, "another version of firehose.h"},
    {"other_struct_size", other_struct_size, "another version of firehose.h"},
    {"other_api", other_api, "wants firehose API 0x200"},
    {"key_too_large", key_too_large, "do not fit together"},
    {"key_outside_region", key_outside_region, "do not fit together"},
    {"odd_bucket", odd_bucket, "FH_BUCKET_SIZE is 12288"},
    {"pin_before_init", pin_before_init, "firehose_local_pin: called before firehose_init"},
    {"fini_before_init", fini_before_init, "firehose_fini: not between"},
    {"init_twice", init_twice, "called twice"},
    {"init_again_without_flag", init_again_without_flag, "FIREHOSE_INIT_FLAG_MAY_REINIT"},
    {"pin_after_fini", pin_after_fini, "firehose_local_pin: called after firehose_fini"},
    {"misaligned_prepinned", misaligned_prepinned, "whole buckets"},
    {"too_long", too_long, "more than the largest region"},
    {"empty_range", empty_range, "0 bytes"},
    {"wraps", wraps, "wraps around"},
    {"move_fails", move_fails, "firehose_move_callback returned 5"},
    {"released_twice", released_twice, "was released before"},
    {"released_twice_of_ours", released_twice_of_ours, "was released before"},
    {"released_by_copy", released_by_copy, "firehose_release: this request is not held"},
    {"release_in_move", release_in_move, "firehose_release: called inside firehose_move_callback"},
    {"look_in_move", look_in_move, "firehose_try_local_pin: called inside firehose_move_callback"},
    {"invalidate_in_move", invalidate_in_move,
     "firehose_local_invalidate: called inside firehose_move_callback"},
    {"fini_in_move", fini_in_move, "firehose_fini: called inside firehose_move_callback"},
    {"budget_contradiction", budget_contradiction, "GASNET_FIREHOSE_MAXVICTIM_M"},
};

int main(int argc, char** argv) {
  size_t i;
  hydrant_test_alarm(120);
  network_start();
  for (i = 0; argc == 2 && i < sizeof cases / sizeof *cases; ++i) {
    if (strcmp(argv[1], cases[i].name) != 0) continue;
    check_aborts(cases[i].run, cases[i].text);
    return 0;
  }
  if (argc == 2 && strcmp(argv[1], "never_fatal") == 0) {
    check_says(never_fatal, "reached the end");
    return 0;
  }
  return 2;
}
