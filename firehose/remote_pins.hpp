// One end of the remote-pin protocol: what peers have here (exports, quotas), what this process has of them
// (RemotePeer), and the messages between. docs/remote_pins.md explains it.
//
// Where to read on: the initiator in remote_peer.cpp and remote_returns.cpp; the target in remote_target.cpp;
// the messages in remote_wire.hpp; poll, delivery and life in remote_pins.cpp.
//
// Locks: exports_mu_ and done_mu_, leaves like RemotePeer::mu_; none is held while the domain, the messenger
// or a client's function is called.
#pragma once

#include <hydrant/remote_pin.h>

#include "firehose/base/thread.hpp"
#include "firehose/domain.hpp"
#include "firehose/remote_exports.hpp"
#include "firehose/remote_leases.hpp"
#include "firehose/remote_peer.hpp"
#include "firehose/remote_wire.hpp"

#include <atomic>
#include <cstdint>
#include <memory>

namespace hydrant {

struct RemoteConfig {
  char name[32] = "";
  uint32_t rank = 0, ranks = 0;
  uint32_t flags = 0;
  uint64_t budget_bytes = 0;
  uint32_t max_firehoses = 0;
  uint32_t base_percent = 50;
  uint64_t zombie_bytes = 0;
  uint32_t max_peer_regions = 0;
  size_t max_region_bytes = 0;
  size_t merge_bytes = 0;
  size_t stream_bytes = 0;
  hydrant_messenger_t messenger{};
  hydrant_remote_fn remote = nullptr;
  void* user = nullptr;
};

class RemotePins {
 public:
  RemotePins(const RemoteConfig& config, Domain& domain) noexcept
      : config_(config), domain_(domain) {}
  ~RemotePins();
  RemotePins(const RemotePins&) = delete;
  RemotePins& operator=(const RemotePins&) = delete;
  // Errors: kResource, kBadArg.
  Status set_up() noexcept;

  const RemoteConfig& config() const noexcept { return config_; }
  Domain& domain() const noexcept { return domain_; }

  // What this process has of a peer; null before the first use. Cost: one load.
  RemotePeer* known_peer(uint32_t peer) const noexcept {
    return peer < config_.ranks ? peers_[peer].load(std::memory_order_acquire) : nullptr;
  }
  // kBadArg, with a text: no such peer, or this rank itself.
  Status check_peer(uint32_t peer) const noexcept {
    return is_peer(peer) ? Status::kOk : no_peer(peer, ", which has no firehoses of its own");
  }
  // Errors: kBadArg: as check_peer(); kBroken: it is gone; kResource.
  Status peer(uint32_t peer, RemotePeer** out) noexcept;

  Status deliver(uint32_t from, const void* message, size_t len, void* reply_to) noexcept;
  int poll() noexcept;
  Status peer_gone(uint32_t peer) noexcept;
  Status quiet() noexcept;
  void shut_down() noexcept;
  void read_stats(hydrant_remote_stats_t* stats) noexcept;

  size_t max_args() const noexcept { return max_args_; }

  // ---- for RemotePeer ----
  Status send(uint32_t peer, uint32_t lane, void* reply_to,
              const remote_wire::Message& message) noexcept;
  // There is something for poll() to do about the peer.
  void note_due(uint32_t peer) noexcept;
  // There is something for poll() to do.
  void note_any_due() noexcept;
  // Runs the callback, or keeps it for poll().
  void finish(RemoteRequest* request, const std::byte* answer, size_t answer_len) noexcept;

 private:
  // ---- the target (remote_target.cpp) ----
  struct Served;
  struct Deferred;
  struct Answer;
  // A reply that says no, for which there was no memory.
  struct Owed {
    uint64_t number;
    uint32_t peer;
    Status status;
  };

