// What this process has of one peer's memory: a domain whose registrations are moves, and what waits to be
// said to the peer as an initiator.
//
// The peer's memory is a Domain like that of this process: pinned ranges, holds, victims, invalidation. Its
// registrar does not register, it asks: begin_distant() claims room, and what had to be evicted for it comes
// back through the registrar's unpin() and rides along on the move; the reply ends the registration. A
// recall is an invalidation, and the unpin that follows the last hold is its acknowledgement.
//
// Locks: mu_, a leaf: neither the domain nor the messenger is called under it.
#pragma once

#include <hydrant/remote_pin.h>

#include "firehose/base/thread.hpp"
#include "firehose/domain.hpp"
#include "firehose/remote_wire.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace hydrant {

class RemotePins;

// One request that could not be answered at once.
struct RemoteRequest {
  RemoteRequest* next = nullptr;
  uint64_t number = 0;
  MemoryRange range;
  Access access = Access::kLocalRead;
  hydrant_remote_done_fn done = nullptr;
  void* context = nullptr;
  Domain::Distant distant;
  remote_wire::Message message;  // the move
  remote_wire::Message answer;   // one that waits
  // For the callback, when it waits for poll().
  hydrant_pin_t pin{};
  hydrant_remote_outcome_t outcome{};
  // Whoever answers it, and meanwhile who sends its move: the messenger may still be reading that when the
  // peer is said to be gone.
  std::atomic<uint32_t> users{1};
  void drop() noexcept {
    if (users.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
};

// First come, first served. The owner's lock.
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

class RemotePeer {
 public:
  // Errors: kResource.
  static Status create(RemotePins& end, uint32_t peer, std::unique_ptr<RemotePeer>* out) noexcept;
  ~RemotePeer();
  RemotePeer(const RemotePeer&) = delete;
  RemotePeer& operator=(const RemotePeer&) = delete;

  uint64_t domain_handle() const noexcept { return handle_; }
  Domain& domain() const noexcept { return *domain_; }

  // kOk: *slot is held, or it is null and `call` will be answered.
  Status pin(MemoryRange range, Access access, const hydrant_remote_call_t& call,
             const RegionSlot** slot) noexcept;
  void evict(MemoryRange range) noexcept;

  // What the peer says. `reply`: releases may go back at once through it.
  Status on_reply(const remote_wire::Reply& reply, const std::byte* blob,
                  const std::byte* answer) noexcept;
  void on_recall(const remote_wire::Recalled* recalled, size_t n, void* reply_to) noexcept;
  void on_lease(const remote_wire::Lease& lease, void* reply_to) noexcept;
  void on_reclaim(uint64_t bytes, void* reply_to) noexcept;

  // Sends what waits and serves those that join; part of poll(). Answers how much it did.
  int work() noexcept;
  // The peer is gone, or the end ends: everything under way completes with this.
  void give_up(Status why) noexcept;

  struct Counts {
    std::atomic<uint64_t> moves{0}, joins{0}, recalled{0}, releases_alone{0};
  };
  const Counts& counts() const noexcept { return counts_; }

 private:
  class Asker;  // the domain's registrar

  // So many ids are sent though nobody waits for them and no move comes by.
  static constexpr size_t kWorthAMessage = 64;

  RemotePeer(RemotePins& end, uint32_t peer) noexcept : end_(end), peer_(peer) {}
  // On failure the handle is still the caller's.
  Status make_domain(uint64_t handle) noexcept;

  Status start(RemoteRequest* request, const hydrant_remote_call_t& call) noexcept;
  size_t write_args(RemoteRequest& request, const hydrant_remote_call_t& call) noexcept;
  Status send_move(RemoteRequest* request) noexcept;
  void note_ended() noexcept;
  void complete(RemoteRequest* request, Status status, const RegionSlot* slot, bool called,
                const std::byte* answer, size_t answer_len) noexcept;
  void serve_waiting(bool may_send) noexcept;
  void start_waiting(RemoteRequest* request) noexcept;
  Status import(const remote_wire::Reply& reply, const std::byte* blob, std::byte* key) noexcept;
  void adopt_lease(uint64_t bytes, uint32_t number) noexcept;

  void add_release(uint64_t id) noexcept HYDRANT_EXCLUDES(mu_);
  // Moves up to `room` ids into `ids`; answers how many.
  size_t take_releases(uint64_t* ids, size_t room) noexcept HYDRANT_EXCLUDES(mu_);
  void put_back(const uint64_t* ids, size_t n) noexcept HYDRANT_EXCLUDES(mu_);
  size_t take_releases_locked(uint64_t* ids, size_t room) noexcept HYDRANT_REQUIRES(mu_);
  // Behind the last of them also what ends a RECLAIM.
  size_t take_releases_and_end(uint64_t* ids, size_t room) noexcept HYDRANT_EXCLUDES(mu_);
  // Sends what was given back, a message at most; false: nothing went.
  bool send_releases(uint32_t lane, void* reply_to) noexcept;
  void take_back(MemoryRange range) noexcept;
  void end_recalls() noexcept;
  void hurry(void* reply_to) noexcept;

  RemotePins& end_;
  const uint32_t peer_;
  Domain* domain_ = nullptr;
  uint64_t handle_ = 0;
  size_t id_offset_ = 0;  // of the firehose's id in a key

  Mutex mu_;
  RemoteRequestList moves_ HYDRANT_GUARDED_BY(mu_);    // sent, or about to be
  RemoteRequestList unsent_ HYDRANT_GUARDED_BY(mu_);   // the messenger had no room
  RemoteRequestList waiting_ HYDRANT_GUARDED_BY(mu_);  // for somebody else's move
  uint32_t under_way_ HYDRANT_GUARDED_BY(mu_) = 0;
  uint64_t next_number_ HYDRANT_GUARDED_BY(mu_) = 1;
  uint64_t ended_ HYDRANT_GUARDED_BY(mu_) = 0;  // moves
  uint32_t lease_number_ HYDRANT_GUARDED_BY(mu_) = 0;
  bool is_gone_ HYDRANT_GUARDED_BY(mu_) = false;
  // Given back and not yet said: a stack.
  MappedArray<uint64_t> releases_ HYDRANT_GUARDED_BY(mu_);
  size_t release_count_ HYDRANT_GUARDED_BY(mu_) = 0;
  uint64_t ask_bytes_ HYDRANT_GUARDED_BY(mu_) = 0;
  bool urgent_ HYDRANT_GUARDED_BY(mu_) = false;  // what is given back is waited for
  // A RECLAIM has come, and the peer is not told yet that all which that gave up is given back.
  bool reclaiming_ HYDRANT_GUARDED_BY(mu_) = false;
  // What was taken back is held, asked for, or on its way out: it is waited for. Written under mu_.
  std::atomic<bool> recalling_{false};
  uint64_t take_backs_ HYDRANT_GUARDED_BY(mu_) = 0;
  std::atomic<uint64_t> drained_at_{0};
  Counts counts_;
};

}  // namespace hydrant
