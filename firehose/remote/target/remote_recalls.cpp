// Recalls firehoses from peers when their memory was released or the budget is short. poll() calls it;
// quiet() reports whether a peer may still use released memory.
#include "firehose/base/cancellation.hpp"
#include "firehose/base/planted_defect.hpp"
#include "firehose/remote/target/remote_target.hpp"
#include "firehose/watch/mutant.hpp"

#include <algorithm>
#include <utility>

namespace hydrant {

using namespace remote_wire;

namespace {

constexpr size_t kMaxRecalls = 16;  // of a message: fits the shortest
constexpr uint64_t kMinReclaim = 64u << 10;
// A peer that has ignored the reclaim during this many shortages is busy: another peer gets the request.
constexpr uint64_t kPatience = 64;

}  // namespace

bool RemoteTarget::find_zombies() noexcept {
  const InvalidationLog& gone = domain_.exports().invalidation_log();
  if (gone.count() == invalidations_seen_.load(std::memory_order_acquire)) return false;
  const CancellationDisabled guard;
  bool any = false;
  MutexLock lock(exports_mu_);
  uint64_t from = invalidations_seen_.load(std::memory_order_relaxed);
  const uint64_t to = gone.count();
  if (exports_.counts().count() == 0 || is_mutant(Mutant::kDropRecall)) from = to;
  if (to - from > InvalidationLog::kKept) {
    any = exports_.invalidate(MemoryRange{0, SIZE_MAX});
  } else {
    for (; from != to; ++from) any = exports_.invalidate(gone.at(from)) || any;
  }
  invalidations_seen_.store(to, std::memory_order_release);
  if (!any) return false;
  for (uint32_t peer = 0; peer < config_.ranks; ++peer) {
    if (exports_.has_recalls(peer)) channel_.mark_pending(peer);
  }
  return true;
}

// Requests idle firehoses from the largest holder after a local pin or a peer's move found no room. One
// request is outstanding until that peer has reported that it is done: one shortage causes many failed pins.
void RemoteTarget::check_pressure() noexcept {
  const uint64_t budget_shortages = domain_.exports().budget_shortages();
  if (budget_shortages == shortages_seen_.load(std::memory_order_relaxed)) return;
  const CancellationDisabled guard;
  shortages_seen_.store(budget_shortages, std::memory_order_relaxed);
  MutexLock lock(exports_mu_);
  const uint32_t peer = leases_.largest_holder([&](uint32_t of) HYDRANT_NO_TSA {
    return notices_[of].reclaiming && budget_shortages >= notices_[of].reclaimed_at + kPatience;
  });
  if (peer == config_.ranks || notices_[peer].reclaiming) return;
  notices_[peer].reclaiming = true;
  notices_[peer].reclaimed_at = budget_shortages;
  notices_[peer].reclaim_bytes = std::max(leases_.held(peer) / 4, kMinReclaim);
  channel_.mark_pending(peer);
}

int RemoteTarget::send_to(uint32_t peer) noexcept {
  int did = 0;
  for (;;) {
    uint64_t ids[kMaxRecalls];
    MemoryRange ranges[kMaxRecalls];
    size_t n = 0;
    {
      MutexLock lock(exports_mu_);
      n = exports_.take_recalls(peer, ids, ranges, kMaxRecalls);
    }
    if (n == 0) break;
    Message message;
    message.add(header(Type::kRecall, n));
    for (size_t i = 0; i < n; ++i) message.add(Recalled{ids[i], ranges[i].addr, ranges[i].len});
    const Status status = channel_.send(peer, HYDRANT_LANE_REQUEST, nullptr, message);
    if (status == Status::kOk) {
      counts_.recalls.fetch_add(n, std::memory_order_relaxed);
      did += static_cast<int>(n);
      if (!is_mutant(Mutant::kNoQuarantine)) continue;
      for (size_t i = 0; i < n; ++i) (void)end_export(peer, ids[i], false);
      continue;
    }
    MutexLock lock(exports_mu_);
    if (status == Status::kNotReady && !has_defect(Defect::kLostRecall)) {
      exports_.list_again(ids, n);
      channel_.mark_pending(peer);
    }
    break;
  }
  uint64_t reclaim = 0;
  bool is_lease_due = false;
  Lease lease{};
  {
    MutexLock lock(exports_mu_);
    reclaim = std::exchange(notices_[peer].reclaim_bytes, 0);
    is_lease_due = std::exchange(notices_[peer].lease, false);
    bool is_region = false;
    const LeaseTable::Terms terms = leases_.terms(peer);
    lease = {terms.bytes, max_lease(&is_region), terms.number, 0};
    if (is_region) lease.flags |= kMaxIsRegion;
  }
  // A reclaim may be lost: the next shortage sends another. A lease may not: an idle peer whose lease was cut
  // gets no reply that would carry the change, and is not cut again.
  if (reclaim != 0) {
    Message message;
    message.add(header(Type::kReclaim));
    message.add(Amount{reclaim});
    if (channel_.send(peer, HYDRANT_LANE_REQUEST, nullptr, message) == Status::kOk) {
      counts_.reclaims.fetch_add(1, std::memory_order_relaxed);
      ++did;
    } else {
      MutexLock lock(exports_mu_);
      notices_[peer].reclaiming = false;
    }
  }
  if (is_lease_due) {
    Message message;
    message.add(header(Type::kLease));
    message.add(lease);
    const Status status = channel_.send(peer, HYDRANT_LANE_REQUEST, nullptr, message);
    if (status == Status::kOk) ++did;
    if (status == Status::kNotReady) {
      MutexLock lock(exports_mu_);
      notices_[peer].lease = true;
      channel_.mark_pending(peer);
    }
  }
  return did + send_room_notice(peer);
}

void RemoteTarget::drop_exports_of(uint32_t peer) noexcept {
  if (has_defect(Defect::kKeptExports)) return;
  uint32_t from = 0;
  for (;;) {
    ExportTable::Export ended{};
    {
      MutexLock lock(exports_mu_);
      if (!exports_.release_any(peer, &from, &ended)) {
        leases_.forget(peer);
        return;
      }
      leases_.release(peer, ended.charge);
    }
    (void)domain_.release(ended.slot);
  }
}

Status RemoteTarget::quiet() noexcept {
  if (exports_.counts().count() == 0) return Status::kOk;
  if (!domain_.exports().sync_invalidations(exports_.counts().checked() != 0)) {
    return fail_literal(Status::kNotReady,
                        "releases of memory are under way in other threads: poll again");
  }
  (void)find_zombies();
  if (exports_.counts().zombies() == 0) return Status::kOk;
  return fail_literal(Status::kNotReady,
                      "peers may still use memory that was released here: call "
                      "hydrant_remote_poll() until they have returned it");
}

void RemoteTarget::on_lease_request(uint32_t from, uint64_t bytes) noexcept {
  {
    MutexLock lock(exports_mu_);
    leases_.ask(from, std::min(bytes, config_.budget_bytes));
    notices_[from].lease = true;
  }
  channel_.mark_pending(from);
}

void RemoteTarget::note_gone(uint32_t peer) noexcept {
  MutexLock lock(exports_mu_);
  notices_[peer].gone = true;
  forget_awaiting_locked(peer);
}

void RemoteTarget::read_stats(hydrant_remote_stats_t* stats) noexcept {
  const auto read = [](const std::atomic<uint64_t>& count) {
    return count.load(std::memory_order_relaxed);
  };
  stats->served = read(counts_.served);
  stats->declined = read(counts_.declined);
  stats->recalls = read(counts_.recalls);
  stats->reclaims = read(counts_.reclaims);
  MutexLock lock(exports_mu_);
  stats->exports = exports_.counts().count();
  stats->exported_bytes = exports_.counts().bytes();
  stats->lent_bytes = leases_.lent();
  stats->zombies = exports_.counts().zombies();
  stats->zombie_bytes = exports_.counts().zombie_bytes();
}

}  // namespace hydrant
