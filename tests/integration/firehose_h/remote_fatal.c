/* A client with remote pins that makes wrong calls, which must end the program with an explanation: invalid
 * arguments, and calls inside callbacks. */
#include "check.h"
#include "network.h"
#include "remote_client.h"

static void try_self(void) { firehose_try_remote_pin(0, network_page(0), PAGE, 0, NULL); }
static void pin_self(void) {
  answer_t answer;
  firehose_remote_pin(0, network_page(0), PAGE, 0, NULL, NULL, completed, &answer);
}
static void try_nobody(void) { firehose_partial_remote_pin(2, network_page(0), PAGE, 0, NULL); }
static void pin_nobody(void) {
  answer_t answer;
  firehose_remote_pin(2, network_page(0), PAGE, 0, NULL, NULL, completed, &answer);
}
static void abort_long(void) {
  answer_t answer;
  firehose_remote_pin(1, network_page(0), remote_info.max_RemotePinSize + 1, 0, NULL, NULL,
                      completed, &answer);
}
static void abort_without_args(void) {
  answer_t answer;
  firehose_remote_pin(1, network_page(0), PAGE, CALL, NULL, NULL, completed, &answer);
}

void wrong_calls_are_fatal(void) {
  remote_begin();
  check_aborts(try_self, "firehose_try_remote_pin of");
  check_aborts(try_self, "that is this node");
  check_aborts(pin_self, "firehose_remote_pin of");
  check_aborts(pin_self, "that is this node");
  check_aborts(try_nobody, "there is no such node");
  check_aborts(pin_nobody, "firehose_remote_pin of");
  /* Children of this process have no endpoint: arguments are checked before the endpoint is used. */
  check_aborts(abort_long, "more than max_RemotePinSize");
  check_aborts(abort_without_args, "there is no remote_args_callback");
}

/* ---- what may not be called in a callback; with HYDRANT_DEBUG only ---- */

static void call_local_pin(void) { firehose_local_pin(network_page(3), PAGE, NULL); }
static void call_poll(void) { firehose_poll(); }
static void call_remote_pin(void) {
  firehose_remote_pin(1 - peer_me, network_page(4), PAGE, HIT, NULL, NULL, completed, NULL);
}
static size_t forbidden_args(void* context, firehose_remotecallback_args_t* args) {
  if (peer_me == 0) forbidden();
  return make_args(context, args);
}
static void in_args(void) {
  remote_begin();
  firehose_remote_pin(1, network_page(50), PAGE, CALL, NULL, forbidden_args, completed, NULL);
}

#ifdef FIREHOSE_COMPLETION_IN_HANDLER
static void call_invalidate(void) { firehose_local_invalidate(network_page(3), PAGE); }
static void call_try(void) { firehose_try_remote_pin(1 - peer_me, network_page(4), PAGE, 0, NULL); }
static void in_completion(void* context, const firehose_request_t* request, int all_local_hit) {
  (void)context, (void)request, (void)all_local_hit;
  forbidden();
}
static void in_handler(void) {
  remote_begin();
  firehose_remote_pin(1, network_page(50), PAGE, 0, NULL, NULL, in_completion, NULL);
  for (;;) client_poll();
}
#else
/* A completion callback outside of a handler may call everything. */
static unsigned completions;
static void in_completion(void* context, const firehose_request_t* request, int all_local_hit) {
  const firehose_request_t* local = firehose_local_pin(network_page(3), PAGE, NULL);
  (void)context, (void)all_local_hit;
  firehose_release(&local, 1);
  firehose_poll();
  call_remote_pin();
  firehose_release(&request, 1);
  ++completions;
}
static void in_handler(void) {
  remote_begin();
  firehose_remote_pin(1, network_page(50), PAGE, 0, NULL, NULL, in_completion, NULL);
  while (completions == 0) poll_once();
  fprintf(stderr, "allowed in firehose_poll\n");
  abort();
}
#endif

/* Node 1 sends a request, and node 0 must stop. */
static void ask_node_0(void) {
  answer_t answer = {NULL, 0, 0};
  remote_begin();
  firehose_remote_pin(0, network_page(50), PAGE, CALL, NULL, make_args, completed, &answer);
  for (;;) poll_once();
}
static void in_remote_callback(void) {
  remote_begin();
  for (;;) poll_once();
}

static void start_in_args(void) { peer_start(in_args, remote_serve, remote_end); }
static void start_in_handler(void) { peer_start(in_handler, remote_serve, remote_end); }
static void start_in_remote_callback(void) {
  peer_start(in_remote_callback, ask_node_0, remote_end);
}

static void check_forbidden(void (*run)(void), void (*call)(void), const char* text) {
  forbidden = call;
  check_aborts(run, text);
}

void calls_in_callbacks_are_fatal(void) {
#ifdef FIREHOSE_COMPLETION_IN_HANDLER
  const char* const handler = "called while this thread serves a message";
  check_forbidden(start_in_handler, call_try, handler);
  check_forbidden(start_in_handler, call_local_pin, handler);
  check_forbidden(start_in_handler, call_remote_pin, handler);
  check_forbidden(start_in_handler, call_poll, handler);
  check_forbidden(start_in_handler, call_invalidate, handler);
  check_forbidden(start_in_remote_callback, call_try, handler);
#else
  const char* const remote = "called inside firehose_remote_callback";
  check_forbidden(start_in_handler, NULL, "allowed in firehose_poll");
  check_forbidden(start_in_remote_callback, call_local_pin, remote);
  check_forbidden(start_in_remote_callback, call_remote_pin, remote);
  check_forbidden(start_in_remote_callback, call_poll, remote);
#endif
  check_forbidden(start_in_args, call_local_pin, "called inside a remote_args_callback");
  check_forbidden(start_in_args, call_remote_pin, "called inside a remote_args_callback");
  check_forbidden(start_in_args, call_poll, "called inside a remote_args_callback");
}
