// The buffers of the shared receive queue, or of the peers' queue pairs where the adapter has no shared one.
// A buffer is posted to the adapter, or holds a message that has arrived, or is unposted because the adapter
// refused it. The pool keeps unposted buffers until a retry.
//
// Invariant: a buffer is in unposted_ exactly while the adapter has refused it. Threads: any.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/device/verbs_objects.hpp"
#include "rdma/transport/spin_lock.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace hydrant::ibv {

struct Peer;

// A receive buffer, and the message in it.
struct ReceiveBuffer {
  // Prebuilt request that posts the buffer again.
  ibv_recv_wr work = {};
  ibv_sge piece = {};
  std::byte* data = nullptr;
  ReceiveBuffer* next = nullptr;
  ibv_qp* pair = nullptr;  // the queue pair that it is posted to, if none is shared
  Peer* peer =
      nullptr;  // the sender of the last message in it, which gets the credit back; null: none does
  uint32_t counter = 0;  // which of its credits

  // Makes this an empty buffer of `bytes` at `memory`.
  void set(std::byte* memory, uint32_t bytes, uint32_t lkey) noexcept {
    data = memory;
    piece = {reinterpret_cast<uintptr_t>(memory), bytes, lkey};
    work.wr_id = reinterpret_cast<uintptr_t>(this);
    work.sg_list = &piece;
    work.num_sge = 1;
  }
};

class ReceivePool {
 public:
  // A shared receive queue for `capacity` buffers, if the adapter has such queues. Errors: kResource.
  Status open(const Port& port, uint32_t capacity, bool threaded) noexcept;
  // The queue pairs that receive from it must be destroyed before.
  void close() noexcept { queue_.reset(); }
  // Null: each queue pair has buffers of its own.
  ibv_srq* queue() const noexcept { return queue_.get(); }
  // The length of the shared queue; UINT32_MAX if there is none.
  uint32_t capacity() const noexcept { return capacity_; }

  // Posts the list of `count` buffers, of one queue pair if none is shared; afterwards they are the
  // adapter's. Returns how many were posted.
  uint32_t post(ReceiveBuffer& first, uint32_t count) noexcept {
    ibv_recv_wr* bad = nullptr;
    const int error = queue_ != nullptr ? ibv_post_srq_recv(queue_.get(), &first.work, &bad)
                                        : ibv_post_recv(first.pair, &first.work, &bad);
    if (error != 0) [[unlikely]]
      return count - keep_unposted(bad != nullptr ? bad : &first.work, error);
    return count;
  }
  bool has_unposted() const noexcept {
    return unposted_.load(std::memory_order_relaxed) != nullptr;
  }
  // Calls retry(buffer) for each unposted buffer, which posts it again.
  template <typename Retry>
  void retry_unposted(Retry&& retry) noexcept {
    ReceiveBuffer* next = take_unposted();
    while (ReceiveBuffer* buffer = next) {
      next = buffer->next;
      buffer->work.next = nullptr;
      retry(*buffer);
    }
  }

 private:
  uint32_t keep_unposted(ibv_recv_wr* first, int error) noexcept;
  ReceiveBuffer* take_unposted() noexcept;

  SharedReceives queue_;
  uint32_t capacity_ = 0;
  bool threaded_ = false;
  const char* device_ = "";
  SpinLock unposted_lock_;
  std::atomic<ReceiveBuffer*> unposted_{nullptr};
};

}  // namespace hydrant::ibv
