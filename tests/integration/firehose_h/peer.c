#include "peer.h"

#include <firehose.h>

#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "check.h"

uint32_t peer_me;
peer_words_t* peer_words;
static int wire;

int peer_send(uint32_t node, uint32_t lane, const void* message, size_t len) {
  unsigned char frame[1 + FIREHOSE_MAX_MESSAGE];
  CHECK(node == 1 - peer_me && len <= FIREHOSE_MAX_MESSAGE);
  frame[0] = (unsigned char)lane;
  memcpy(frame + 1, message, len);
  if (send(wire, frame, 1 + len, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)(1 + len)) {
    __atomic_fetch_add(&peer_words->messages[peer_me], 1, __ATOMIC_RELAXED);
    return GASNET_OK;
  }
  if (errno == EAGAIN || errno == ENOBUFS) return GASNET_ERR_NOT_READY;
  return HYDRANT_ERR_BROKEN;
}

void peer_receive(void) {
  unsigned char frame[1 + FIREHOSE_MAX_MESSAGE];
  for (;;) {
    const ssize_t got = recv(wire, frame, sizeof frame, MSG_DONTWAIT);
    if (got <= 1) return;
    firehose_deliver(1 - peer_me, frame + 1, (size_t)got - 1, frame[0] == 0 ? frame : NULL);
  }
}

void peer_meet(void) {
  int round = __atomic_add_fetch(&peer_words->ready[peer_me], 1, __ATOMIC_ACQ_REL);
  while (__atomic_load_n(&peer_words->ready[1 - peer_me], __ATOMIC_ACQUIRE) < round) {
    if (peer_me == 1) CHECK(getppid() != 1);
    sched_yield();
  }
}

void peer_do(int command, uintptr_t addr, size_t len) {
  peer_words->addr = addr;
  peer_words->len = len;
  __atomic_store_n(&peer_words->command, command, __ATOMIC_RELEASE);
  while (command != PEER_STOP && PEER_LOAD(command) != 0) {
    client_poll();
    firehose_poll();
  }
}

void peer_start(void (*run)(void), void (*serve)(void), void (*end)(void)) {
  int ends[2];
  int status = -1;
  pid_t child;
  void* words =
      mmap(NULL, sizeof *peer_words, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(words != MAP_FAILED);
  peer_words = (peer_words_t*)words;
  CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  child = fork();
  CHECK(child >= 0);
  wire = ends[child == 0];
  close(ends[child != 0]);
  if (child == 0) {
    peer_me = 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    hydrant_test_alarm(120);
    serve();
    peer_meet();
    end();
    _exit(0);
  }
  run();
  peer_do(PEER_STOP, 0, 0);
  peer_meet();
  end();
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
