// Waits in the kernel for completions, events and wake-ups, for IbvTransport::sleep(). The transport looks
// for work between enter() and wait().
#include "rdma/ibv/queue/sleeper.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace hydrant::ibv {

namespace {

// g_wakes counts the wakes of all sleepers of this process, t_wakes_seen those that this thread has seen.
std::atomic<uint64_t> g_wakes{0};
thread_local uint64_t t_wakes_seen = 0;

// The longest wait without a completion channel, which alone reports messages.
constexpr uint64_t kNapNs = 100'000;

}  // namespace

Status Sleeper::open(const Port& port, bool wants_channel) noexcept {
  wake_fd_.keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (wake_fd_.get() < 0)
    return fail(Status::kResource, "cannot create the eventfd that wakes sleepers: %s",
                errno_text(errno));
  if (!wants_channel) return Status::kOk;
  channel_.reset(uncancelled::call(ibv_create_comp_channel, port.device.context));
  if (channel_ == nullptr ||
      fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK) != 0)
    return fail(Status::kResource, "%s: cannot create the completion channel: %s", port.name,
                errno_text(errno));
  channel_identity_.note(channel_->fd);
  return Status::kOk;
}

bool Sleeper::has_channel() const noexcept {
  if (channel_ == nullptr) return false;
  const std::atomic_ref<int> fd(channel_->fd);
  if (channel_identity_.is(fd.load(std::memory_order_relaxed))) return true;
  fd.store(-1, std::memory_order_relaxed);
  return false;
}

bool Sleeper::take_notices() noexcept {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  bool any = false;
  if (!has_channel()) return false;
  while (uncancelled::call(ibv_get_cq_event, channel_.get(), &queue, &context) == 0) {
    ibv_ack_cq_events(queue, 1);
    any = true;
  }
  return any;
}

bool Sleeper::enter() noexcept {
  const uint64_t wakes = g_wakes.load(std::memory_order_seq_cst);
  if (wakes != t_wakes_seen) {
    t_wakes_seen = wakes;
    return false;
  }
  const MutexLock lock(mu_);
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  return true;
}

// A wake() after enter() sees the sleeper; one before this load is seen here. Both use sequentially
// consistent order, so none is lost. Wakes before enter() are in t_wakes_seen.
bool Sleeper::was_woken() const noexcept {
  return g_wakes.load(std::memory_order_seq_cst) != t_wakes_seen;
}

Sleeper::Outcome Sleeper::wait(uint64_t until_ns, std::span<const int> event_fds) noexcept {
  const uint64_t now = now_ns();
  // Descriptors that the program has closed report nothing.
  const bool has_notices = has_channel();
  const int wake_fd = wake_fd_.get();
  if (!has_notices || wake_fd < 0) until_ns = std::min(until_ns, now + kNapNs);
  if (until_ns <= now) return {};
  pollfd fds[2 + kMaxEventFds] = {{wake_fd, POLLIN, 0},
                                  {has_notices ? channel_->fd : -1, POLLIN, 0}};
  nfds_t count = 2;
  for (const int fd : event_fds) fds[count++] = {fd, POLLIN, 0};
  const uint64_t left_ns = until_ns - now;
  const timespec left = {static_cast<time_t>(left_ns / 1'000'000'000),
                         static_cast<long>(left_ns % 1'000'000'000)};
  Outcome outcome{.has_slept = true};
  sleeps_.fetch_add(1, std::memory_order_relaxed);
  if (uncancelled::ppoll(fds, count, &left, nullptr) <= 0) return outcome;
  outcome.is_woken = true;
  for (nfds_t i = 2; i < count; ++i) outcome.has_event |= fds[i].revents != 0;
  // The report is consumed, and this thread may have other work now: it wakes the other sleepers, which
  // request the next one.
  if (fds[1].revents != 0 && take_notices() && sleepers_.load(std::memory_order_seq_cst) > 1) {
    const uint64_t one = 1;
    (void)!uncancelled::write(wake_fd_.get(), &one, sizeof one);
  }
  return outcome;
}

void Sleeper::leave() noexcept {
  const MutexLock lock(mu_);
  if (sleepers_.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
  uint64_t count = 0;
  (void)!uncancelled::read(wake_fd_.get(), &count, sizeof count);
}

void Sleeper::wake() noexcept {
  g_wakes.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  const int saved = errno;
  const uint64_t one = 1;
  (void)!uncancelled::write(wake_fd_.get(), &one, sizeof one);
  errno = saved;
}

}  // namespace hydrant::ibv
