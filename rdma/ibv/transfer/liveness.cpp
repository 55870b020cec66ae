// Probes idle peers, and detects adapters that report nothing. Tour "a rank dies": a check that finds no
// progress disconnects the peer.
#include "rdma/ibv/transfer/liveness.hpp"

#include "firehose/base/log.hpp"
#include "firehose/base/planted_defect.hpp"
#include "firehose/base/thread.hpp"

namespace hydrant::ibv {

namespace {

constexpr char kSilent[] = "the adapter reports no completions and no errors";

}  // namespace

void Liveness::open(const Options& options, Rank first_probed) noexcept {
  first_probed_ = first_probed;
  threaded_ = !options.single_threaded;
  if (options.probe_ns == 0) return;
  interval_ns_ = options.probe_ns;
  patience_ = options.stall_timeout_ns / options.probe_ns + 1;
  next_ns_.store(now_ns() + interval_ns_, std::memory_order_relaxed);
}

void Liveness::check() noexcept HYDRANT_NO_TSA {
  uint64_t due = next_ns_.load(std::memory_order_relaxed);
  if (due == UINT64_MAX) return;
  const uint64_t now = now_ns();
  if (now < due ||
      !next_ns_.compare_exchange_strong(due, now + interval_ns_, std::memory_order_relaxed))
    return;
  peers_.for_each([this](Peer& peer) HYDRANT_NO_TSA {
    if (threaded_ && !peer.lock.try_lock()) return;
    if (!has_defect(Defect::kNoProbe)) probe(peer);
    if (!has_defect(Defect::kNoStallCheck)) refuse_stalled(peer);
    if (threaded_) peer.lock.unlock();
  });
}

// Probes the peer if nothing was posted since the last check. A signalled request under way serves as a
// probe.
void Liveness::probe(Peer& peer) noexcept {
  const bool is_under_way = peer.send.used() != 0;
  const bool is_due = is_under_way && peer.send.is_last_signalled();
  const bool is_probed = is_under_way || peer.rank >= first_probed_;
  if (is_probed && peer.state.is_open() && peer.send.posted() == peer.probed && !is_due) {
    (void)poster_.post_tail(peer);
    counters_.probes.add();
  }
  peer.probed = peer.send.posted();
}

// Also for a disconnected peer, whose requests under way have not ended: some drivers pretend to shut a queue
// pair.
void Liveness::refuse_stalled(Peer& peer) noexcept {
  if (peer.state.is_abandoned()) return;
  SendQueue* stalled = peer.send.is_stalled(patience_) ? &peer.send : nullptr;
  if (peer.rails != nullptr) {
    for (PeerRail& end : peer.rails->rails) {
      if (end.send.is_open() && end.send.is_stalled(patience_) && stalled == nullptr)
        stalled = &end.send;
    }
  }
  if (stalled == nullptr) return;
  log_warning(
      "%s port %u: no request to %s at %s has completed in %llu checks, and none has failed",
      stalled->port().name, stalled->port().number, name_of(peer).text,
      text_of(peer.endpoint.address).text, static_cast<unsigned long long>(patience_));
  peer.state.abandon();
  if (!peer.state.is_refused()) peer.state.refuse(stalled->describe_failure(kSilent));
  deferred_.add(peer);
}

}  // namespace hydrant::ibv
