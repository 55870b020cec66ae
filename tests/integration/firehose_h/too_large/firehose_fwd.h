/* A key of 72 bytes, which must not compile. */
#ifndef TEST_TOO_LARGE_FIREHOSE_FWD_H
#define TEST_TOO_LARGE_FIREHOSE_FWD_H

#define FIREHOSE_REGION
#define FIREHOSE_CLIENT_T
typedef struct {
  char key[72];
} firehose_client_t;
typedef int firehose_remotecallback_args_t;

#endif