  Status on_move(uint32_t from, const remote_wire::Header& header, remote_wire::Parts parts,
                 void* reply_to) noexcept;
  void serve(uint32_t from, const remote_wire::Move& move, Served* served) noexcept;
  Status admit(uint32_t from, const remote_wire::Move& move, MemoryRange* range) noexcept;
  bool is_still_there(const Domain::Exported& memory, uint64_t seen) noexcept;
  void call_remote(uint32_t from, const remote_wire::Move& move, const Served& served,
                   const std::byte* args, remote_wire::Message* answer) noexcept;
  void answer(uint32_t from, uint64_t number, Served& served, const remote_wire::Message& said,
              void* reply_to) noexcept;
  // From here on the peer may give the export back; false: he has gone instead, and it has ended.
  bool tell_export(uint32_t from, uint64_t id, remote_wire::Reply* reply) noexcept;
  // Ends an export: what it held; null: there is no such one. `by_peer`: he gives it back.
  const RegionSlot* end_export(uint32_t from, uint64_t id, bool by_peer) noexcept;
  // `wanted`: so many bytes are about to be pinned for the peer instead.
  void give_back(uint32_t from, const std::byte* ids, size_t n, uint64_t wanted) noexcept;
  // Finds out what is gone; true if anything was listed for recall.
  bool look_for_gone() noexcept;
  void look_for_hunger() noexcept;
  int send_target_things(uint32_t peer) noexcept;
  int send_answers() noexcept;
  int send_owed() noexcept;
  int run_deferred() noexcept;
  void drop_exports_of(uint32_t peer) noexcept;
  // What was to be said to the peer, or to all: `ranks`.
  void drop_answers(uint32_t peer) noexcept;
  // Answers the deferred moves among it, off the list.
  Deferred* unlist_answers(uint32_t peer) noexcept;
  void tell_leases() noexcept;

  int run_done() noexcept;
  bool is_gone(uint32_t peer) const noexcept {
    MutexLock lock(exports_mu_);
    return dues_[peer].gone;
  }
  // kBadArg for a rank that is none, or this one: then the text ends as given.
  Status no_peer(uint32_t rank, const char* if_self) const noexcept;
  bool is_peer(uint32_t peer) const noexcept {
    return peer < config_.ranks && peer != config_.rank;
  }

  const RemoteConfig config_;
  Domain& domain_;
  size_t max_args_ = 0;
  uint32_t export_bytes_ = 0;

  MappedArray<std::atomic<RemotePeer*>> peers_;
  Mutex peers_mu_;  // makes them
  bool is_ending_ HYDRANT_GUARDED_BY(peers_mu_) = false;

  // Bit per peer; for poll(). Bits are set relaxed: any_due_ publishes them.
  MappedArray<std::atomic<uint64_t>> due_;
  // Set by exchanges that release, taken back by one that acquires. Stores would do for what lies under a
  // lock; but of two that set it the taker reads one, and a store by the second would end the release
  // sequence of the first, whose bit could then be overlooked until something else is due.
  std::atomic<uint32_t> any_due_{0};

  mutable Mutex exports_mu_;
  RemoteExports exports_;  // guarded, but for its counters
  RemoteLeases leases_ HYDRANT_GUARDED_BY(exports_mu_);
  // How far into the domain's GoneLog exports were made zombies. Written under exports_mu_, released after
  // the zombies are counted; acquired by look_for_gone(), so that quiet(), which comes next, sees them.
  std::atomic<uint64_t> gone_seen_{0};
  // Relaxed: a hint. Who overlooks a shortage sees the next one.
  std::atomic<uint64_t> starved_seen_{0};
  // What poll() says to the peer as a target.
  struct Dues {
    uint64_t reclaim_bytes;
    uint64_t reclaimed_at;  // the domain's count of shortages when it was asked for room
    bool reclaiming;        // ... and it has not said that this is done
    bool lease;
    bool gone;
  };
  MappedArray<Dues> dues_ HYDRANT_GUARDED_BY(exports_mu_);
  MappedArray<Owed> owed_ HYDRANT_GUARDED_BY(exports_mu_);
  size_t owed_count_ HYDRANT_GUARDED_BY(exports_mu_) = 0;
  Answer* answers_ HYDRANT_GUARDED_BY(exports_mu_) = nullptr;
  Answer** answers_tail_ HYDRANT_GUARDED_BY(exports_mu_) = &answers_;
  Deferred* deferred_ HYDRANT_GUARDED_BY(exports_mu_) = nullptr;
  Deferred** deferred_tail_ HYDRANT_GUARDED_BY(exports_mu_) = &deferred_;

  Mutex done_mu_;
  RemoteRequestList done_ HYDRANT_GUARDED_BY(done_mu_);

  // Relaxed; none is written by a hit.
  struct Counts {
    std::atomic<uint64_t> served{0}, declined{0}, recalls{0}, reclaims{0}, requests{0}, replies{0};
  };
  Counts counts_;
};

// True while an end of remote pins uses the domain (remote_api.cpp).
bool has_remote_end(const Domain& domain) noexcept;

}  // namespace hydrant
