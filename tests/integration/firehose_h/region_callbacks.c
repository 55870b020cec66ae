/* The region client's callbacks, in a separate file as in a conduit. */
#include "region_callbacks.h"

#include "check.h"
#include "network.h"

static unsigned long next_registration = 1;
static size_t network_limit = SIZE_MAX;
static int failure;
static void (*in_move)(void);
static size_t refused_registrations;

void fail_next_pin(int answer) { failure = answer; }
void limit_network(size_t bytes) { network_limit = bytes; }
void call_in_move(void (*call)(void)) { in_move = call; }
size_t refusals(void) { return refused_registrations; }

static int pin_one(firehose_region_t* region) {
  CHECK(region->addr % FIREHOSE_TEST_PAGE == 0 && region->len % FIREHOSE_TEST_PAGE == 0);
  CHECK(region->client.registration == 0);
  if (failure != 0) return failure;
  if (network_counts().bytes + region->len > network_limit) return GASNET_ERR_NOT_READY;
  region->client.addr = region->addr;
  region->client.len = region->len;
  if (network_forbidden(region->addr, region->len)) {
    ++refused_registrations;
    return 0; /* the key marks the failure */
  }
  network_pin(region->addr, region->len);
  region->client.registration = __atomic_fetch_add(&next_registration, 1, __ATOMIC_RELAXED);
  region->client.rkey[9] = (uint32_t)region->client.registration ^ 0xABCDu;
  return 0;
}

int firehose_move_callback(gex_Rank_t node, const firehose_region_t* unpin_list, size_t unpin_num,
                           firehose_region_t* pin_list, size_t pin_num) {
  size_t i;
  CHECK(node == FIREHOSE_MYNODE);
  if (in_move != NULL) in_move();
  for (i = 0; i < unpin_num; ++i) {
    const firehose_region_t* region = &unpin_list[i];
    CHECK(region->client.addr == region->addr && region->client.len == region->len);
    if (region->client.registration != 0) network_unpin(region->addr, region->len);
  }
  for (i = 0; i < pin_num; ++i) {
    const int answer = pin_one(&pin_list[i]);
    if (answer != 0) return answer;
  }
  return 0;
}

int firehose_remote_callback(gex_Rank_t node, const firehose_region_t* pin_list, size_t num_pinned,
                             firehose_remotecallback_args_t* args) {
  (void)node, (void)pin_list, (void)num_pinned, (void)args;
  fprintf(stderr, "the remote callback belongs to the remote part\n");
  _exit(1);
}

int key_is_right(const firehose_request_t* request) {
  const firehose_client_t* key = &request->client;
  return key->registration != 0 && key->addr == request->addr && key->len == request->len &&
         key->rkey[9] == ((uint32_t)key->registration ^ 0xABCDu);
}
