// Quotas: how much of this process's memory each peer may keep pinned.
//
// A part of the budget is split evenly: each peer's base quota, which is guaranteed. The rest is lent to
// peers that run short. A loan to a peer that has not run short for a while is taken back for a peer that
// does. A peer's lease may fall below its holdings: it then gets no grant until it has released some. The sum
// over the peers of the larger of lease and holdings never exceeds the budget, as long as the base quotas do
// not.
//
// This class sends no message: take_change() returns the peer whose changed lease has to be sent.
//
// Threads: the caller's lock.
#pragma once

#include "firehose/base/mapped_array.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

class LeaseTable {
 public:
  // `percent` of the budget are base quotas of ranks - 1 peers. False when memory is refused.
  [[nodiscard]] bool set_up(uint64_t budget, uint32_t ranks, uint32_t percent) noexcept;

  // A move for `bytes`. True: there is room in its lease, if need be in one that has just grown. `is_short`:
  // the peer evicted others for it, and could use more.
  [[nodiscard]] bool admit(uint32_t peer, uint64_t bytes, bool is_short) noexcept;
  // True if so much beside its holdings is within its lease.
  bool fits(uint32_t peer, uint64_t bytes) const noexcept { return fits(peers_[peer], bytes); }
  // True if a move for so much may be admitted: there is room in its lease, or bytes left to lend.
  bool may_fit(uint32_t peer, uint64_t bytes) const noexcept {
    return fits(peer, bytes) || (lent_ < pool_ && bytes <= max_);
  }
  // Notes that the peer needs so much beside its holdings.
  void ask(uint32_t peer, uint64_t bytes) noexcept;
  void grant(uint32_t peer, uint64_t bytes) noexcept;
  void release(uint32_t peer, uint64_t bytes) noexcept;
  // The peer has exited: all that was lent to it is free.
  void forget(uint32_t peer) noexcept;

  // A lease as it is sent to its peer. The number rises with every change.
  struct Terms {
    uint64_t bytes;
    uint32_t number;
  };
  Terms terms(uint32_t peer) const noexcept { return {peers_[peer].lease, peers_[peer].number}; }
  uint64_t held(uint32_t peer) const noexcept { return peers_[peer].held; }
  uint64_t lent() const noexcept { return lent_; }
  // The largest lease that a peer can ever have.
  uint64_t max_lease() const noexcept { return base_ + pool_; }
  // The largest holder among the peers that `skip` does not exclude; `ranks` if no peer holds a firehose.
  template <class Skip>
  uint32_t largest_holder(const Skip& skip) const noexcept {
    uint32_t found = ranks_;
    for (uint32_t peer = 0; peer < ranks_; ++peer) {
      if (peers_[peer].held == 0 || skip(peer)) continue;
      if (found == ranks_ || peers_[peer].held > peers_[found].held) found = peer;
    }
    return found;
  }
  // A peer other than the last requester whose lease was cut and that has to be notified; false: none.
  bool take_change(uint32_t* peer) noexcept;
  bool has_change() const noexcept { return cut_count_ != 0; }

 private:
  struct Peer {
    uint64_t lease;
    uint64_t held;
    uint64_t asked_at;  // the move count of its last move that ran short, or of its last request
    uint32_t number;
    bool cut;  // the peer has to be notified
  };
  // Adds nothing up: a peer may request nearly all of the address space.
  static bool fits(const Peer& peer, uint64_t bytes) noexcept {
    return peer.held <= peer.lease && bytes <= peer.lease - peer.held;
  }
  static uint64_t larger(const Peer& peer) noexcept {
    return peer.lease > peer.held ? peer.lease : peer.held;
  }
  void set(uint32_t peer, uint64_t lease) noexcept;
  void lend(uint32_t peer, uint64_t least, uint64_t welcome) noexcept;
  uint32_t longest_idle(uint32_t but) const noexcept;

  MappedArray<Peer> peers_;
  uint32_t ranks_ = 0;
  uint64_t max_ = 0;  // the budget
  uint64_t base_ = 0;
  uint64_t pool_ = 0;  // most bytes that may be lent
  uint64_t lent_ = 0;  // bytes lent: excess of leases or holdings over the base
  uint64_t moves_ = 0;
  uint32_t cut_count_ = 0;
};

}  // namespace hydrant
