// The target role of an endpoint: the exports that peers hold of this process's memory, and the messages
// about them that are due.
//
// Invariant: each export is a hold on a region of the domain and charged to its peer's lease; both end with
// it. A peer that has exited gets no export and no message; its exports end in drop_exports_of().
//
// Where to read on: moves in remote_target.cpp; functions and replies that wait in pending_replies.cpp;
// released or reclaimed memory in remote_recalls.cpp; room notices in remote_room.cpp.
//
// Threads: any. exports_mu_ is a leaf: neither the domain, the messenger nor a client's function is called
// under it.
#pragma once

#include <hydrant/remote_pin.h>

#include "firehose/base/mapped_array.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/cache/domain.hpp"
#include "firehose/remote/channel/remote_channel.hpp"
#include "firehose/remote/channel/remote_wire.hpp"
#include "firehose/remote/target/export_table.hpp"
#include "firehose/remote/target/lease_table.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class RemoteTarget {
 public:
  explicit RemoteTarget(RemoteChannel& channel) noexcept
      : channel_(channel), config_(channel.config()), domain_(channel.domain()) {}
  RemoteTarget(const RemoteTarget&) = delete;
  RemoteTarget& operator=(const RemoteTarget&) = delete;
  // kResource: address space is refused. kBadArg: no peer could ever have an export here.
  Status set_up() noexcept;

  // ---- messages of peers ----
  Status on_move(uint32_t from, const remote_wire::Header& header,
                 remote_wire::MessageReader reader, void* reply_to) noexcept;
  Status on_await(uint32_t from, const remote_wire::Await& await, void* reply_to) noexcept;
  void on_lease_request(uint32_t from, uint64_t bytes) noexcept;
  // Ends n exports that the peer releases. `wanted`: so many bytes are about to be pinned for it instead.
  void release_exports(uint32_t from, const std::byte* ids, size_t n, uint64_t wanted) noexcept;

  // ---- peers that have exited ----
  bool is_gone(uint32_t peer) const noexcept {
    MutexLock lock(exports_mu_);
    return notices_[peer].gone;
  }
  void note_gone(uint32_t peer) noexcept;
  void drop_exports_of(uint32_t peer) noexcept;
  // Drops the messages due to the peer, or to all peers: `ranks`.
  void drop_replies(uint32_t peer) noexcept;

  // ---- poll() ----
  // Finds the messages for peers, and marks the peers as due.
  void look() noexcept {
    (void)find_zombies();
    check_pressure();
    check_room();
  }
  // Each returns the number of steps. The first runs functions that wait, and marks the peers whose leases
  // have changed.
  int run_deferred() noexcept;
  int send_to(uint32_t peer) noexcept;
  int send_replies() noexcept;

  // kNotReady: a peer may still use memory that was released here.
  Status quiet() noexcept;
  // Fills the target's fields.
  void read_stats(hydrant_remote_stats_t* stats) noexcept;

 private:
  // The outcome of a move.
  struct MoveResult {
    Status status = Status::kOk;
    uint64_t id = 0;
    Domain::ExportInfo memory;
    uint64_t charge = 0;
    uint32_t flags = 0;
  };

  // A move whose function waits for poll(). Behind it lie the arguments.
  struct DeferredMove {
    DeferredMove* next = nullptr;
    uint32_t from = 0;
    remote_wire::Move move{};
    MoveResult served;
    remote_wire::Message args;
  };

  // A reply that the messenger had no room for.
  struct PendingReply {
    PendingReply* next = nullptr;
    uint32_t to = 0;
    remote_wire::Message message;
  };
  // A refusal for whose reply there was no memory.
  struct PendingRefusal {
    uint64_t number;
    uint32_t peer;
    Status status;
  };

  // ---- remote_target.cpp ----
  void serve(uint32_t from, const remote_wire::Move& asked, MoveResult* served) noexcept;
  Status admit(uint32_t from, const remote_wire::Move& move, MemoryRange* range) noexcept;
  // Takes a hold that a peer may have, and describes its memory.
  Status pin_for_peer(MemoryRange range, Access access, const RegionSlot** slot,
                      Domain::ExportInfo* memory) noexcept;
  bool is_still_there(const Domain::ExportInfo& memory, uint64_t seen) noexcept;
  void call_remote(uint32_t from, const remote_wire::Move& move, const MoveResult& served,
                   const std::byte* args, remote_wire::Message* answer) noexcept;
  void reply(uint32_t from, uint64_t number, MoveResult& served, const remote_wire::Message& said,
             void* reply_to) noexcept;
  // From here on the peer may release the export; false: the peer has exited, and the export has ended.
  bool publish_export(uint32_t from, uint64_t id, remote_wire::Reply* reply) noexcept;
  // Ends an export and returns its slot; null: there is no such export. `by_peer`: the peer releases it.
  const RegionSlot* end_export(uint32_t from, uint64_t id, bool by_peer) noexcept;
  // The longest range that a peer can ever have here, and whether that is the domain's largest region.
  uint64_t max_lease(bool* is_region) const noexcept HYDRANT_REQUIRES(exports_mu_);
  Status fail_too_large(uint32_t from, uint64_t len) const noexcept HYDRANT_REQUIRES(exports_mu_);
  // ---- pending_replies.cpp ----
  // Null: there is none.
  DeferredMove* take_deferred() noexcept;
  void queue_lease_notices() noexcept;
  int send_refusals() noexcept;
  // Takes the peer's replies off the lists; returns the deferred moves among them.
  DeferredMove* unlist_replies(uint32_t peer) noexcept;
  // ---- remote_recalls.cpp ----
  // Finds exports of released memory; true if any was listed for recall.
  bool find_zombies() noexcept;
  void check_pressure() noexcept;
  // ---- remote_room.cpp ----
  bool may_have_room(uint32_t from, MemoryRange range, Access access) noexcept;
  void check_room() noexcept;
  // False: the messenger has no room for it.
  bool send_room(uint32_t peer, bool now, void* reply_to) noexcept;
  int send_room_notice(uint32_t peer) noexcept;
  void forget_awaiting_locked(uint32_t peer) noexcept HYDRANT_REQUIRES(exports_mu_);

  RemoteChannel& channel_;
  const RemoteConfig& config_;
  Domain& domain_;

  mutable Mutex exports_mu_;
  ExportTable exports_;  // guarded by exports_mu_, except its counters
  LeaseTable leases_ HYDRANT_GUARDED_BY(exports_mu_);
  // How far into the domain's InvalidationLog exports were made zombies. Written under exports_mu_, released
  // after the zombies are counted; acquired by find_zombies(), so that quiet(), which comes next, sees them.
  std::atomic<uint64_t> invalidations_seen_{0};
  // Relaxed: a hint. A shortage that is overlooked is followed by another.
  std::atomic<uint64_t> shortages_seen_{0};
  // The messages that poll() sends to the peer as a target.
  struct PendingNotices {
    uint64_t reclaim_bytes;
    uint64_t reclaimed_at;  // the domain's count of shortages at the last RECLAIM
    bool reclaiming;        // ... which the peer has not completed yet
    enum class Room : uint8_t { kNone, kPending, kDue } room;  // notice to send
    MemoryRange awaited;  // range that it waits for room for; len 0: none
    Access awaited_access;
    bool lease;
    bool gone;
  };
  std::atomic<uint32_t> awaiting_{0};  // peers; relaxed: their ranges are under the lock
  std::atomic<uint64_t> room_looked_at_{0};
  MappedArray<PendingNotices> notices_ HYDRANT_GUARDED_BY(exports_mu_);
  MappedArray<PendingRefusal> pending_refusals_ HYDRANT_GUARDED_BY(exports_mu_);
  size_t pending_refusal_count_ HYDRANT_GUARDED_BY(exports_mu_) = 0;
  PendingReply* replies_ HYDRANT_GUARDED_BY(exports_mu_) = nullptr;
  PendingReply** replies_tail_ HYDRANT_GUARDED_BY(exports_mu_) = &replies_;
  DeferredMove* deferred_ HYDRANT_GUARDED_BY(exports_mu_) = nullptr;
  DeferredMove** deferred_tail_ HYDRANT_GUARDED_BY(exports_mu_) = &deferred_;

  // Relaxed; none is written by a hit.
  struct Counts {
    std::atomic<uint64_t> served{0}, declined{0}, recalls{0}, reclaims{0};
  };
  Counts counts_;
};

}  // namespace hydrant
