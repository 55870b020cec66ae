/* The region client of these tests: the largest key, registrations that may be "not registrable", and
 * both kinds of callbacks allowed in handlers (so firehose_poll() is an empty macro). */
#ifndef TEST_REGION_FIREHOSE_FWD_H
#define TEST_REGION_FIREHOSE_FWD_H

#include <stddef.h>
#include <stdint.h>

#define FIREHOSE_REGION
#define FIREHOSE_CLIENT_T
typedef struct _firehose_client_t {
  uint64_t registration; /* 0: this memory cannot be registered */
  uintptr_t addr;
  size_t len;
  uint32_t rkey[10];
} firehose_client_t;

typedef char firehose_remotecallback_args_t;

#define FIREHOSE_COMPLETION_IN_HANDLER
#define FIREHOSE_REMOTE_CALLBACK_IN_HANDLER
#define FIREHOSE_MYNODE 7

/* Takes a pointer to non-const, as a conduit may. */
static inline int client_is_valid(firehose_client_t* client) { return client->registration != 0; }
#define FH_MAY_MERGE client_is_valid

extern void client_poll(void);
#define FIREHOSE_AMPOLL() client_poll()

#endif
