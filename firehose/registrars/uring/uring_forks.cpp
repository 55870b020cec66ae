// Keeps the list of open rings and closes them in the child of a fork. uring_ring.cpp lists and unlists
// rings.
#include "firehose/registrars/uring/uring_forks.hpp"

#include "firehose/base/fork_nesting.hpp"
#include "firehose/base/uncancelled.hpp"

#include <atomic>
#include <pthread.h>
#include <unistd.h>

namespace hydrant {
namespace {

Mutex g_mu;
RingDescriptor* g_rings HYDRANT_GUARDED_BY(g_mu) = nullptr;
pthread_once_t g_once = PTHREAD_ONCE_INIT;
// The process that owns the list. Relaxed: written before the first ring and by the single thread of a child.
std::atomic<pid_t> g_pid{0};

thread_local constinit ForkNesting t_nesting [[gnu::tls_model("initial-exec")]];

// Signal handlers interrupt no section under g_mu. But where one interrupted a section of the cache, a wait
// for g_mu could be for another thread's fork, which waits for that section.
void before_fork() noexcept HYDRANT_NO_TSA {
  if (!t_nesting.begin()) return;
  g_mu.lock();
  ForkNesting::locked();
}
void after_fork_in_parent() noexcept HYDRANT_NO_TSA {
  if (!t_nesting.end()) return;
  g_mu.unlock();
  t_nesting.unlocked();
}

// If nothing was locked, another thread's change of the list may be half made. It can be walked at each step.
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
    ring->close_if_open();
    *link = ring->next;
  }
}

void after_fork_in_child() noexcept HYDRANT_NO_TSA {
  close_all_in_child();
  (void)t_nesting.finish_in_child();
}

void install() noexcept {
  g_pid.store(getpid(), std::memory_order_relaxed);
  pthread_atfork(&before_fork, &after_fork_in_parent, &after_fork_in_child);
}

}  // namespace

void RingDescriptor::close_if_open() noexcept {
  if (is_open()) uncancelled::close(fd);
  fd = -1;
}

Mutex& open_rings_mutex() noexcept { return g_mu; }

void prepare_for_forks() noexcept {
  pthread_once(&g_once, &install);
  forget_rings_in_child();
}

void list_ring(RingDescriptor* ring) noexcept HYDRANT_NO_TSA {
  for (RingDescriptor* other = g_rings; other != nullptr; other = other->next) {
    if (other->fd == ring->fd) other->replaced.store(true);
  }
  ring->owner = getpid();
  ring->replaced.store(false);
  ring->identity.note(ring->fd);
  ring->next = g_rings;
  // A child for which nothing was locked finds the ring complete, or not at all.
  std::atomic_signal_fence(std::memory_order_seq_cst);
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
