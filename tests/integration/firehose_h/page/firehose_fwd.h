/* The page client of these tests: like GASNet's page-mode conduit (GM), with larger buckets. */
#ifndef TEST_PAGE_FIREHOSE_FWD_H
#define TEST_PAGE_FIREHOSE_FWD_H

#include <stddef.h>
#include <stdint.h>

#define FIREHOSE_PAGE
#define FH_BUCKET_SIZE 8192

typedef struct _firehose_remotecallback_args_t {
  uintptr_t local_addr;
  uintptr_t remote_addr;
  size_t nbytes;
} firehose_remotecallback_args_t;

/* Releases the request that the test has set aside. */
extern void client_poll(void);
#define FIREHOSE_AMPOLL() client_poll()

#endif
