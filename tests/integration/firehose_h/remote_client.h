/* The parts of the client with remote pins (remote_client.c) that its wrong calls (remote_fatal.c) use. */
#ifndef TESTS_FIREHOSE_H_REMOTE_CLIENT_H
#define TESTS_FIREHOSE_H_REMOTE_CLIENT_H

#include <firehose.h>

#include <stddef.h>

#include "network.h"

#define PAGE ((size_t)NETWORK_PAGE)
#define HIT FIREHOSE_FLAG_RETURN_IF_PINNED
#define CALL FIREHOSE_FLAG_ENABLE_REMOTE_CALLBACK

extern firehose_info_t remote_info;
extern void (*forbidden)(void); /* the forbidden action of node 0 */

typedef struct {
  const firehose_request_t* request;
  int all_local_hit;
  unsigned calls;
} answer_t;

/* A completion callback, whose context is an answer_t. */
void completed(void* context, const firehose_request_t* request, int all_local_hit);
/* A remote_args_callback. */
size_t make_args(void* context, firehose_remotecallback_args_t* args);
/* An iteration of both nodes' loops. */
void poll_once(void);
/* The begin and the end of both nodes, and the loop of node 1. */
void remote_begin(void);
void remote_end(void);
void remote_serve(void);

/* ---- scenarios ---- */

void wrong_calls_are_fatal(void);
void calls_in_callbacks_are_fatal(void); /* with HYDRANT_DEBUG only */

#endif
