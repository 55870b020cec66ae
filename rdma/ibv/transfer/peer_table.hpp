// All peers of the transport by number: the ranks of the job, then joined processes of other groups.
//
// Invariant: an entry changes once, from null to a peer, and that peer lives until clear().
//
// Threads: any; publish() under the contact lock; clear() when no other call is under way.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/transfer/peer.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>

namespace hydrant::ibv {

class PeerTable {
 public:
  PeerTable() = default;
  PeerTable(const PeerTable&) = delete;
  PeerTable& operator=(const PeerTable&) = delete;
  ~PeerTable() { clear(); }

  // Makes room for `places` peers. Errors: kResource.
  Status open(uint32_t places) noexcept {
    places_ = places;
    peers_.reset(new (std::nothrow) std::atomic<Peer*>[places] {});
    dead_.reset(new (std::nothrow) std::atomic<bool>[places] {});
    if (peers_ != nullptr && dead_ != nullptr) return Status::kOk;
    return fail(Status::kResource, "no memory for a transport between %u ranks", places);
  }
  uint32_t places() const noexcept { return places_; }
  // Null: no contact yet, or no such place.
  Peer* find(Rank number) const noexcept {
    return number < places_ ? peers_[number].load(std::memory_order_acquire) : nullptr;
  }
  // Searches all peers, so only error paths use it. Null: no peer has this queue pair.
  Peer* find_queue_pair(uint32_t queue_pair) const noexcept {
    for (uint32_t i = 0; i < places_; ++i) {
      Peer* const peer = find(i);
      if (peer != nullptr && peer->send.number() == queue_pair) return peer;
    }
    return nullptr;
  }
  // Calls visit(Peer&) for each peer.
  template <typename Visit>
  void for_each(Visit&& visit) const noexcept {
    for (uint32_t i = 0; i < places_; ++i) {
      if (Peer* const peer = find(i)) visit(*peer);
    }
  }
  Peer& publish(std::unique_ptr<Peer> peer) noexcept {
    Peer& published = *peer.release();
    // Sequentially consistent, as in mark_dead(): either the peer is found after take_new_dead(), or it is
    // seen here to be marked.
    peers_[published.rank].store(&published, std::memory_order_seq_cst);
    if (dead_[published.rank].load(std::memory_order_seq_cst))
      has_new_dead_.store(true, std::memory_order_release);
    return published;
  }
  // Deletes the peers, whose queue pairs are closed already.
  void clear() noexcept {
    for (uint32_t i = 0; i < places_; ++i)
      delete peers_[i].exchange(nullptr, std::memory_order_acquire);
    places_ = 0;
  }

  // ---- peers that the job has declared dead ----
  void mark_dead(Rank number) noexcept {
    dead_[number].store(true, std::memory_order_seq_cst);
    has_new_dead_.store(true, std::memory_order_release);
  }
  bool is_dead(Rank number) const noexcept { return dead_[number].load(std::memory_order_acquire); }
  // Whether a peer was marked since take_new_dead(), or published after it was marked: a hint.
  bool has_new_dead() const noexcept { return has_new_dead_.load(std::memory_order_relaxed); }
  bool take_new_dead() noexcept { return has_new_dead_.exchange(false, std::memory_order_acq_rel); }

 private:
  uint32_t places_ = 0;
  std::unique_ptr<std::atomic<Peer*>[]> peers_;
  std::unique_ptr<std::atomic<bool>[]> dead_;
  std::atomic<bool> has_new_dead_{false};
};

}  // namespace hydrant::ibv
