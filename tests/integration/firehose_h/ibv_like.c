/* Uses firehose like a conduit: types and rank from GASNet's internal header, several rails per key,
 * requests collected and released together while polling. */
#include <firehose.h>

#include <gasnet_internal.h>

#include "check.h"

gex_Rank_t gasneti_mynode = 3;
static firehose_info_t conduit_firehose_info;
static const firehose_request_t* in_flight[8];
static int in_flight_count;
static int registrations;

int gasneti_AMPoll(void) {
  firehose_release(in_flight, in_flight_count);
  in_flight_count = 0;
  return 0;
}

extern int firehose_move_callback(gex_Rank_t node, const firehose_region_t* unpin_list,
                                  size_t unpin_num, firehose_region_t* pin_list, size_t pin_num) {
  size_t i;
  int rail;
  CHECK(node == gasneti_mynode);
  for (i = 0; i < unpin_num; ++i) {
    for (rail = 0; rail < TEST_RAILS; ++rail) {
      CHECK(unpin_list[i].client.handle[rail] == (void*)unpin_list[i].addr);
    }
    --registrations;
  }
  for (i = 0; i < pin_num; ++i) {
    for (rail = 0; rail < TEST_RAILS; ++rail) {
      pin_list[i].client.handle[rail] = (void*)pin_list[i].addr;
      pin_list[i].client.lkey[rail] = (uint32_t)rail;
      pin_list[i].client.rkey[rail] = 100 + (uint32_t)rail;
    }
    ++registrations;
  }
  return 0;
}

extern int firehose_remote_callback(gex_Rank_t node, const firehose_region_t* pin_list,
                                    size_t num_pinned, firehose_remotecallback_args_t* args) {
  (void)node, (void)pin_list, (void)num_pinned, (void)args;
  return -1;
}

int main(void) {
  const size_t region = 128 * 1024;
  const uintptr_t memory = (uintptr_t)0x10000000; /* this memory is never accessed */
  gex_AM_Entry_t* table = firehose_get_handlertable();
  int handlers = 0;
  int i;
  hydrant_test_alarm(120);
  while (table[handlers].gex_fnptr) ++handlers;
  CHECK(handlers == 0);
  firehose_init(16 * region, 16, region, NULL, 0,
                FIREHOSE_INIT_FLAG_LOCAL_ONLY | FIREHOSE_INIT_FLAG_UNPIN_ON_FINI,
                &conduit_firehose_info);
  CHECK(conduit_firehose_info.max_LocalPinSize == region);
  for (i = 0; i < 200; ++i) {
    const uintptr_t addr = memory + (uintptr_t)(i * 7 % 64) * 2 * region;
    const firehose_request_t* request;
    if (in_flight_count == 8) gasneti_AMPoll();
    request = firehose_try_local_pin(addr + 100, 1, NULL);
    if (request == NULL) request = firehose_local_pin(addr + 100, region / 2, NULL);
    CHECK(request->node == 3 && request->client.lkey[3] == 3 && request->client.rkey[0] == 100);
    in_flight[in_flight_count++] = request;
  }
  CHECK(registrations > 0 && registrations <= 16);
  gasneti_AMPoll();
  firehose_poll();
  firehose_fini();
  CHECK(registrations == 0);
  return 0;
}
