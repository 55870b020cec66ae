// Decides how much each peer may keep pinned, and lends unused quota to peers that run short. RemoteTarget
// calls admit() before it pins (step 6 of "Tour: a put").
#include "firehose/remote/target/lease_table.hpp"

#include <algorithm>

namespace hydrant {
namespace {

// A peer that ran short within so many of the others' shortages is using what it was lent.
constexpr uint64_t kRecent = 64;
// A lease grows by this part of itself at least.
constexpr uint64_t kGrowth = 2;
constexpr uint64_t kMinGrowth = 64u << 10;

}  // namespace

bool LeaseTable::set_up(uint64_t budget, uint32_t ranks, uint32_t percent) noexcept {
  if (!peers_.map(ranks)) return false;
  ranks_ = ranks;
  max_ = budget;
  const uint64_t sure = budget / 100 * percent + budget % 100 * percent / 100;
  base_ = ranks > 1 ? sure / (ranks - 1) : sure;
  pool_ = budget - (ranks > 1 ? base_ * (ranks - 1) : base_);
  for (uint32_t peer = 0; peer < ranks; ++peer) {
    peers_[peer].lease = base_;
    peers_[peer].number = 1;
  }
  return true;
}

// Keeps lent_ true while a peer's lease or holdings change.
void LeaseTable::set(uint32_t peer, uint64_t lease) noexcept {
  Peer& p = peers_[peer];
  const uint64_t before = std::max(larger(p), base_);
  p.lease = lease;
  ++p.number;
  lent_ += std::max(larger(p), base_) - before;
}

void LeaseTable::grant(uint32_t peer, uint64_t bytes) noexcept {
  Peer& p = peers_[peer];
  const uint64_t before = std::max(larger(p), base_);
  p.held += bytes;
  lent_ += std::max(larger(p), base_) - before;
}

void LeaseTable::release(uint32_t peer, uint64_t bytes) noexcept {
  Peer& p = peers_[peer];
  const uint64_t before = std::max(larger(p), base_);
  p.held -= std::min(bytes, p.held);
  lent_ -= before - std::max(larger(p), base_);
}

void LeaseTable::forget(uint32_t peer) noexcept {
  release(peer, peers_[peer].held);
  if (peers_[peer].lease != base_) set(peer, base_);
  if (peers_[peer].cut) --cut_count_;
  peers_[peer].cut = false;
}

// The peer above its base quota whose last shortage is oldest, if that is long ago.
uint32_t LeaseTable::longest_idle(uint32_t but) const noexcept {
  uint32_t found = ranks_;
  for (uint32_t peer = 0; peer < ranks_; ++peer) {
    const Peer& p = peers_[peer];
    if (peer == but || p.lease <= base_ || p.asked_at + kRecent > moves_) continue;
    if (found == ranks_ || p.asked_at < peers_[found].asked_at) found = peer;
  }
  return found;
}

void LeaseTable::lend(uint32_t peer, uint64_t least, uint64_t welcome) noexcept {
  const uint64_t free = pool_ - std::min(lent_, pool_);
  const uint64_t more = std::min(free, std::max(least, welcome));
  if (more != 0) set(peer, peers_[peer].lease + more);
  if (more >= least && more >= welcome) return;
  // Cuts the unused lease of another peer; the quota is free when that peer has released it.
  const uint32_t other = longest_idle(peer);
  if (other == ranks_) return;
  const uint64_t surplus = peers_[other].lease - base_;
  const uint64_t wanted = std::max(least, welcome) - more;
  set(other, peers_[other].lease - std::min(surplus, std::max(wanted, surplus / 2)));
  if (!peers_[other].cut) ++cut_count_;
  peers_[other].cut = true;
}

bool LeaseTable::admit(uint32_t peer, uint64_t bytes, bool is_short) noexcept {
  Peer& p = peers_[peer];
  ++moves_;
  const bool has_room = fits(p, bytes);
  if (has_room && !is_short) return true;
  p.asked_at = moves_;
  if (bytes > max_) return false;
  if (pool_ != 0) {
    const uint64_t least = has_room ? 0 : p.held + bytes - p.lease;
    lend(peer, least, std::max({p.lease / kGrowth, bytes, kMinGrowth}));
  }
  return fits(p, bytes);
}

void LeaseTable::ask(uint32_t peer, uint64_t bytes) noexcept {
  Peer& p = peers_[peer];
  p.asked_at = ++moves_;
  if (pool_ == 0 || bytes > max_ || fits(p, bytes)) return;
  lend(peer, p.held + bytes - p.lease, 0);
}

bool LeaseTable::take_change(uint32_t* peer) noexcept {
  if (cut_count_ == 0) return false;
  for (uint32_t i = 0; i < ranks_; ++i) {
    if (!peers_[i].cut) continue;
    peers_[i].cut = false;
    --cut_count_;
    *peer = i;
    return true;
  }
  return false;
}

}  // namespace hydrant
