#include "firehose/registrars/uring_forks.hpp"

#include <atomic>
#include <pthread.h>
#include <unistd.h>

namespace hydrant {
namespace {

Mutex g_mu;
RingDescriptor* g_rings HYDRANT_GUARDED_BY(g_mu) = nullptr;
pthread_once_t g_once = PTHREAD_ONCE_INIT;
// The process that the list belongs to. Written before there is a ring, and by the only thread of a
// child; relaxed for that reason.
std::atomic<pid_t> g_pid{0};

void before_fork() noexcept HYDRANT_NO_TSA { g_mu.lock(); }
void after_fork_in_parent() noexcept HYDRANT_NO_TSA { g_mu.unlock(); }

void close_all_in_child() noexcept HYDRANT_NO_TSA {
  const pid_t self = getpid();
  g_pid.store(self, std::memory_order_relaxed);
  g_mu.reset_in_child();
  RingDescriptor** link = &g_rings;
  while (*link != nullptr) {
    RingDescriptor* ring = *link;
    if (ring->owner == self) {
      link = &ring->next;
      continue;
    }
    close(ring->fd);
    ring->fd = -1;
    *link = ring->next;
  }
}

void install() noexcept {
  g_pid.store(getpid(), std::memory_order_relaxed);
  pthread_atfork(&before_fork, &after_fork_in_parent, &close_all_in_child);
}

}  // namespace

Mutex& open_rings_mutex() noexcept { return g_mu; }

void prepare_for_forks() noexcept {
  pthread_once(&g_once, &install);
  forget_rings_in_child();
}

void list_ring(RingDescriptor* ring) noexcept HYDRANT_NO_TSA {
  ring->owner = getpid();
  ring->next = g_rings;
  g_rings = ring;
}

void unlist_ring(RingDescriptor* ring) noexcept HYDRANT_NO_TSA {
  RingDescriptor** link = &g_rings;
  while (*link != nullptr && *link != ring) link = &(*link)->next;
  if (*link != nullptr) *link = ring->next;
}

void forget_rings_in_child() noexcept {
  if (g_pid.load(std::memory_order_relaxed) != getpid()) close_all_in_child();
}

}  // namespace hydrant
