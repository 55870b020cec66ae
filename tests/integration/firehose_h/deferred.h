/* Requests that the client's poll releases, as a conduit releases requests when it reaps completions. */
#ifndef TESTS_FIREHOSE_H_DEFERRED_H
#define TESTS_FIREHOSE_H_DEFERRED_H

#include <firehose.h>

/* The `after`-th poll from now releases the request. One request at a time. */
void release_in_poll(const firehose_request_t* request, unsigned after);
unsigned polls(void);

#endif
