/* A random region client: keys, memory that cannot be registered, a poll that releases. */
#ifndef TESTS_FUZZ_FIREHOSE_REGION_FIREHOSE_FWD_H
#define TESTS_FUZZ_FIREHOSE_REGION_FIREHOSE_FWD_H

#include <stddef.h>
#include <stdint.h>

#define FIREHOSE_REGION
#define FIREHOSE_CLIENT_T
typedef struct _firehose_client_t {
  uint64_t registration; /* 0: this memory cannot be registered */
  uintptr_t addr;
  size_t len;
} firehose_client_t;
typedef int firehose_remotecallback_args_t;

static inline int client_is_valid(const firehose_client_t* client) {
  return client->registration != 0;
}
#define FH_MAY_MERGE client_is_valid

extern void client_poll(void);
#define FIREHOSE_AMPOLL() client_poll()

#endif
