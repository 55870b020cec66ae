// Polls the parts, runs deferred work, sleeps, and flushes at the end. poll() is where every tour "over
// verbs" makes progress.
#include "firehose/base/uncancelled.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <ctime>

namespace hydrant {

using ibv::Peer;

namespace {

constexpr uint64_t kFlushPauseNs = 50'000;
// The longest sleep of a thread outside this class if messages come without a report.
constexpr uint64_t kBlindSleepNs = 1'000'000;

}  // namespace

uint32_t IbvTransport::poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept {
  const uint32_t polls = polls_.load(std::memory_order_relaxed) + 1;
  polls_.store(polls, std::memory_order_relaxed);
  if (peers_.has_new_dead()) [[unlikely]]
    disconnector_.disconnect_dead();
  uint32_t done = 0;
  (void)completions_.poll(&done);
  if (handshakes_.is_connecting() || polls % kPollsBetweenHandshakes == 0) [[unlikely]]
    poll_rarely(polls);
  if (receiving_.has_undelivered())
    done += receiving_.deliver(receiver, budget, replies_only, polls);
  if (!deferred_.is_empty()) [[unlikely]]
    done += run_deferred();
  return done;
}

[[gnu::noinline]] void IbvTransport::poll_rarely(uint32_t polls) noexcept {
  static_assert(kPollsBetweenChecks % kPollsBetweenHandshakes == 0 &&
                kPollsBetweenEvents % kPollsBetweenChecks == 0);
  (void)handshakes_.poll();
  if (receiving_.has_unposted()) receiving_.post_unposted();
  if (polls % kPollsBetweenChecks == 0) liveness_.check();
  if (polls % kPollsBetweenEvents == 0) events_.read();
}

// ---- deferred work ----

// Returns the number of operations that ended.
uint32_t IbvTransport::run_deferred() noexcept {
  const uint32_t ended = rails_.count() != 0 ? completions_.poll_rails() : 0;
  deferred_.run([this](ibv::DeferredItem& item) { return advance(static_cast<Peer&>(item)); });
  return ended;
}

// True: no work is left for the peer. Stripes on rails count as work until they have ended.
bool IbvTransport::advance(Peer& peer) noexcept {
  if (peer.state.is_refused()) disconnector_.disconnect(peer, peer.state.refusal());
  const ibv::SpinGuard guard(peer.lock, !options_.single_threaded);
  if (peer.state.is_disconnected() && !disconnector_.post_tail(peer)) return false;
  if (!peer.state.is_open()) return !ibv::Striping::has_stripes(peer);
  const bool is_done = messages_.advance(peer);
  operations_.advance(peer);
  if (peer.rails != nullptr) [[unlikely]]
    striping_.advance(peer);
  return is_done && peer.pending.waiting() == nullptr && !ibv::Striping::has_stripes(peer);
}

// ---- sleeping ----

void IbvTransport::sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept {
  if (!sleeper_.enter()) return;
  if (prepare_to_wait() && !sleeper_.was_woken() &&
      (check.holds == nullptr || !check.holds(check.context)))
    wait(deadline_ns);
  sleeper_.leave();
}

// Requests a report of the next completion, then polls for earlier ones. False: there is work to do.
bool IbvTransport::prepare_to_wait() noexcept {
  // The channel does not report completions of rails.
  if (peers_.has_new_dead() || !striping_.is_idle()) return false;
  (void)ports_.keep_descriptors();
  if (sleeper_.has_channel() &&
      (!completions_.queue().request_notice() || !handshakes_.request_notice()))
    return false;
  uint32_t ended = 0;
  // The caller may wait for any completion or handshake: nothing else reports credits or room in a queue.
  if (completions_.poll(&ended) != 0 || handshakes_.poll() != 0) return false;
  return !receiving_.has_undelivered() && deferred_.is_empty() && !receiving_.has_unposted();
}

uint64_t IbvTransport::next_poll_ns() const noexcept {
  const uint64_t check_ns = liveness_.next_check_ns();
  return handshakes_.is_connecting() ? std::min(check_ns, handshakes_.next_handshake_ns())
                                     : check_ns;
}

ibv::Sleeper::Outcome IbvTransport::wait_in_kernel(uint64_t until_ns) noexcept {
  int event_fds[ibv::Sleeper::kMaxEventFds];
  for (uint32_t i = 0; i < ports_.count; ++i) event_fds[i] = ports_.all[i].device.context->async_fd;
  return sleeper_.wait(until_ns, {event_fds, ports_.count});
}

void IbvTransport::wait(uint64_t deadline_ns) noexcept {
  const ibv::Sleeper::Outcome outcome = wait_in_kernel(std::min(deadline_ns, next_poll_ns()));
  if (!outcome.has_slept) return;
  liveness_.check();
  if (outcome.has_event) events_.read();
}

bool IbvTransport::announce_sleep(Announcement* announcement) noexcept {
  if (!sleeper_.enter()) return false;
  if (!arm_events() || sleeper_.was_woken()) {
    sleeper_.leave();
    return false;
  }
  *announcement = {.deadline_ns =
                       sleeper_.is_always_woken() ? next_poll_ns() : now_ns() + kBlindSleepNs};
  return true;
}

bool IbvTransport::arm_events() noexcept {
  liveness_.check();
  events_.read();
  return prepare_to_wait();
}

// ---- the end ----

// Whether the adapter has acknowledged everything that was committed to the peer. If the last request is not
// signalled, posts one that is, so that its completion reports the requests before it.
bool IbvTransport::is_quiet(Peer& peer) noexcept HYDRANT_NO_TSA {
  const bool threaded = !options_.single_threaded;
  if (threaded && !peer.lock.try_lock()) return false;
  bool quiet = true;
  if (peer.state.is_open()) {
    quiet = peer.send.used() == 0 && peer.pending.waiting() == nullptr &&
            !ibv::Striping::has_stripes(peer) && !peer.stalled[0].is_there &&
            !peer.stalled[1].is_there;
    if (!peer.send.is_last_signalled()) poster_.post_tail(peer);
  }
  if (threaded) peer.lock.unlock();
  return quiet;
}

void IbvTransport::flush(uint64_t deadline_ns) noexcept HYDRANT_NO_TSA {
  const bool threaded = !options_.single_threaded;
  for (;;) {
    bool quiet = true;
    bool is_held = false;
    peers_.for_each([&](Peer& peer) HYDRANT_NO_TSA {
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
    if (!is_held && completions_.poll(&ended) >= 0) ended += run_deferred();
    if (ended == 0) uncancelled::sleep_ns(kFlushPauseNs);
  }
}

}  // namespace hydrant
