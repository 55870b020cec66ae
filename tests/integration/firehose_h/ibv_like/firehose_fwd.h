/* Imitates a conduit's header inside GASNet's own tree: it needs GASNet's internal header before it,
 * uses its page size, and calls its own function to decide about merging. */
#ifndef TEST_IBV_LIKE_FIREHOSE_FWD_H
#define TEST_IBV_LIKE_FIREHOSE_FWD_H

#if !defined(_GASNET_INTERNAL_H)
#error "include gasnet_internal.h first"
#endif

#define TEST_RAILS 4
#define FH_BUCKET_SIZE GASNET_PAGESIZE
#define FIREHOSE_REGION
#define FIREHOSE_COMPLETION_IN_HANDLER
#define FIREHOSE_REMOTE_CALLBACK_IN_HANDLER

#define FIREHOSE_CLIENT_T
typedef struct _firehose_client_t {
  void* handle[TEST_RAILS];
  uint32_t lkey[TEST_RAILS];
  uint32_t rkey[TEST_RAILS];
} firehose_client_t;

typedef struct {
  void* addr;
  size_t len;
  char data[512];
} firehose_remotecallback_args_t;

GASNETI_INLINE(test_client_is_valid)
int test_client_is_valid(const firehose_client_t* client) { return client->handle[0] != NULL; }
#define FH_MAY_MERGE test_client_is_valid

#endif
