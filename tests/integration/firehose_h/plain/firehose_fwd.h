/* The minimal client header: intervals without keys, no poll function. */
#ifndef TEST_PLAIN_FIREHOSE_FWD_H
#define TEST_PLAIN_FIREHOSE_FWD_H

#define FIREHOSE_REGION
typedef int firehose_remotecallback_args_t;

#endif
