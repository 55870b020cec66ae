/* The client of firehose.h in firehose_calls.c: a region client that sends nothing. */
#ifndef FIELD_FIREHOSE_FWD_H
#define FIELD_FIREHOSE_FWD_H

#include <stddef.h>
#include <stdint.h>

#define FIREHOSE_REGION
#define FIREHOSE_CLIENT_T
typedef struct _firehose_client_t {
  uint64_t registration;
} firehose_client_t;
typedef char firehose_remotecallback_args_t;
#define FIREHOSE_COMPLETION_IN_HANDLER
#define FIREHOSE_REMOTE_CALLBACK_IN_HANDLER

#endif
