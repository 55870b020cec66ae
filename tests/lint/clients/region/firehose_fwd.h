/* A region client of firehose.h without keys, for the check that the header compiles. */
#ifndef FIREHOSE_FWD_H
#define FIREHOSE_FWD_H

#define FIREHOSE_REGION
typedef int firehose_remotecallback_args_t;

#endif
