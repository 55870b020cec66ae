/* Region mode with a key, and remote pins over Active Messages. */
#ifndef LINT_CLIENT_GASNET_H
#define LINT_CLIENT_GASNET_H

#define GASNET_SEQ 1
#include <gasnetex.h>

#define FIREHOSE_REGION
#define FIREHOSE_CLIENT_T
typedef struct {
  uint32_t rkey;
} firehose_client_t;
typedef char firehose_remotecallback_args_t;
#define FIREHOSE_COMPLETION_IN_HANDLER

extern gex_TM_t client_team;
#define FIREHOSE_TM client_team

#endif
