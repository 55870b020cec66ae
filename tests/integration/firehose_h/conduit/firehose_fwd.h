/* Imitates a conduit's header inside GASNet's own tree with remote pins. All callbacks may run in
 * handlers, so GASNet's firehose_poll() would be empty. */
#ifndef TEST_CONDUIT_FIREHOSE_FWD_H
#define TEST_CONDUIT_FIREHOSE_FWD_H

#if !defined(_GASNET_INTERNAL_H)
#error "include gasnet_internal.h first"
#endif

#define FH_BUCKET_SIZE GASNET_PAGESIZE
#define FIREHOSE_REGION
#define FIREHOSE_COMPLETION_IN_HANDLER
#define FIREHOSE_REMOTE_CALLBACK_IN_HANDLER

#define FIREHOSE_CLIENT_T
typedef struct _firehose_client_t {
  void* handle[1];
  uint32_t lkey[1];
  uint32_t rkey[1];
} firehose_client_t;

/* A small put whose data travels with the move. */
typedef struct {
  uint64_t* addr;
  size_t len;
  uint64_t data[4];
} firehose_remotecallback_args_t;

GASNETI_INLINE(test_client_is_valid)
int test_client_is_valid(const firehose_client_t* client) { return client->handle[0] != NULL; }
#define FH_MAY_MERGE test_client_is_valid

#endif
