// The initiator's part for one peer: a domain whose registrations are moves, and the messages that wait to be
// sent to the peer.
//
// The peer's memory is a Domain like that of this process: pinned ranges, holds, victims, invalidation. Its
// registrar does not register memory, it sends requests: PeerRegions::begin() claims room; evicted firehoses
// pass through the registrar's unpin() and travel with the move; the reply ends the registration. A
// recall is an invalidation, and the unpin that follows the last hold is its acknowledgement.
//
// Locks: mu_, a leaf: neither the domain nor the messenger is called under it.
#pragma once

#include <hydrant/remote_pin.h>

#include "firehose/base/thread.hpp"
#include "firehose/cache/domain.hpp"
#include "firehose/remote/channel/remote_channel.hpp"
#include "firehose/remote/channel/remote_wire.hpp"
#include "firehose/remote/initiator/peer_limit.hpp"
#include "firehose/remote/initiator/released_ids.hpp"
#include "firehose/remote/initiator/remote_completions.hpp"
#include "firehose/remote/initiator/remote_request.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace hydrant {

class PeerCache {
 public:
  // Errors: kResource.
  static Status create(RemoteChannel& channel, RemoteCompletions& completions, uint32_t peer,
                       std::unique_ptr<PeerCache>* out) noexcept;
  ~PeerCache();
  PeerCache(const PeerCache&) = delete;
  PeerCache& operator=(const PeerCache&) = delete;

  uint64_t domain_handle() const noexcept { return handle_; }
  Domain& domain() const noexcept { return *domain_; }

  // kOk: *slot is held, or it is null and `call` will complete later.
  Status pin(MemoryRange range, Access access, const hydrant_remote_call_t& call,
             const RegionSlot** slot) noexcept;
  void evict(MemoryRange range) noexcept;

  // Handles the peer's messages. `reply`: may carry releases at once.
  Status on_reply(const remote_wire::Reply& reply, const std::byte* blob,
                  const std::byte* answer) noexcept;
  void on_recall(const remote_wire::Recalled* recalled, size_t n, void* reply_to) noexcept;
  void on_lease(const remote_wire::Lease& lease, void* reply_to) noexcept;
  void on_reclaim(uint64_t bytes, void* reply_to) noexcept;
  void on_room(const remote_wire::Room& room) noexcept;

  // Requests a room notice from the peer, unless one is awaited already (peer_room_waits.cpp).
  Status await_room(MemoryRange range, Access access, bool at_once) noexcept;

  // Sends waiting messages and serves requests that joined others; part of poll(). Returns the number of
  // steps.
  int work() noexcept;
  // The peer has exited, or the end is destroyed: everything under way completes with this.
  void fail_all(Status why) noexcept;

  struct Counts {
    std::atomic<uint64_t> moves{0}, joins{0}, recalled{0}, releases_alone{0};
  };
  const Counts& counts() const noexcept { return counts_; }

 private:
  class RemoteRegistrar;  // the domain's registrar

  struct Requests {
    RemoteRequestList moves;    // sent, or about to be
    RemoteRequestList unsent;   // the messenger had no room
    RemoteRequestList waiting;  // for another request's move
    uint32_t under_way = 0;
    uint64_t next_number = 1;
    uint64_t ended = 0;  // moves
  };

  PeerCache(RemoteChannel& channel, RemoteCompletions& completions, uint32_t peer) noexcept
      : channel_(channel), completions_(completions), peer_(peer) {}
  // On failure the caller still owns the handle.
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
  // As Domain::PeerRegions::begin(); kResource for ranges that the peer is known never to grant.
  Status begin(RemoteRequest& request, const RegionSlot** slot) noexcept;
  bool is_too_large(MemoryRange range) const noexcept {
    return limit_.forbids(range, domain_->config().granule_bytes);
  }

  void add_release(uint64_t id) noexcept HYDRANT_EXCLUDES(mu_);
  void requeue_releases(const uint64_t* ids, size_t n) noexcept HYDRANT_EXCLUDES(mu_);
  // Sends released ids, one message at most; false: none was sent.
  bool send_releases(uint32_t lane, void* reply_to) noexcept;
  void invalidate_recalled(MemoryRange range) noexcept;
  void finish_recalls() noexcept;
  void flush_releases(void* reply_to) noexcept;

  RemoteChannel& channel_;
  RemoteCompletions& completions_;
  const uint32_t peer_;
  Domain* domain_ = nullptr;
  uint64_t handle_ = 0;
  size_t id_offset_ = 0;  // of the firehose's id in a key

  Mutex mu_;
  Requests requests_ HYDRANT_GUARDED_BY(mu_);
  uint32_t lease_number_ HYDRANT_GUARDED_BY(mu_) = 0;
  bool is_gone_ HYDRANT_GUARDED_BY(mu_) = false;
  ReleasedIds released_ HYDRANT_GUARDED_BY(mu_);
  uint64_t request_bytes_ HYDRANT_GUARDED_BY(mu_) = 0;
  // Recalled firehoses are held, requested, or being returned: the recall waits for them. Written under mu_.
  std::atomic<bool> recalling_{false};
  uint64_t recalls_ HYDRANT_GUARDED_BY(mu_) = 0;
  std::atomic<uint64_t> drained_at_{0};
  uint64_t awaited_bytes_ HYDRANT_GUARDED_BY(mu_) = 0;  // 0: no room notice is awaited
  PeerLimit limit_;
  Counts counts_;
};

}  // namespace hydrant
