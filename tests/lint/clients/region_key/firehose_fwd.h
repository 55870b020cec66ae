/* A region client of firehose.h with the largest key and every option, for the check that the header
 * compiles. */
#ifndef FIREHOSE_FWD_H
#define FIREHOSE_FWD_H

#define FIREHOSE_REGION
#define FIREHOSE_CLIENT_T
#define FH_BUCKET_SIZE 65536
#define FH_MAXVICTIM_TO_PHYSMEM_RATIO 0.1
#define FH_MAY_MERGE(client) ((client)->words[0] != 0)

typedef struct {
  unsigned long long words[8];
} firehose_client_t;
typedef struct {
  void* context;
} firehose_remotecallback_args_t;

#endif
