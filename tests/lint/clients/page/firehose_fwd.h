/* A page client of firehose.h, for the check that the header compiles. */
#ifndef FIREHOSE_FWD_H
#define FIREHOSE_FWD_H

#define FIREHOSE_PAGE
typedef int firehose_remotecallback_args_t;

#endif
