// The state of puts and gets that need more than one work request, or wait for room, and of the stripes of
// those that are cut over several ports.
//
// Invariant: an operation is either free or taken. A taken operation becomes free exactly once: when it is
// fully posted (or abandoned) and none of its parts is under way; its completion is then in the batch.
//
// Threads: take() and the end of an operation lock the pool; the fields of an operation belong to the lock of
// its peer.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/queue/completion_batch.hpp"
#include "rdma/transport/spin_lock.hpp"
#include "rdma/transport/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hydrant::ibv {

// The part of an operation that its first port carries, and the state of the whole.
struct PooledOperation {
  Completion* completion = nullptr;
  uintptr_t local = 0;
  uintptr_t remote = 0;
  size_t left = 0;  // bytes that are not posted yet
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  uint32_t under_way = 0;  // posted pieces, and stripes, that have not ended
  bool is_put = false;
  bool is_posted = false;  // all of it
  Status status = Status::kOk;
  PooledOperation* next_free = nullptr;
};

// The part of a long put or get that one further port carries. It ends when the last request posted for it
// ends: for a put that is a fence, an RDMA read of eight bytes. The response to the fence shows that the data
// has reached memory, whichever adapter a later message arrives by. Where reads may pass writes, the fence is
// posted only when the last write has completed.
struct Stripe {
  PooledOperation* operation = nullptr;
  uintptr_t local = 0;
  uintptr_t remote = 0;
  size_t left = 0;  // bytes that are not posted yet
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  bool is_put = false;
  bool awaits_writes = false;  // the fence has to wait for the last write
  uint8_t rail = 0;
  Stripe* next = nullptr;  // of PeerRail::unfenced
};

// A read behind a put that has completed (PutFences).
struct Fence : Completion {
  Fence* next = nullptr;
};

class OperationPool {
 public:
  static constexpr uint32_t kStripesEach = kMaxRails - 1;

  // Makes room for `count` operations; open_stripes() adds room for their stripes. Errors: kResource.
  Status open(uint32_t count, bool threaded) noexcept;
  Status open_stripes() noexcept;

  // Takes a default-initialized operation; null if all are taken.
  PooledOperation* take() noexcept;
  // The kStripesEach stripes of the operation.
  Stripe* stripes_of(const PooledOperation& operation) noexcept {
    return &stripes_[static_cast<size_t>(&operation - operations_.get()) * kStripesEach];
  }
  // A part of the operation has ended. The first error becomes the status of the whole. The batch has room.
  void end_part(PooledOperation& operation, Status status, CompletionBatch* batch) noexcept {
    --operation.under_way;
    if (operation.status == Status::kOk) operation.status = status;
    if (operation.is_posted && operation.under_way == 0) end(operation, batch);
  }
  // Abandons the operation: it fails with kBroken when its parts under way have ended.
  void give_up(PooledOperation& operation, CompletionBatch* batch) noexcept {
    operation.is_posted = true;
    operation.status = Status::kBroken;
    if (operation.under_way == 0) end(operation, batch);
  }

 private:
  void end(PooledOperation& operation, CompletionBatch* batch) noexcept;

  SpinLock lock_;
  bool threaded_ = false;
  uint32_t count_ = 0;
  std::unique_ptr<PooledOperation[]> operations_;
  std::unique_ptr<Stripe[]> stripes_;
  PooledOperation* free_ = nullptr;
};

// Tracks the puts and gets that delay messages to a peer: a message must not overtake a put that was started
// before it. Under the lock of the peer.
//
// Invariant: at most one operation waits; delays_messages() is true while an operation waits or a stripe of a
// put is under way.
class PendingOperations {
 public:
  PooledOperation* waiting() const noexcept { return waiting_; }
  void set_waiting(PooledOperation& operation) noexcept {
    waiting_ = &operation;
    held_ |= kWaiting;
  }
  void clear_waiting() noexcept {
    waiting_ = nullptr;
    held_ &= ~kWaiting;
  }
  void add_put_stripe() noexcept { held_ += kStripe; }
  void complete_put_stripe() noexcept { held_ -= kStripe; }
  bool delays_messages() const noexcept { return held_ != 0; }
  bool has_put_stripes() const noexcept { return held_ >= kStripe; }

 private:
  static constexpr uint64_t kWaiting = 1;
  static constexpr uint64_t kStripe = 2;

  PooledOperation* waiting_ = nullptr;
  uint64_t held_ = 0;
};

}  // namespace hydrant::ibv
