/* A region client with remote pins over its own messages (peer.h): keys, registrations that may be "not
 * registrable", callbacks that wait for firehose_poll(). */
#ifndef TEST_REMOTE_REGION_FIREHOSE_FWD_H
#define TEST_REMOTE_REGION_FIREHOSE_FWD_H

#include "peer.h"

#define FIREHOSE_REGION
#define FIREHOSE_CLIENT_T
typedef struct _firehose_client_t {
  uint64_t registration; /* 0: this memory cannot be registered */
  uintptr_t addr;
} firehose_client_t;

static inline int client_is_valid(const firehose_client_t* client) {
  return client->registration != 0;
}
#define FH_MAY_MERGE client_is_valid

#endif
