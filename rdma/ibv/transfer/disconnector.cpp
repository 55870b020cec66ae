// Ends connections, and the operations and messages that wait for them. Tour "a rank dies": a failed
// completion, a silent peer and a rank that the job has declared dead lead here.
#include "rdma/ibv/transfer/disconnector.hpp"

#include "firehose/base/planted_defect.hpp"
#include "firehose/base/status.hpp"

namespace hydrant::ibv {

void Disconnector::disconnect(Peer& peer, const char* reason) noexcept {
  if (!peer.state.disconnect(reason)) return;
  counters_.lost.add();
  const PeerName name = name_of(peer);
  if (!peer.send.shut(name.text)) peer.state.abandon();
  if (peer.rails != nullptr) {
    for (PeerRail& end : peer.rails->rails) {
      if (end.send.is_open() && !end.send.shut(name.text)) peer.state.abandon();
    }
  }
  CompletionBatch batch;
  {
    const SpinGuard guard(peer.lock, threaded_);
    if (!peer.state.is_abandoned() && !striping_.post_tails(peer)) peer.state.abandon();
    messages_.abandon(peer);
    (void)post_tail(peer);
    if (!has_defect(Defect::kForgottenWait)) operations_.fail_waiting(peer, &batch);
  }
  (void)batch.notify();
  (void)fail_stripes(peer);
  if (peer.state.is_abandoned()) deferred_.add(peer);
  // A rank that cannot reach itself through the adapter has not failed.
  if (peer.is_self) return;
  (void)disconnect_error(peer);
  report_failed(peer.rank);
}

void Disconnector::disconnect_later(Peer& peer, const char* reason) noexcept {
  {
    const SpinGuard guard(peer.lock, threaded_);
    if (!peer.state.is_refused()) peer.state.refuse(reason);
  }
  deferred_.add(peer);
}

// Posts a signalled last request. The adapter reports no success of unsignalled requests before it; the
// completion of the last one ends them all.
bool Disconnector::post_tail(Peer& peer) noexcept {
  if (peer.has_tail || peer.send.used() == 0 || peer.state.is_abandoned()) return true;
  if (peer.send.room() == 0) {
    deferred_.add(peer);
    return false;
  }
  // A refused last request is not tried again.
  peer.has_tail = true;
  if (!poster_.post_tail(peer)) peer.state.abandon();
  return true;
}

uint32_t Disconnector::fail_stripes(Peer& peer) noexcept {
  uint32_t ended = 0;
  for (bool was_full = true; was_full;) {
    CompletionBatch batch;
    {
      const SpinGuard guard(peer.lock, threaded_);
      striping_.fail_waiting(peer, &batch);
    }
    was_full = batch.is_full();
    ended += batch.notify();
  }
  return ended;
}

void Disconnector::disconnect_all(const char* reason, bool is_for_good) noexcept {
  bool has_peers = false;  // of the job
  peers_.for_each([&](Peer& peer) {
    has_peers |= !peer.is_self && peer.rank < ranks_;
    peer.state.abandon();
    disconnect(peer, reason);
    deferred_.add(peer);  // also if it was disconnected before
  });
  // Such a rank may wait for the others to contact it.
  if (!is_for_good || has_peers || far_ == kNoRank || has_reported_.exchange(true)) return;
  (void)fail(Status::kBroken, "rank %u cannot be reached: %s", far_, reason);
  report_failed(far_);
}

// The job itself has declared a dead rank dead, so it needs no callback.
void Disconnector::report_failed(Rank rank) noexcept {
  if (peer_failed_ != nullptr && !peers_.is_dead(rank)) peer_failed_(rank, last_error_text());
}

void Disconnector::disconnect_dead() noexcept {
  if (!peers_.take_new_dead()) return;
  peers_.for_each([&](Peer& peer) {
    if (peers_.is_dead(peer.rank)) disconnect(peer, "the job has declared it dead");
  });
}

}  // namespace hydrant::ibv
