/* A page client with remote pins over its own messages (peer.h), both kinds of callbacks in handlers. */
#ifndef TEST_REMOTE_PAGE_FIREHOSE_FWD_H
#define TEST_REMOTE_PAGE_FIREHOSE_FWD_H

#include "peer.h"

#define FIREHOSE_PAGE
#define FIREHOSE_COMPLETION_IN_HANDLER
#define FIREHOSE_REMOTE_CALLBACK_IN_HANDLER

#endif
