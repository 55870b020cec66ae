// Orders the peers whose handshakes are repeated by the time at which each is due: the one that is due first
// comes first, so that none starves while others are repeated. The peers form a binary heap.
//
// Invariant: the peer at place i of the heap has i in its PeerConnection::timer_place, and is not due before
// the peer at place (i - 1) / 2. The peers outside the heap have kNotTimed there.
//
// Threads: under the contact lock. Cost: a change visits as many peers as the heap has levels; nothing is
// allocated after open().
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/transfer/peer.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>

namespace hydrant::ibv {

class HandshakeTimer {
 public:
  // The longest interval between two handshakes to a peer, before chance makes it longer or shorter.
  static constexpr uint64_t kMaxIntervalNs = 500'000'000;

  // Makes room for `peers` peers. `seed` differs between processes, so that they do not repeat their
  // handshakes at the same times. Errors: kResource.
  Status open(uint32_t peers, uint64_t seed) noexcept;

  // When the first peer is due; UINT64_MAX: there is none.
  uint64_t next_ns() const noexcept { return count_ != 0 ? due_ns(*peers_[0]) : UINT64_MAX; }
  // The peer that is due first; there is one.
  Peer& first() const noexcept { return *peers_[0]; }
  static bool has(const Peer& peer) noexcept {
    return peer.connection.timer_place != PeerConnection::kNotTimed;
  }

  // Adds a peer, whose times are set.
  void add(Peer& peer) noexcept;
  // Has no effect on a peer that is not timed.
  void remove(Peer& peer) noexcept;
  // Puts the peer, whose times have changed, in its place.
  void reorder(Peer& peer) noexcept;
  // A handshake has left at `now`: the next one follows after the interval, which doubles up to
  // kMaxIntervalNs.
  void note_sent(Peer& peer, uint64_t now) noexcept;
  // The adapter has refused a handshake at `now`: it is tried again after the same interval.
  void note_refused(Peer& peer, uint64_t now) noexcept;

 private:
  static uint64_t due_ns(const Peer& peer) noexcept {
    return std::min(peer.connection.next_handshake_ns, peer.connection.gives_up_ns);
  }
  void put(Peer& peer, uint32_t place) noexcept {
    peers_[place] = &peer;
    peer.connection.timer_place = place;
  }
  uint64_t vary(uint64_t interval_ns) noexcept;

  std::unique_ptr<Peer*[]> peers_;  // the first count_ are the heap
  uint32_t count_ = 0;
  uint64_t random_ = 1;  // never 0
};

}  // namespace hydrant::ibv
