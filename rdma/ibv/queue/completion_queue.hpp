// A completion queue that grows with the number of peers, or has its full size from the start where the
// adapter cannot resize it. It has room for everything that the counted peers can have under way, so it never
// overflows.
//
// Invariant: peers_ * entries_per_peer_ <= capacity_.
//
// Threads: try_lock() and unlock() around poll(); one thread reads at a time. make_room() and count_peer() by
// one thread at a time; make_room() waits for a reader.
#pragma once

#include "firehose/base/status.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/device/verbs_objects.hpp"
#include "rdma/transport/spin_lock.hpp"

#include <cstdint>

namespace hydrant::ibv {

class GrowingCompletionQueue {
 public:
  struct Config {
    const Port* port = nullptr;  // outlives the queue
    ibv_comp_channel* channel = nullptr;
    uint32_t entries_per_peer = 0;
    uint32_t peers = 1;           // that may exist in the queue's life
    uint32_t peers_at_first = 8;  // of them, those that the queue starts with room for
    bool threaded = true;
  };
  // Errors: kResource.
  Status open(const Config& config) noexcept;
  void close() noexcept { queue_.reset(); }
  bool is_open() const noexcept { return queue_ != nullptr; }
  ibv_cq* get() const noexcept { return queue_.get(); }
  // The most completions that it holds. Under the lock.
  uint32_t capacity() const noexcept { return capacity_; }

  // Makes room for one more peer, before it is created. Errors: kResource.
  Status make_room() noexcept;
  // Counts the peer that now exists and uses that room.
  void count_peer() noexcept { ++peers_; }

  bool try_lock() noexcept HYDRANT_NO_TSA { return !threaded_ || lock_.try_lock(); }
  void unlock() noexcept HYDRANT_NO_TSA {
    if (threaded_) lock_.unlock();
  }
  // As ibv_poll_cq(). Less than 0: the queue cannot be read.
  int poll(ibv_wc* completions, int most) noexcept {
    return ibv_poll_cq(queue_.get(), most, completions);
  }
  // Requests an event on the channel for the next completion. False: the adapter refuses.
  bool request_notice() noexcept {
    return uncancelled::call(ibv_req_notify_cq, queue_.get(), 0) == 0;
  }

 private:
  CompletionQueue create(uint32_t entries) const noexcept;
  void create_whole(uint32_t entries) noexcept;
  int resize(uint32_t entries) noexcept;
  void adopt(CompletionQueue made, uint32_t entries) noexcept;
  void note_capacity(uint32_t requested) noexcept;

  alignas(64) SpinLock lock_;
  bool threaded_ = true;
  bool can_grow_ = true;
  const Port* port_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  uint32_t entries_per_peer_ = 0;
  uint32_t peers_ = 0;
  uint32_t capacity_ = 0;
  CompletionQueue queue_;
};

}  // namespace hydrant::ibv
