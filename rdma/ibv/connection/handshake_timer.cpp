// Keeps the peers whose handshakes are repeated in order of time.
#include "rdma/ibv/connection/handshake_timer.hpp"

#include <new>

namespace hydrant::ibv {

Status HandshakeTimer::open(uint32_t peers, uint64_t seed) noexcept {
  count_ = 0;
  random_ = std::max<uint64_t>(seed, 1);
  peers_.reset(new (std::nothrow) Peer*[peers]);
  if (peers_ != nullptr) return Status::kOk;
  return fail(Status::kResource, "no memory for the handshakes with %u peers", peers);
}

void HandshakeTimer::add(Peer& peer) noexcept {
  put(peer, count_++);
  reorder(peer);
}

void HandshakeTimer::remove(Peer& peer) noexcept {
  if (!has(peer)) return;
  const uint32_t place = peer.connection.timer_place;
  Peer& last = *peers_[--count_];
  if (&last != &peer) {
    put(last, place);
    reorder(last);
  }
  peer.connection.timer_place = PeerConnection::kNotTimed;
}

void HandshakeTimer::reorder(Peer& peer) noexcept {
  const uint64_t due = due_ns(peer);
  uint32_t place = peer.connection.timer_place;
  // Towards the front, past peers that are due later.
  while (place != 0) {
    const uint32_t parent = (place - 1) / 2;
    if (due_ns(*peers_[parent]) <= due) break;
    put(*peers_[parent], place);
    place = parent;
  }
  // Towards the back, past peers that are due earlier.
  for (;;) {
    uint32_t child = 2 * place + 1;
    if (child + 1 < count_ && due_ns(*peers_[child + 1]) < due_ns(*peers_[child])) ++child;
    if (child >= count_ || due_ns(*peers_[child]) >= due) break;
    put(*peers_[child], place);
    place = child;
  }
  put(peer, place);
}

// Up to a quarter longer or shorter, by chance (xorshift). Not 0.
uint64_t HandshakeTimer::vary(uint64_t interval_ns) noexcept {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  const uint64_t quarter = interval_ns / 4;
  return std::max<uint64_t>(interval_ns - quarter + random_ % (2 * quarter + 1), 1);
}

void HandshakeTimer::note_sent(Peer& peer, uint64_t now) noexcept {
  note_refused(peer, now);
  uint64_t& interval_ns = peer.connection.handshake_interval_ns;
  interval_ns = std::min(2 * interval_ns, kMaxIntervalNs);
}

void HandshakeTimer::note_refused(Peer& peer, uint64_t now) noexcept {
  peer.connection.next_handshake_ns = now + vary(peer.connection.handshake_interval_ns);
  reorder(peer);
}

}  // namespace hydrant::ibv
