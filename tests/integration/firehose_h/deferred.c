#include "deferred.h"

#include "check.h"

static const firehose_request_t* waiting;
static unsigned countdown;
static unsigned poll_count;

void release_in_poll(const firehose_request_t* request, unsigned after) {
  CHECK(waiting == NULL);
  waiting = request;
  countdown = after;
}

unsigned polls(void) { return poll_count; }

void client_poll(void) {
  ++poll_count;
  if (waiting == NULL || --countdown != 0) return;
  firehose_release(&waiting, 1);
  waiting = NULL;
}
