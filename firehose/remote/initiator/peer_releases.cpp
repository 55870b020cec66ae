// Collects the ids of firehoses that were evicted, recalled or used once, and returns them to the target,
// with a move if there is one.
#include "firehose/base/planted_defect.hpp"
#include "firehose/remote/initiator/peer_cache.hpp"
#include "firehose/watch/mutant.hpp"

namespace hydrant {

using namespace remote_wire;

namespace {

constexpr size_t kMaxIds = 48;  // of a release that travels alone: fits the shortest message

}  // namespace

void PeerCache::add_release(uint64_t id) noexcept {
  bool due = false;
  {
    MutexLock lock(mu_);
    if (is_gone_ || released_.is_full()) return;  // no peer to send it to
    released_.add(id);
    if (recalling_.load(std::memory_order_relaxed)) released_.make_urgent();
    due = released_.is_due();
  }
  if (due) channel_.mark_pending(peer_);
}

void PeerCache::requeue_releases(const uint64_t* ids, size_t n) noexcept {
  {
    MutexLock lock(mu_);
    if (is_gone_ || has_defect(Defect::kLostRelease)) return;
    released_.put_back(ids, n);
  }
  channel_.mark_pending(peer_);
}

bool PeerCache::send_releases(uint32_t lane, void* reply_to) noexcept {
  uint64_t ids[kMaxIds];
  size_t n = 0;
  {
    MutexLock lock(mu_);
    n = released_.take_and_end(ids, kMaxIds);
  }
  if (n == 0) return false;
  Message message;
  message.add(header(Type::kRelease, n));
  message.add(ids, n * sizeof *ids);
  const Status status = channel_.send(peer_, lane, reply_to, message);
  if (status == Status::kOk) counts_.releases_alone.fetch_add(1, std::memory_order_relaxed);
  if (status == Status::kNotReady) requeue_releases(ids, n);
  return status == Status::kOk;
}

// The peer waits for released ids: some go as its reply, the rest with the next poll.
void PeerCache::flush_releases(void* reply_to) noexcept {
  bool any = false;
  {
    MutexLock lock(mu_);
    any = !released_.empty() || released_.is_reclaiming();
    if (any) released_.make_urgent();
  }
  if (any && reply_to != nullptr) (void)send_releases(HYDRANT_LANE_REPLY, reply_to);
  if (any || recalling_.load(std::memory_order_relaxed)) channel_.mark_pending(peer_);
}

// A recall may come early or late. The grant of a move that is under way is poisoned in the domain; a held
// firehose is returned by its last release; a firehose that is being returned already needs no more.
void PeerCache::on_recall(const Recalled* recalled, size_t n, void* reply_to) noexcept {
  counts_.recalled.fetch_add(n, std::memory_order_relaxed);
  for (size_t i = 0; i < n; ++i) {
    const MemoryRange range{static_cast<uintptr_t>(recalled[i].addr),
                            static_cast<size_t>(recalled[i].len)};
    invalidate_recalled(range);
    if (is_mutant(Mutant::kEarlyAcknowledgement)) add_release(recalled[i].id);
  }
  flush_releases(reply_to);
}

void PeerCache::on_lease(const Lease& lease, void* reply_to) noexcept {
  limit_.adopt(lease.most, (lease.flags & kMaxIsRegion) != 0);
  adopt_lease(lease.bytes, lease.number);
  flush_releases(reply_to);
}

void PeerCache::on_reclaim(uint64_t bytes, void* reply_to) noexcept {
  domain_->peer_regions().evict_unheld(bytes);
  {
    MutexLock lock(mu_);
    if (!is_gone_) released_.begin_reclaim();
  }
  flush_releases(reply_to);
}

void PeerCache::evict(MemoryRange range) noexcept {
  invalidate_recalled(range);
  flush_releases(nullptr);
}

// The mark is set again after the invalidation: finish_recalls() may have found no recalled region just
// before it, and flush_releases() sees the ids that are released in between.
void PeerCache::invalidate_recalled(MemoryRange range) noexcept {
  (void)domain_->invalidate(range);
  MutexLock lock(mu_);
  ++recalls_;
  recalling_.store(true, std::memory_order_relaxed);
}

// Ends only when the last recalled firehose is among released_: otherwise its id would be sent with the next
// move only, and there may be none.
void PeerCache::finish_recalls() noexcept {
  uint64_t seen = 0;
  {
    MutexLock lock(mu_);
    seen = recalls_;
  }
  (void)domain_->poll();
  if (domain_->peer_regions().has_pending_unpins()) return;
  MutexLock lock(mu_);
  if (recalls_ == seen) recalling_.store(false, std::memory_order_relaxed);
}

}  // namespace hydrant
