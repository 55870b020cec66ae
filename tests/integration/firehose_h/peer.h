/* Two processes, node 0 and node 1, both clients of firehose.h with remote pins: messages over a socket
 * pair, and words in shared memory. Their memory (network.h) has the same addresses. */
#ifndef TESTS_FIREHOSE_H_PEER_H
#define TESTS_FIREHOSE_H_PEER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct _firehose_remotecallback_args_t {
  uint64_t number;
  unsigned char data[301];
} firehose_remotecallback_args_t;

extern uint32_t peer_me;
int peer_send(uint32_t node, uint32_t lane, const void* message, size_t len);

#define FIREHOSE_SEND_REQUEST(node, message, len) peer_send(node, 0, message, len)
#define FIREHOSE_SEND_REPLY(reply_to, node, message, len) \
  ((void)(reply_to), peer_send(node, 1, message, len))
#define FIREHOSE_NODES 2
#define FIREHOSE_MYNODE peer_me
#define FIREHOSE_MAX_MESSAGE 4096
/* Delivers received messages, and releases requests that the test has set aside (deferred.h). */
extern void client_poll(void);
#define FIREHOSE_AMPOLL() client_poll()

/* Delivers received messages; called by client_poll(). */
void peer_receive(void);

/* Commands for node 1; 0 when the command is done. */
enum {
  PEER_PIN = 1,        /* pins [addr, addr+len) for itself and holds it */
  PEER_RELEASE = 2,    /* releases what it holds */
  PEER_INVALIDATE = 3, /* its memory at [addr, addr+len) is unmapped */
  PEER_FORBID = 4,     /* the page at addr cannot be registered */
  PEER_DEAF = 5,       /* stops polling until the next command */
  PEER_STOP = 6
};

typedef struct {
  int command;
  uintptr_t addr;
  size_t len;
  int ready[2];
  /* counts of node 1: bytes and calls */
  uint64_t registered, deregistered, remote_callbacks;
  uint64_t messages[2]; /* sent by each node */
} peer_words_t;
extern peer_words_t* peer_words;
#define PEER_LOAD(word) __atomic_load_n(&peer_words->word, __ATOMIC_ACQUIRE)

/* Forks. Node 1 runs `serve` until it is stopped. Node 0 runs `run`, stops node 1 and checks its exit
 * status. Both run `end` when neither needs the other any more. */
void peer_start(void (*run)(void), void (*serve)(void), void (*end)(void));
/* A barrier of both nodes. */
void peer_meet(void);
/* Sends a command to node 1 and waits until it is done. */
void peer_do(int command, uintptr_t addr, size_t len);

#ifdef __cplusplus
}
#endif
#endif
