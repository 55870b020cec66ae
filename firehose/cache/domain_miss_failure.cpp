// Handles a failed registration: prepares another attempt of the miss with less memory, with fewer rights or
// after evictions, or ends the miss. register_now() in domain_miss.cpp calls it. abandon() undoes a claim.
#include "firehose/base/log.hpp"
#include "firehose/cache/domain_miss.hpp"
#include "firehose/watch/rule_clock.hpp"

#include <atomic>

namespace hydrant {
namespace {

constexpr uint32_t kMaxNoBudget = 32;  // evictions per request after refusals of the registrar
constexpr size_t kNoBudgetDead = 32;   // dead regions examined for each of them

}  // namespace

// After a refusal, the registrar may still grant less memory or fewer rights.
Status MissPath::after_failure(PinRequest& request, const Plan& plan, Status status,
                               bool* again) noexcept {
  if (status == Status::kNotReady) return after_no_budget(request, plan, again);
  if (status != Status::kRefused && status != Status::kResource) return status;
  if (plan.range != request.pages) {
    request.exact = true;
    *again = true;
    return status;
  }
  if (status != Status::kRefused) return status;
  const CachePhase lock(parts_);
  parts_.planner.note_refused(lock, request.pages, plan.access);
  if (plan.access != request.need) {
    request.plain = true;
    *again = true;
  }
  return status;
}

// Logged once per process: later attempts lack address space as well.
void MissPath::log_missing_index() const noexcept {
  static constinit std::atomic<bool> is_said{false};
  if (!log_enabled(LogLevel::kInfo) || is_said.exchange(true, std::memory_order_relaxed)) return;
  log_info(
      "domain %s: no address space was left for the index of cached registrations, so each ends "
      "with its pins: raise ulimit -v, or lower options.max_regions or FIREHOSE_MAX_REGIONS",
      parts_.config.name);
}

Status MissPath::after_no_budget(PinRequest& request, const Plan& plan, bool* again) noexcept {
  RegionQueue victims;
  uint64_t before = 0;
  uint64_t after = 0;
  const uint64_t pending = parts_.registrar->pending_charge();
  {
    const CachePhase lock(parts_);
    before = parts_.budget.in_force(lock);
    parts_.budget.shrink(lock, plan.charge, pending, rule_now_ns());
    after = parts_.budget.in_force(lock);
    parts_.retirement.drain(lock, kNoBudgetDead, &victims);
    Budget::Share idle;
    // For a longer range nothing is evicted: the request alone is tried next.
    const bool alone = plan.range == request.pages;
    if (alone && victims.empty() &&
        !parts_.evictor.evict(lock, {plan.charge, 1}, &victims, &idle)) {
      idle = {};
      (void)parts_.evictor.evict(lock, {1, 1}, &victims, &idle);
    }
  }
  if (after != before) {
    log_debug("domain %s: the registrar has no budget for [%#zx, +%zu): %llu bytes instead of %llu",
              parts_.config.name, static_cast<size_t>(plan.range.addr), plan.range.len,
              static_cast<unsigned long long>(after), static_cast<unsigned long long>(before));
  }
  const bool freed = !victims.empty();
  const bool kernel_keeps = parts_.unpinner.unpin(&victims, Unpinner::Charge::kReleased);
  *again =
      (freed && !kernel_keeps && ++request.no_budget < kMaxNoBudget) || plan.range != request.pages;
  request.exact = true;
  return Status::kNotReady;
}

// Undoes claim(): budget that was reserved for several goes back to that reservation.
void MissPath::abandon(const CacheLock& lock, const PinRequest& request,
                       const Plan& plan) noexcept {
  parts_.pending.remove(lock, plan.region);
  if (request.prepaid != nullptr) {
    request.prepaid->refund({plan.charge, 1});
  } else {
    parts_.budget.release(lock, {plan.charge, 1});
  }
  parts_.free_slots.quarantine(lock, plan.region);
}

}  // namespace hydrant
