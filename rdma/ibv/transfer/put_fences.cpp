// Follows puts by fences. Operations::put() asks for it where the peer's node uses several adapters.
#include "rdma/ibv/transfer/put_fences.hpp"

#include "firehose/base/log.hpp"
#include "rdma/ibv/queue/spin_guard.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace hydrant::ibv {

namespace {

constexpr uint32_t kFenceBytes = 8;

}  // namespace

void PutFences::open(size_t max_at_once) noexcept {
  max_at_once_ = max_at_once;
  threaded_ = !options_.single_threaded;
  room_ = std::max(options_.send_depth, kEntriesForMessages) - kEntriesForMessages;
}

Status PutFences::make_room() noexcept {
  const uint32_t count = options_.operations;
  std::unique_ptr<Put[]> made(new (std::nothrow) Put[count]);
  if (made == nullptr) return fail(Status::kResource, "no memory for %u puts", count);
  const Status status =
      landing_.open(port_.device.pd, kFenceBytes, IBV_ACCESS_LOCAL_WRITE, "fences of puts");
  if (status != Status::kOk) return status;
  puts_ = std::move(made);
  for (uint32_t i = 0; i < count; ++i) {
    puts_[i].owner = this;
    puts_[i].next = free_;
    free_ = &puts_[i];
  }
  return Status::kOk;
}

Status PutFences::set_up(Peer& peer, bool is_one, PutOrder order) noexcept {
  // Puts of a rank to itself do not go through the adapter.
  const bool has_fences = !is_one && !peer.is_self && order != PutOrder::kRelaxed;
  if (has_fences && puts_ == nullptr) {
    if (const Status status = make_room(); status != Status::kOk) return status;
    log_info("verbs: puts to %s, and to other ranks whose node uses several adapters, have fences",
             name_of(peer).text);
  }
  peer.put_at_once.store(has_fences ? 0 : max_at_once_, std::memory_order_relaxed);
  return Status::kOk;
}

Completion* PutFences::begin(Peer& peer, Completion* completion) noexcept {
  Put* put = nullptr;
  {
    const SpinGuard guard(lock_, threaded_);
    put = static_cast<Put*>(free_);
    if (put == nullptr) return nullptr;
    free_ = put->next;
  }
  put->done = after_write;
  put->peer = peer.rank;
  put->completion = completion;
  return put;
}

void PutFences::cancel(Completion& write) noexcept { give_back(static_cast<Put&>(write)); }

void PutFences::after_write(Completion& completion, Status status) noexcept {
  Put& put = static_cast<Put&>(completion);
  if (status != Status::kOk) {
    after_fence(completion, status);
    return;
  }
  put.done = after_fence;
  put.owner->start_fence(put);
}

void PutFences::start_fence(Put& put) noexcept {
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
void PutFences::advance(Peer& peer) noexcept {
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

uint32_t PutFences::fail_waiting(Peer& peer) noexcept {
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

void PutFences::after_fence(Completion& completion, Status status) noexcept {
  Put& put = static_cast<Put&>(completion);
  Completion* const whole = put.completion;
  put.owner->give_back(put);
  if (whole != nullptr) whole->done(*whole, status);
}

void PutFences::give_back(Put& put) noexcept {
  const SpinGuard guard(lock_, threaded_);
  put.next = free_;
  free_ = &put;
}

}  // namespace hydrant::ibv
