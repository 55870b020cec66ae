// Waits in the kernel until a completion, an event of a device or a wake-up.
#include "rdma/ibv/waiting.hpp"

#include "firehose/base/thread.hpp"

namespace hydrant::ibv {
namespace {

// The longest sleep of a thread outside this class if messages come without a report.
constexpr uint64_t kBlindSleepNs = 1'000'000;

}  // namespace

void Waiting::sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept {
  if (!parts_.sleeper.enter()) return;
  if (prepare_to_wait() && !parts_.sleeper.was_woken() &&
      (check.holds == nullptr || !check.holds(check.context)))
    wait(deadline_ns);
  parts_.sleeper.leave();
}

// Requests a report of the next completion, then polls for earlier ones. False: there is work to do.
bool Waiting::prepare_to_wait() noexcept {
  // The channel does not report completions of rails.
  if (parts_.peers.has_new_dead() || !parts_.striping.is_idle()) return false;
  (void)parts_.ports.keep_descriptors();
  if (parts_.sleeper.has_channel() &&
      (!parts_.completions.queue().request_notice() || !parts_.handshakes.request_notice()))
    return false;
  uint32_t ended = 0;
  // The caller may wait for any completion or handshake: nothing else reports credits or room in a queue.
  if (parts_.completions.poll(&ended) != 0 || parts_.handshakes.poll() != 0) return false;
  return !parts_.receiving.has_undelivered() && parts_.deferred.is_empty() &&
         !parts_.receiving.has_unposted();
}

uint64_t Waiting::next_poll_ns() const noexcept {
  return std::min({parts_.liveness.next_check_ns(), parts_.handshakes.next_handshake_ns(),
                   parts_.handshakes.next_reset_ns()});
}

Sleeper::Outcome Waiting::wait_in_kernel(uint64_t until_ns) noexcept {
  int event_fds[Sleeper::kMaxEventFds];
  for (uint32_t i = 0; i < parts_.ports.count; ++i)
    event_fds[i] = parts_.ports.all[i].device.context->async_fd;
  return parts_.sleeper.wait(until_ns, {event_fds, parts_.ports.count});
}

void Waiting::wait(uint64_t deadline_ns) noexcept {
  const Sleeper::Outcome outcome = wait_in_kernel(std::min(deadline_ns, next_poll_ns()));
  if (!outcome.has_slept) return;
  parts_.liveness.check();
  if (outcome.has_event) parts_.events.read();
}

bool Waiting::announce_sleep(Announcement* announcement) noexcept {
  if (!parts_.sleeper.enter()) return false;
  if (!arm_events() || parts_.sleeper.was_woken()) {
    parts_.sleeper.leave();
    return false;
  }
  *announcement = {.deadline_ns = parts_.sleeper.is_always_woken() ? next_poll_ns()
                                                                   : now_ns() + kBlindSleepNs};
  return true;
}

bool Waiting::arm_events() noexcept {
  parts_.liveness.check();
  parts_.events.read();
  return prepare_to_wait();
}

}  // namespace hydrant::ibv
