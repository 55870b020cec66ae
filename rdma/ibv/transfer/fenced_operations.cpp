// Follows each put by a fence. IbvTransport hands these operations out where ranks of a node, or one rank,
// may use several adapters.
#include "rdma/ibv/transfer/fenced_operations.hpp"

#include "rdma/ibv/queue/spin_guard.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace hydrant::ibv {

namespace {

constexpr uint32_t kFenceBytes = 8;

}  // namespace

Status FencedOperations::open(const Port& port, const Options& options) noexcept {
  const uint32_t count = options.operations;
  threaded_ = !options.single_threaded;
  room_ = std::max(options.send_depth, kEntriesForMessages) - kEntriesForMessages;
  puts_.reset(new (std::nothrow) Put[count]);
  if (puts_ == nullptr) return fail(Status::kResource, "no memory for %u puts", count);
  for (uint32_t i = 0; i < count; ++i) {
    puts_[i].owner = this;
    puts_[i].next = free_;
    free_ = &puts_[i];
  }
  return landing_.open(port.device.pd, kFenceBytes, IBV_ACCESS_LOCAL_WRITE, "fences of puts");
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
  put.owner->start_fence(put);
}

void FencedOperations::start_fence(Put& put) noexcept {
  Peer& peer = *peers_.find(put.peer);
  {
    const SpinGuard guard(peer.lock, threaded_);
    put.next = std::exchange(peer.unfenced, &put);
    advance(peer);
    if (peer.unfenced == nullptr) return;
  }
  deferred_.add(peer);
}

// The fences read the receive slots: any memory would do that the peer's adapter reads.
void FencedOperations::advance(Peer& peer) noexcept {
  if (peer.unfenced == nullptr) return;
  SendRequest request;
  request.piece = {reinterpret_cast<uintptr_t>(landing_.data()), kFenceBytes, landing_.lkey()};
  request.work.sg_list = &request.piece;
  request.work.num_sge = 1;
  request.work.opcode = IBV_WR_RDMA_READ;
  request.work.wr.rdma.remote_addr = peer.memory.peer_slots;
  request.work.wr.rdma.rkey = peer.memory.peer_slot_key;
  while (peer.unfenced != nullptr && peer.state.is_open() && peer.send.used() < room_) {
    Fence& fence = *peer.unfenced;
    // Before the post: another thread may read the completion at once, without the lock of the peer, and the
    // fence is free then.
    peer.unfenced = fence.next;
    SendRecord& record = peer.send.add(request.work, true);
    record.completion = &fence;
    record.holds = SendRecord::Holds::kOperation;
    if (poster_.post(peer, &request.work, 1)) continue;
    peer.unfenced = &fence;
    return;
  }
}

uint32_t FencedOperations::fail_waiting(Peer& peer) noexcept {
  Fence* next = nullptr;
  {
    const SpinGuard guard(peer.lock, threaded_);
    next = std::exchange(peer.unfenced, nullptr);
  }
  uint32_t ended = 0;
  for (; next != nullptr; ++ended) {
    Fence& fence = *std::exchange(next, next->next);
    fence.done(fence, Status::kBroken);
  }
  return ended;
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
