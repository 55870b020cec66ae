// Queries the monitor about memory on behalf of a domain. Before its lookup a miss queries whether releases
// are under way, before the registration how the memory is watched, and before the publication whether it may
// be cached.
#include "firehose/cache/coherence/watch_link.hpp"

#include "firehose/watch/mutant.hpp"

#include <cstddef>

namespace hydrant {
namespace {

// The next call waits for a release that takes longer to reach the caches.
constexpr uint64_t kSettleNs = 1'000'000;

}  // namespace

Status WatchLink::start(const hydrant_monitor_t* monitor, const hydrant_monitor_client_t& client,
                        const ClientHooks& more) noexcept {
  // Started here and not in the first pin: a client may pin where no thread can be created, for example while
  // the dynamic linker calls it. Without a reader the domain's memory is not watched, as each pin finds out.
  if (queries_kernel()) (void)monitor->start();
  // Prepinned ranges are the client's: no report on earlier memory may arrive when they are entered.
  monitor->sync();
  subscription_ = monitor->subscribe(&client);
  if (subscription_ < 0) {
    return fail(
        Status::kResource,
        "domain %s cannot receive reports of released memory: the process's monitor serves 64 "
        "domains, which is its limit; destroy one, or set options.watch to HYDRANT_WATCH_CLIENT "
        "and call hydrant_invalidate()",
        config_.name);
  }
  monitor_ = monitor;
  constexpr size_t kNeeded =
      offsetof(hydrant_monitor_t, set_end_free_hits) + sizeof monitor_->set_end_free_hits;
  if (monitor_->size >= kNeeded) {
    checks_.follow(monitor_->checked);
    (void)monitor_->set_end_free_hits(subscription_, more.end_free_hits);
  }
  constexpr size_t kNeededToo =
      offsetof(hydrant_monitor_t, set_unmapped) + sizeof monitor_->set_unmapped;
  if (monitor_->size >= kNeededToo) (void)monitor_->set_unmapped(subscription_, more.unmapped);
  if (monitor_->size > offsetof(hydrant_monitor_t, set_wanted))
    (void)monitor_->set_wanted(subscription_, more.wanted);
  return Status::kOk;
}

void WatchLink::stop() noexcept {
  if (monitor_ != nullptr) monitor_->unsubscribe(subscription_);
}

void WatchLink::sync_new_memory() const noexcept {
  if (monitor_ != nullptr && queries_kernel()) monitor_->sync();
}

bool WatchLink::wait_for_quiet(const MemoryRange* range) noexcept {
  constexpr size_t kNeeded =
      offsetof(hydrant_monitor_t, quiet_range) + sizeof monitor_->quiet_range;
  const uint64_t timeout_ns = with_patience(patience_.ns());
  const bool quiet = range != nullptr && monitor_->size >= kNeeded
                         ? monitor_->quiet_range(range->addr, range->len, timeout_ns) == 0
                         : monitor_->quiet(timeout_ns) == 0;
  patience_.note(quiet);
  return quiet;
}

bool WatchLink::query_quiet(PinRequest& request) noexcept {
  request.quiet = is_mutant(Mutant::kNoCheckedLookup) || wait_for_quiet(nullptr);
  request.restless = !request.quiet;
  return request.quiet;
}

// The monitor may belong to another copy of the library, also an older one.
uint32_t WatchLink::cover_of(MemoryRange range) const noexcept {
  uint32_t flags = queries_kernel() ? 0 : HYDRANT_COVER_ONLY_ARENAS;
  if (config_.unpin_before_release) {
    constexpr size_t kNeeded =
        offsetof(hydrant_monitor_t, add_kept_arena) + sizeof monitor_->add_kept_arena;
    if (monitor_->size < kNeeded) return HYDRANT_COVER_NONE;
    flags |= HYDRANT_COVER_ONLY_KEPT_ARENAS;
  }
  if (config_.wants_unmap_reports && queries_kernel()) flags |= HYDRANT_COVER_REPORTED_ARENAS;
  return monitor_->cover(range.addr, range.len, flags);
}

bool WatchLink::query_cover(const PinRequest& request, Plan* plan) const noexcept {
  plan->cover = request.restless ? HYDRANT_COVER_NONE : cover_of(plan->range);
  if (plan->cover == HYDRANT_COVER_NONE) return plan->range == request.pages;
  // An extension must not turn free hits of the request into checked ones.
  if (plan->cover == HYDRANT_COVER_CHECKED && plan->range != request.pages) {
    if (plan->request_vouched) return false;
    const uint32_t alone = cover_of(request.pages);
    if (alone == HYDRANT_COVER_ARENA || alone == HYDRANT_COVER_WATCHED) return false;
  }
  monitor_->note_pinned(plan->range.addr, plan->range.len);
  return true;
}

bool WatchLink::may_be_cached(const Plan& plan) noexcept {
  if (config_.watch == HYDRANT_WATCH_CLIENT || plan.vouched) return true;
  if (plan.cover == HYDRANT_COVER_NONE) return false;
  if (plan.cover == HYDRANT_COVER_ARENA || is_mutant(Mutant::kNoPublishCheck)) return true;
  return wait_for_quiet(&plan.range);
}

uint32_t WatchLink::coverage(MemoryRange pages) const noexcept {
  if (config_.watch == HYDRANT_WATCH_CLIENT) return HYDRANT_COVERAGE_CLIENT;
  // The caller's earlier releases may not have reached all caches, and this may be new memory at their
  // addresses.
  if (queries_kernel()) (void)monitor_->quiet(Patience::kMaxNs);
  switch (cover_of(pages)) {
    case HYDRANT_COVER_CHECKED: return HYDRANT_COVERAGE_CHECKED;
    case HYDRANT_COVER_WATCHED: return HYDRANT_COVERAGE_WATCHED;
    case HYDRANT_COVER_ARENA: return HYDRANT_COVERAGE_ARENA;
    default: return HYDRANT_COVERAGE_NONE;
  }
}

void WatchLink::unwatch_unused() const noexcept {
  constexpr size_t kNeeded =
      offsetof(hydrant_monitor_t, unwatch_unused) + sizeof monitor_->unwatch_unused;
  if (monitor_ == nullptr || !queries_kernel()) return;
  if (monitor_->size >= kNeeded) monitor_->unwatch_unused();
}

void WatchLink::unwatch_idle() const noexcept {
  if (monitor_ == nullptr || !queries_kernel()) return;
  if (monitor_->size > offsetof(hydrant_monitor_t, unwatch_idle)) monitor_->unwatch_idle();
}

// A call that released memory returns when the kernel's report was read: then it is enough that the caches
// have forgotten. If acquisitions are not reported, a release may be under way in another thread.
bool WatchLink::sync_invalidations(bool checked) const noexcept {
  if (monitor_ == nullptr) return true;
  if (checked || checks_.free_hits_ended()) return monitor_->quiet(kSettleNs) == 0;
  settle();
  return true;
}

}  // namespace hydrant
