#ifndef TESTS_FIREHOSE_H_REGION_CALLBACKS_H
#define TESTS_FIREHOSE_H_REGION_CALLBACKS_H

#include <firehose.h>

#define FIREHOSE_TEST_PAGE ((size_t)4096)

/* The move callback returns this code for pins from now on; 0 ends it. */
void fail_next_pin(int answer);
/* Limits the network to this many bytes; beyond it pins return "not now". */
void limit_network(size_t bytes);
/* The next move callback calls this function first. */
void call_in_move(void (*call)(void));
/* Number of registrations that failed because the memory was forbidden. */
size_t refusals(void);
/* True if the request's key is the one of its region's registration. */
int key_is_right(const firehose_request_t* request);

#endif
