/* A client of GASNet-EX with remote pins over Active Messages: completions in handlers, remote
 * callbacks in firehose_poll(), as in an InfiniBand conduit. */
#ifndef TEST_GASNET_FIREHOSE_FWD_H
#define TEST_GASNET_FIREHOSE_FWD_H

#define GASNET_SEQ 1
#include <gasnetex.h>

#define FIREHOSE_REGION
#define FIREHOSE_COMPLETION_IN_HANDLER
#define FIREHOSE_CLIENT_T
typedef struct _firehose_client_t {
  uint32_t lkey, rkey;
} firehose_client_t;

/* A small put that travels with the move; the target writes it. */
typedef struct {
  uint64_t* at;
  uint64_t word;
} firehose_remotecallback_args_t;

#ifdef __cplusplus
extern "C" {
#endif
extern gex_TM_t client_team;
#ifdef __cplusplus
}
#endif
#define FIREHOSE_TM client_team

#endif
