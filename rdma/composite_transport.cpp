// Polls two transports, and sleeps in one for both. make_transport.cpp creates it
// where some ranks share this node and others do not.
#include "rdma/composite_transport.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/thread_without_signals.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cstdio>
#include <new>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace hydrant {
namespace {

// Polling interval of sleepers if the far transport has no notice_fd(), or the thread cannot be created.
constexpr uint64_t kNapNs = 100'000;
constexpr int kThreadLooksMs = 200;

// Alternates which transport is polled first, so that neither uses up the budget of every poll.
thread_local uint32_t t_turn = 0;

}  // namespace

CompositeTransport::CompositeTransport(std::unique_ptr<Transport> near,
                                       std::unique_ptr<NetworkTransport> far) noexcept
    : near_(std::move(near)),
      near_sleeping_(near_->sleeping()),
      far_(std::move(far)),
      notices_(far_->notices()) {
  if (snprintf(name_, sizeof name_, "%s+%s", near_->name(), far_->name()) < 0) name_[0] = '\0';
}

Status CompositeTransport::open(std::unique_ptr<Transport> near,
                                std::unique_ptr<NetworkTransport> far, const JobTopology& topology,
                                std::unique_ptr<Transport>* transport) noexcept {
  std::unique_ptr<CompositeTransport> made(new (std::nothrow)
                                               CompositeTransport(std::move(near), std::move(far)));
  const Status status =
      made != nullptr ? made->init(topology) : fail(Status::kResource, "no memory for a transport");
  if (status == Status::kOk) *transport = std::move(made);
  return status;
}

Status CompositeTransport::init(const JobTopology& topology) noexcept {
  ranks_ = topology.size;
  is_near_.reset(new (std::nothrow) bool[ranks_]());
  if (is_near_ == nullptr) return fail(Status::kResource, "no memory for a table of ranks");
  for (const Rank rank : topology.node_ranks) is_near_[rank] = true;
  return Status::kOk;
}

CompositeTransport::~CompositeTransport() {
  ends_.store(true, std::memory_order_relaxed);
  if (is_running_.load(std::memory_order_relaxed)) uncancelled::pthread_join(thread_, nullptr);
}

// ---- progress ----

uint32_t CompositeTransport::poll(Receiver& receiver, uint32_t budget, bool replies_only) noexcept {
  const bool near_first = (++t_turn & 1) != 0;
  Transport& first = near_first ? *near_ : *far_;
  Transport& second = near_first ? *far_ : *near_;
  const uint32_t events = first.poll(receiver, budget, replies_only);
  if (events >= budget) return events;
  return events + second.poll(receiver, budget - events, replies_only);
}

// A far message between arm_events() and the near transport's sleep makes the thread call wake(), which that
// sleep detects.
void CompositeTransport::sleep(uint64_t deadline_ns, const WakeCondition& check) noexcept {
  const bool is_woken = notices_.notice_fd() >= 0 && has_thread();
  if (!notices_.arm_events()) return;
  near_sleeping_.sleep(is_woken ? deadline_ns : std::min(deadline_ns, now_ns() + kNapNs), check);
}

bool CompositeTransport::announce_sleep(Announcement* announcement) noexcept {
  const bool is_woken = notices_.notice_fd() >= 0 && has_thread();
  if (!notices_.arm_events() || !near_sleeping_.announce_sleep(announcement)) return false;
  const uint64_t deadline_ns = is_woken ? notices_.next_poll_ns() : now_ns() + kNapNs;
  announcement->deadline_ns = std::min(announcement->deadline_ns, deadline_ns);
  return true;
}

bool CompositeTransport::has_thread() noexcept {
  if (is_running_.load(std::memory_order_acquire)) return true;
  if (!thread_gate_.is_open(false)) return false;
  const MutexLock lock(thread_mu_);
  if (is_running_.load(std::memory_order_relaxed)) return true;
  if (!thread_gate_.is_open(false)) return false;
  const int error = create_thread_without_signals(&thread_, run_thread, this);
  if (error != 0) {
    thread_gate_.note_failure(error);
    static RateLimit once(RateLimit::kOnce);
    log_warning(
        once,
        "waiting threads of this rank look for messages of other nodes every %llu us: no thread: "
        "%s",
        static_cast<unsigned long long>(kNapNs / 1000), errno_text(error));
  }
  is_running_.store(error == 0, std::memory_order_release);
  return error == 0;
}

void* CompositeTransport::run_thread(void* self) noexcept {
  auto& composite = *static_cast<CompositeTransport*>(self);
  while (!composite.ends_.load(std::memory_order_relaxed)) {
    pollfd notices = {composite.notices_.notice_fd(), POLLIN, 0};
    if (uncancelled::poll(&notices, 1, kThreadLooksMs) <= 0) continue;
    composite.notices_.take_notices();
    composite.near_sleeping_.wake();
    // The descriptor of a removed device is always ready but has no notices: do not spin on it.
    if ((notices.revents & POLLIN) == 0) uncancelled::sleep_ns(kNapNs);
  }
  return nullptr;
}

// The far transport gets the remaining time: messages in shared memory need no more of this process.
void CompositeTransport::flush(uint64_t deadline_ns) noexcept {
  near_->flush(deadline_ns);
  far_->flush(deadline_ns);
}

}  // namespace hydrant
