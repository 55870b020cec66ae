// The link of a domain to the monitor: its queries. The monitor's reports go to the invalidator.
//
// Invariant: a plan is cacheable only if the client vouches for the memory, or the monitor watches it and
// knew of no release under way when the registration was complete. No mutex is held during a query.
//
// A registrar may have to unpin before its memory is released (RegistrarTraits::unpin_before_release).
// Releases that the kernel, the hooks or a plain arena report do not wait for that. So reports of the kernel
// do not count then, and only arenas that keep pinned memory do.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/base/status.hpp"
#include "firehose/cache/coherence/patience.hpp"
#include "firehose/cache/plan/domain_config.hpp"
#include "firehose/cache/plan/pin_request.hpp"
#include "firehose/cache/region/hit_checks.hpp"

namespace hydrant {

class WatchLink {
 public:
  WatchLink(const DomainConfig& config, HitChecks& checks) noexcept
      : config_(config), checks_(checks) {}

  // Functions of a client that not every monitor calls.
  struct ClientHooks {
    void (*end_free_hits)(void* context);                         // hits need checks from now on
    void (*unmapped)(void* context, uintptr_t addr, size_t len);  // in place of forget()
    void (*wanted)(void* context);  // forgotten regions are to be unpinned at once
  };

  // Subscribes `client`. Requires: before the domain is published.
  Status start(const hydrant_monitor_t* monitor, const hydrant_monitor_client_t& client,
               const ClientHooks& more) noexcept;
  void stop() noexcept;
  bool is_watched() const noexcept { return monitor_ != nullptr; }

  // Afterwards no cache has regions of earlier memory where the calling thread's memory is, above all its
  // stack: threads that libc starts by itself pass no hook. No lock of the library is held; the reader takes
  // no lock of the caller.
  void sync_new_memory() const noexcept;
  // True if no release was under way at some moment since the call began; the request keeps the result.
  bool wait_until_quiet(PinRequest& request) noexcept {
    if (request.quiet || request.restless) return request.quiet;
    return query_quiet(request);
  }
  // Has the monitor watch the range of a pending registration, before it begins. False: part of the plan is
  // unwatched, or watched less well than the request alone.
  bool cover(const PinRequest& request, Plan* plan) const noexcept {
    return monitor_ == nullptr || plan->vouched || query_cover(request, plan);
  }
  // Waits, so that reports on earlier memory at the plan's addresses come before its registration, as a rule.
  void set_unmap_reports(const PinRequest& request, const Plan& plan) noexcept {
    const bool is_reported =
        plan.cover == HYDRANT_COVER_CHECKED || plan.cover == HYDRANT_COVER_WATCHED;
    if (is_reported && !request.quiet) (void)wait_for_quiet(&plan.range);
  }
  // The same before memory is unpinned, for all releases.
  void set_all_unmap_reports() noexcept {
    if (monitor_ == nullptr) return;
    checks_.must_query() ? (void)wait_for_quiet(nullptr) : settle();
  }
  // Called when the registration is complete and not yet published. A change since cover() is under way, or
  // the invalidator has poisoned the region.
  bool may_be_cached(const Plan& plan) noexcept;
  // HYDRANT_COVERAGE_*: what a pin of these pages would get now, if the client does not vouch for them.
  uint32_t coverage(MemoryRange pages) const noexcept;

  // Has the monitor stop watching memory that no domain has registered any more.
  void unwatch_unused() const noexcept;
  // The same without a request: only if it costs little (Unwatcher::unwatch_idle()).
  void unwatch_idle() const noexcept;
  // Afterwards the caches have forgotten what the caller released before: the releasing call has returned
  // when its report was read. Cost: a load, unless the reader is at work.
  void settle() const noexcept {
    if (monitor_ == nullptr) return;
    if ((__atomic_load_n(monitor_->sequence, __ATOMIC_ACQUIRE) & 1) != 0) monitor_->settle();
  }
  // Afterwards the caches have forgotten releases before the call; false if that takes too long. `checked`:
  // also releases that only the kernel knows, which costs a system call.
  bool sync_invalidations(bool checked) const noexcept;
  uint64_t raw_changes() const noexcept {
    return __atomic_load_n(monitor_->raw_changes, __ATOMIC_RELAXED);
  }

 private:
  // True if the kernel reports releases to this domain.
  bool queries_kernel() const noexcept {
    return config_.watch == HYDRANT_WATCH_AUTO && !config_.unpin_before_release;
  }
  // HYDRANT_COVER_*: how the monitor lets this domain cache the range.
  uint32_t cover_of(MemoryRange range) const noexcept;
  // For releases of the range, or with null for all releases.
  bool wait_for_quiet(const MemoryRange* range) noexcept;
  bool query_quiet(PinRequest& request) noexcept;
  bool query_cover(const PinRequest& request, Plan* plan) const noexcept;
  const DomainConfig& config_;
  HitChecks& checks_;
  const hydrant_monitor_t* monitor_ = nullptr;  // null: not watched
  int subscription_ = -1;
  Patience patience_;  // with releases under way
};

}  // namespace hydrant
