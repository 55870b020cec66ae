// Follows each put by a fence. IbvTransport hands these operations out where the ranks of its node use several
// adapters.
#include "rdma/ibv/transfer/fenced_operations.hpp"

#include "rdma/ibv/queue/spin_guard.hpp"

#include <new>

namespace hydrant::ibv {

Status FencedOperations::open(const Port& port, uint32_t count, bool threaded) noexcept {
  threaded_ = threaded;
  puts_.reset(new (std::nothrow) Put[count]);
  if (puts_ == nullptr) return fail(Status::kResource, "no memory for %u puts", count);
  for (uint32_t i = 0; i < count; ++i) {
    puts_[i].owner = this;
    puts_[i].next = free_;
    free_ = &puts_[i];
  }
  const Status status = landing_.open(port.device.pd, Operations::kFenceBytes,
                                      IBV_ACCESS_LOCAL_WRITE, "fences of puts");
  if (status == Status::kOk)
    operations_.set_fence_landing(
        {reinterpret_cast<uintptr_t>(landing_.data()), Operations::kFenceBytes, landing_.lkey()});
  return status;
}

Status FencedOperations::put(Rank peer, const Pinned& remote, const Pinned& local, size_t bytes,
                             Completion* completion) noexcept {
  Put* const put = take();
  if (put == nullptr) return Status::kNotReady;
  put->done = after_write;
  put->peer = peer;
  put->completion = completion;
  const Status status = operations_.put(peer, remote, local, bytes, put);
  if (status != Status::kOk) give_back(*put);
  return status;
}

void FencedOperations::after_write(Completion& completion, Status status) noexcept {
  Put& put = static_cast<Put&>(completion);
  if (status != Status::kOk) {
    after_fence(completion, status);
    return;
  }
  put.done = after_fence;
  put.owner->operations_.start_fence(put.peer, put);
}

void FencedOperations::after_fence(Completion& completion, Status status) noexcept {
  Put& put = static_cast<Put&>(completion);
  Completion* const whole = put.completion;
  put.owner->give_back(put);
  if (whole != nullptr) whole->done(*whole, status);
}

FencedOperations::Put* FencedOperations::take() noexcept {
  const SpinGuard guard(lock_, threaded_);
  Fence* const taken = free_;
  if (taken != nullptr) free_ = taken->next;
  return static_cast<Put*>(taken);
}

void FencedOperations::give_back(Put& put) noexcept {
  const SpinGuard guard(lock_, threaded_);
  put.next = free_;
  free_ = &put;
}

}  // namespace hydrant::ibv
