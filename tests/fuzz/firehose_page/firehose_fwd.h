/* A random page client: buckets without keys, a poll that releases. */
#ifndef TESTS_FUZZ_FIREHOSE_PAGE_FIREHOSE_FWD_H
#define TESTS_FUZZ_FIREHOSE_PAGE_FIREHOSE_FWD_H

#define FIREHOSE_PAGE
#define FH_BUCKET_SIZE 8192
typedef int firehose_remotecallback_args_t;

extern void client_poll(void);
#define FIREHOSE_AMPOLL() client_poll()

#endif
