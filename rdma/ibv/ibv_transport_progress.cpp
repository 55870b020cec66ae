// Polls the parts, runs deferred work, and flushes at the end. poll() is where every tour "over
// verbs" makes progress.
#include "firehose/base/planted_defect.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <ctime>

namespace hydrant {

using ibv::Peer;

namespace {

constexpr uint64_t kFlushPauseNs = 50'000;

}  // namespace

uint32_t IbvTransport::poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept {
  const uint32_t polls = polls_.load(std::memory_order_relaxed) + 1;
  polls_.store(polls, std::memory_order_relaxed);
  if (parts_.peers.has_new_dead()) [[unlikely]]
    parts_.disconnector.disconnect_dead();
  uint32_t done = 0;
  (void)parts_.completions.poll(&done);
  if (parts_.handshakes.expects_handshake() || polls % kPollsBetweenHandshakes == 0) [[unlikely]]
    poll_rarely(polls);
  if (parts_.receiving.has_undelivered())
    done += parts_.receiving.deliver(receiver, budget, replies_only, polls);
  if (!parts_.deferred.is_empty()) [[unlikely]]
    done += run_deferred();
  return done;
}

[[gnu::noinline]] void IbvTransport::poll_rarely(uint32_t polls) noexcept {
  static_assert(kPollsBetweenChecks % kPollsBetweenHandshakes == 0 &&
                kPollsBetweenEvents % kPollsBetweenChecks == 0);
  (void)parts_.handshakes.poll();
  if (parts_.receiving.has_unposted() && !has_defect(Defect::kLostReceive))
    parts_.receiving.post_unposted();
  if (polls % kPollsBetweenChecks == 0) parts_.liveness.check();
  if (polls % kPollsBetweenEvents == 0) parts_.events.read();
}

// ---- deferred work ----

// Returns the number of operations that ended.
uint32_t IbvTransport::run_deferred() noexcept {
  uint32_t ended = parts_.rails.count() != 0 ? parts_.completions.poll_rails() : 0;
  parts_.deferred.run(
      [&](ibv::DeferredItem& item) { return advance(static_cast<Peer&>(item), &ended); });
  return ended;
}

// True: no work is left for the peer. Stripes on rails count as work until they have ended. Adds to *ended
// the operations that ended.
bool IbvTransport::advance(Peer& peer, uint32_t* ended) noexcept {
  if (peer.state.is_refused()) parts_.disconnector.disconnect(peer, peer.state.refusal());
  if (peer.state.is_abandoned() && peer.state.is_disconnected() &&
      !parts_.completions.end_abandoned(peer, ended))
    return false;
  if (peer.state.is_disconnected()) *ended += parts_.fences.fail_waiting(peer);
  const ibv::SpinGuard guard(peer.lock, !parts_.options.single_threaded);
  if (peer.state.is_disconnected() && !parts_.disconnector.post_tail(peer)) return false;
  // Another thread may have disconnected it since it was looked at above.
  if (!peer.state.is_open()) return peer.unfenced == nullptr && !ibv::Striping::has_stripes(peer);
  const bool is_done = parts_.messages.advance(peer);
  parts_.operations.advance(peer);
  parts_.fences.advance(peer);
  if (peer.rails != nullptr) [[unlikely]]
    parts_.striping.advance(peer);
  return is_done && peer.pending.waiting() == nullptr && peer.unfenced == nullptr &&
         !ibv::Striping::has_stripes(peer);
}

// ---- the end ----

// Whether the adapter has acknowledged everything that was committed to the peer. If the last request is not
// signalled, posts one that is, so that its completion reports the requests before it.
bool IbvTransport::is_quiet(Peer& peer) noexcept HYDRANT_NO_TSA {
  const bool threaded = !parts_.options.single_threaded;
  if (threaded && !peer.lock.try_lock()) return false;
  bool quiet = true;
  if (peer.state.is_open()) {
    quiet = !peer.state.is_refused() && peer.send.used() == 0 &&
            peer.pending.waiting() == nullptr && peer.unfenced == nullptr &&
            !ibv::Striping::has_stripes(peer) && !peer.stalled[0].is_there &&
            !peer.stalled[1].is_there;
    if (!peer.send.is_last_signalled()) (void)parts_.poster.post_tail(peer);
  }
  if (threaded) peer.lock.unlock();
  return quiet;
}

void IbvTransport::flush(uint64_t deadline_ns) noexcept HYDRANT_NO_TSA {
  const bool threaded = !parts_.options.single_threaded;
  for (;;) {
    bool quiet = true;
    bool is_held = false;
    parts_.peers.for_each([&](Peer& peer) HYDRANT_NO_TSA {
      if (!is_quiet(peer)) quiet = false;
      // A thread between reserve() and commit() may never continue, so flush() does not wait for its lock.
      if (threaded && !peer.lock.try_lock()) {
        is_held = true;
      } else if (threaded) {
        peer.lock.unlock();
      }
    });
    if (quiet || now_ns() >= deadline_ns) return;
    uint32_t ended = 0;
    if (!is_held && parts_.completions.poll(&ended) >= 0) ended += run_deferred();
    if (ended == 0) uncancelled::sleep_ns(kFlushPauseNs);
  }
}

}  // namespace hydrant
