// Queues of messages that have arrived and wait for delivery, one per peer and lane, and the list of the
// queues that are not empty. A single thread at a time delivers from a queue, so that a lane keeps its order.
// Other threads, and polls inside a handler, deliver from other queues meanwhile.
//
// Invariant of a queue: it is claimed exactly while it is in the ready list or a thread delivers from it. An
// unclaimed queue is empty.
//
// Threads: methods of ReadyList from any thread. front() and pop() of a queue by the thread that claimed it.
#pragma once

#include "rdma/ibv/queue/receive_pool.hpp"
#include "rdma/ibv/queue/spin_guard.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant::ibv {

class DeliveryQueue {
 public:
  // ---- by the thread that claimed it ----
  // The message to deliver next; null: ReadyList::end_turn() says whether there are more.
  ReceiveBuffer* front() const noexcept { return batch_; }
  void pop() noexcept { batch_ = batch_->next; }

  // ---- by the ready list, under its lock ----
  // True: the queue is claimed now, and was not before.
  bool append(ReceiveBuffer& buffer) noexcept {
    buffer.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &buffer;
    last_ = &buffer;
    if (is_claimed_) return false;
    is_claimed_ = true;
    return true;
  }
  // Moves the appended messages to the front, if that is empty. False: the queue is empty.
  bool refill() noexcept {
    if (batch_ == nullptr) {
      batch_ = first_;
      first_ = last_ = nullptr;
    }
    return batch_ != nullptr;
  }
  void release_claim() noexcept { is_claimed_ = false; }
  DeliveryQueue* next_ready() const noexcept { return next_ready_; }
  void set_next_ready(DeliveryQueue* next) noexcept { next_ready_ = next; }

  // The peer whose messages these are; set once.
  Peer* peer() const noexcept { return peer_; }
  void set_peer(Peer& peer) noexcept { peer_ = &peer; }

 private:
  ReceiveBuffer* batch_ = nullptr;  // of the thread that claimed the queue
  ReceiveBuffer* first_ = nullptr;
  ReceiveBuffer* last_ = nullptr;
  DeliveryQueue* next_ready_ = nullptr;
  Peer* peer_ = nullptr;
  bool is_claimed_ = false;
};

class ReadyList {
 public:
  void open(bool threaded) noexcept { threaded_ = threaded; }

  // How many queues are ready: a hint without the lock.
  uint32_t size() const noexcept { return size_.load(std::memory_order_relaxed); }
  // A message has arrived in `queue`.
  void add(DeliveryQueue& queue, ReceiveBuffer& buffer) noexcept {
    const SpinGuard guard(lock_, threaded_);
    if (queue.append(buffer)) link(queue);
  }
  // Claims the queue that has been ready longest, for delivery; it is not empty. Null: none is ready.
  DeliveryQueue* claim() noexcept {
    const SpinGuard guard(lock_, threaded_);
    DeliveryQueue* const queue = first_;
    if (queue == nullptr) return nullptr;
    first_ = queue->next_ready();
    size_.fetch_sub(1, std::memory_order_relaxed);
    (void)queue->refill();
    return queue;
  }
  // The caller has emptied front(), or has used up its budget (may_go_on is false). True: it continues with
  // the same queue. False: its claim has ended; an empty queue is unclaimed, another is ready again, last.
  bool end_turn(DeliveryQueue& queue, bool may_go_on) noexcept {
    const SpinGuard guard(lock_, threaded_);
    const bool has_more = queue.refill();
    if (!has_more) {
      queue.release_claim();
    } else if (!may_go_on) {
      link(queue);
    }
    return has_more && may_go_on;
  }

 private:
  void link(DeliveryQueue& queue) noexcept {
    queue.set_next_ready(nullptr);
    if (first_ == nullptr) {
      first_ = &queue;
    } else {
      last_->set_next_ready(&queue);
    }
    last_ = &queue;
    size_.fetch_add(1, std::memory_order_relaxed);
  }

  alignas(64) SpinLock lock_;
  bool threaded_ = false;
  DeliveryQueue* first_ = nullptr;
  DeliveryQueue* last_ = nullptr;
  std::atomic<uint32_t> size_{0};
};

}  // namespace hydrant::ibv
