// Waiting in the kernel; whether peers are there; and the end: what is committed has arrived before this
// process goes.
#include "firehose/base/log.hpp"
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace hydrant {

using ibv::Peer;

namespace {

// Wakes of all transports of this process; and those that the calling thread knows of.
std::atomic<uint64_t> g_wakes{0};
thread_local uint64_t t_wakes_seen = 0;

// Without a completion channel nobody is told of messages.
constexpr uint64_t kNapNs = 100'000;
constexpr uint64_t kFlushPauseNs = 50'000;

timespec time_of(uint64_t ns) noexcept {
  return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

}  // namespace

void IbvTransport::sleep(uint64_t deadline_ns, const SleepCheck& check) noexcept {
  const uint64_t wakes = g_wakes.load(std::memory_order_seq_cst);
  if (wakes != t_wakes_seen) {
    t_wakes_seen = wakes;
    return;
  }
  {
    const MutexLock lock(sleep_mu_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
  }
  // Those who wake from now on see the sleeper; who did before is seen here.
  if (arm() && g_wakes.load(std::memory_order_seq_cst) == wakes &&
      (check.holds == nullptr || !check.holds(check.context))) {
    doze(deadline_ns);
  }
  const MutexLock lock(sleep_mu_);
  if (sleepers_.fetch_sub(1, std::memory_order_seq_cst) == 1) empty_wake_fd();
}

// Asks for word of the next completion, then looks for those that came before. False: there is something to
// do.
bool IbvTransport::arm() noexcept {
  // (The end of shares is told of by no channel.)
  if (any_buried_.load(std::memory_order_acquire) ||
      shares_under_way_.load(std::memory_order_relaxed) != 0)
    return false;
  if (channel_ != nullptr && (ibv_req_notify_cq(queue_.get(), 0) != 0 ||
                              ibv_req_notify_cq(datagram_completions_.get(), 0) != 0))
    return false;
  uint32_t told = 0;
  // Any completion may be what this thread waits for: credits and room in a queue are told of by nothing
  // else.
  if (drain(&told) != 0 || shake_hands() != 0) return false;
  return !any_arrival() && chores_.load(std::memory_order_relaxed) == nullptr &&
         unposted_.load(std::memory_order_relaxed) == nullptr;
}

void IbvTransport::doze(uint64_t deadline_ns) noexcept {
  const uint64_t now = now_ns();
  uint64_t until = deadline_ns;
  if (connecting_count_.load(std::memory_order_relaxed) != 0)
    until = std::min(until, next_greeting_ns_.load(std::memory_order_relaxed));
  until = std::min(until, next_probe_ns_.load(std::memory_order_relaxed));
  if (channel_ == nullptr) until = std::min(until, now + kNapNs);
  if (until <= now) return;
  counts_.sleeps.fetch_add(1, std::memory_order_relaxed);
  pollfd fds[3 + ibv::kMostRails - 1] = {{wake_fd_, POLLIN, 0},
                                         {port_.device.context->async_fd, POLLIN, 0},
                                         {channel_ != nullptr ? channel_->fd : -1, POLLIN, 0}};
  nfds_t count = 3;
  for (uint32_t i = 0; i < rail_count_; ++i)
    fds[count++] = {rails_[i].port.device.context->async_fd, POLLIN, 0};
  const timespec left = time_of(until - now);
  const int ready = ppoll(fds, count, &left, nullptr);
  probe();
  if (ready <= 0) return;
  bool any_event = fds[1].revents != 0;
  for (nfds_t i = 3; i < count; ++i) any_event |= fds[i].revents != 0;
  if (any_event) read_events();
  // This thread may have something else to do now: others that sleep must ask for word themselves.
  if (fds[2].revents != 0 && hear_channel() && sleepers_.load(std::memory_order_seq_cst) > 1) {
    const uint64_t one = 1;
    (void)!::write(wake_fd_, &one, sizeof one);
  }
}

// True: there was word of something.
bool IbvTransport::hear_channel() noexcept {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  bool any = false;
  while (ibv_get_cq_event(channel_.get(), &queue, &context) == 0) {
    ibv_ack_cq_events(queue, 1);
    any = true;
  }
  return any;
}

bool IbvTransport::prepare_sleep() noexcept {
  probe();
  read_events();
  return arm();
}

void IbvTransport::empty_wake_fd() noexcept {
  uint64_t count = 0;
  (void)!::read(wake_fd_, &count, sizeof count);
}

void IbvTransport::wake() noexcept {
  g_wakes.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  const int saved = errno;
  const uint64_t one = 1;
  (void)!::write(wake_fd_, &one, sizeof one);
  errno = saved;
}

// ---- whether peers are there ----

// Who is gone is known by its adapter's silence, and that only by who sends: so to each peer to which nothing
// went since the last time goes a write of nothing. A process that is stopped does not matter: its adapter
// answers.
void IbvTransport::probe() noexcept HYDRANT_NO_TSA {
  uint64_t due = next_probe_ns_.load(std::memory_order_relaxed);
  if (due == UINT64_MAX) return;
  const uint64_t now = now_ns();
  if (now < due || !next_probe_ns_.compare_exchange_strong(due, now + options_.probe_ns,
                                                           std::memory_order_relaxed))
    return;
  for (uint32_t rank = 0; rank < places_; ++rank) {
    Peer* peer = peer_of(rank);
    if (peer == nullptr || (threaded_ && !peer->lock.try_lock())) continue;
    // What is under way and will be told of is a probe itself.
    const bool is_told = peer->signalled == peer->posted && used_in_queue(*peer) != 0;
    if (peer->state.load(std::memory_order_acquire) == Peer::State::kOpen &&
        peer->posted == peer->probed && !is_told) {
      send_tail(*peer);
      counts_.probes.fetch_add(1, std::memory_order_relaxed);
    }
    peer->probed = peer->posted;
    shut_if_still(*peer);
    if (threaded_) peer->lock.unlock();
  }
}

// What was posted is over, well or badly, when the adapter has made its retries; that is taken for granted
// everywhere else. One that goes on saying nothing would be waited for without an end. (Of messages that are
// not signalled it has nothing to say: a rank that sends few of them hears of many at once, and late.)
void IbvTransport::shut_if_still(Peer& peer) noexcept {
  if (peer.state.load(std::memory_order_acquire) != Peer::State::kOpen) return;
  const uint64_t patience = options_.hang_ns / options_.probe_ns + 1;
  const uint64_t over = peer.over.load(std::memory_order_relaxed);
  const ibv::Port* still =
      peer.stillness.looks(peer.signalled > over, over) > patience ? &port_ : nullptr;
  const char* reason =
      "the adapter carries out nothing of what is sent to it, and does not say why";
  for (uint32_t i = 0; peer.rails != nullptr && i < rail_count_; ++i) {
    ibv::PeerRail& end = peer.rails->rails[i];
    if (end.stillness.looks(end.signalled > end.over, end.over) <= patience || still != nullptr)
      continue;
    still = &rails_[i].port;
    if (peer.is_shut.load(std::memory_order_relaxed)) return;
    std::snprintf(end.refusal, sizeof end.refusal,
                  "%s port %u carries out nothing of what is sent to it, and does not say why",
                  still->name, still->number);
    reason = end.refusal;
  }
  if (still == nullptr || peer.is_shut.load(std::memory_order_relaxed)) return;
  log_warning(
      "%s port %u: nothing of what was sent to %s at %s was carried out at %llu looks, and "
      "nothing has failed",
      still->name, still->number, name_of(peer).text, text_of(peer.card.address).text,
      static_cast<unsigned long long>(patience));
  peer.shut_reason = reason;
  peer.is_shut.store(true, std::memory_order_release);
  add_chore(peer);
}

// ---- the end ----

// A write of nothing, to be told of: so all before it is over too.
void IbvTransport::send_tail(Peer& peer) noexcept {
  if (room_in_queue(peer) == 0) return;
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = peer.their_landings;
  request.wr.rdma.rkey = peer.their_landing_key;
  (void)next_record(peer, &request, true);
  (void)hand_over(peer, &request, 1);
}

// Whether all that was committed to it has arrived, as far as can be told; sees to it that it will be told.
bool IbvTransport::is_quiet(Peer& peer) noexcept HYDRANT_NO_TSA {
  if (threaded_ && !peer.lock.try_lock()) return false;
  bool quiet = true;
  if (peer.state.load(std::memory_order_acquire) == Peer::State::kOpen) {
    quiet = used_in_queue(peer) == 0 && peer.first_waiting == nullptr &&
            (peer.rails == nullptr || peer.rails->shares == 0) && !peer.stalled[0].is_there &&
            !peer.stalled[1].is_there;
    if (peer.signalled != peer.posted) send_tail(peer);
  }
  if (threaded_) peer.lock.unlock();
  return quiet;
}

void IbvTransport::flush(uint64_t deadline_ns) noexcept HYDRANT_NO_TSA {
  for (;;) {
    bool quiet = true;
    bool is_held = false;
    for (uint32_t rank = 0; rank < places_; ++rank) {
      Peer* peer = peer_of(rank);
      if (peer == nullptr) continue;
      if (!is_quiet(*peer)) quiet = false;
      // Whoever is between reserve() and commit() may never come back: nothing here waits for that.
      if (threaded_ && !peer->lock.try_lock()) {
        is_held = true;
      } else if (threaded_) {
        peer->lock.unlock();
      }
    }
    if (quiet || now_ns() >= deadline_ns) return;
    uint32_t told = 0;
    if (!is_held && drain(&told) >= 0) told += do_chores();
    const timespec pause = time_of(kFlushPauseNs);
    if (told == 0) nanosleep(&pause, nullptr);
  }
}

}  // namespace hydrant
