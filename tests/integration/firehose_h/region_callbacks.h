#ifndef TESTS_FIREHOSE_H_REGION_CALLBACKS_H
#define TESTS_FIREHOSE_H_REGION_CALLBACKS_H

#include <firehose.h>

#define FIREHOSE_TEST_PAGE ((size_t)4096)

/* The move callback answers this for pins from now on; 0 ends it. */
void fail_next_pin(int answer);
/* The network takes no more bytes than this: "not now" beyond. */
void limit_network(size_t bytes);
/* The next move callback calls this first. */
void call_in_move(void (*call)(void));
/* Registrations that came to nothing because memory was forbidden. */
size_t refusals(void);
/* The request's key is the one that its region was registered with. */
int key_is_right(const firehose_request_t* request);

#endif
