// A request to a peer that could not be served at once, and lists of them.
#pragma once

#include <hydrant/remote_pin.h>

#include "firehose/cache/domain.hpp"
#include "firehose/remote/channel/remote_wire.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

struct RemoteRequest {
  RemoteRequest* next = nullptr;
  uint64_t number = 0;
  MemoryRange range;
  Access access = Access::kLocalRead;
  hydrant_remote_done_fn done = nullptr;
  void* context = nullptr;
  Domain::PeerPin peer_pin;
  remote_wire::Message message;  // the move
  remote_wire::Message answer;   // the reply's data, until poll() runs the callback
  // For the callback, when it waits for poll().
  hydrant_pin_t pin{};
  hydrant_remote_outcome_t outcome{};
  // References: one for completion, and one while its move is being sent: the messenger may still be reading
  // the move when the peer's exit is reported.
  std::atomic<uint32_t> users{1};
  void drop() noexcept {
    if (users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
};

// A queue in order of arrival. Guarded by the owner's lock.
class RemoteRequestList {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  void push(RemoteRequest* request) noexcept {
    request->next = nullptr;
    *last_ = request;
    last_ = &request->next;
  }
  void push_front(RemoteRequest* request) noexcept {
    request->next = first_;
    if (first_ == nullptr) last_ = &request->next;
    first_ = request;
  }
  RemoteRequest* pop() noexcept {
    RemoteRequest* request = first_;
    if (request == nullptr) return nullptr;
    first_ = request->next;
    if (first_ == nullptr) last_ = &first_;
    return request;
  }
  RemoteRequest* take(uint64_t number) noexcept {
    for (RemoteRequest** link = &first_; *link != nullptr; link = &(*link)->next) {
      RemoteRequest* request = *link;
      if (request->number != number) continue;
      *link = request->next;
      if (*link == nullptr) last_ = link;
      return request;
    }
    return nullptr;
  }
  bool is_first(uint64_t number) const noexcept {
    return first_ != nullptr && first_->number == number;
  }
  RemoteRequest* take_all() noexcept {
    RemoteRequest* all = first_;
    first_ = nullptr;
    last_ = &first_;
    return all;
  }

 private:
  RemoteRequest* first_ = nullptr;
  RemoteRequest** last_ = &first_;
};

}  // namespace hydrant
