// Handles a miss: slow hit, plan, claim, victims, registration and publication. "Tour: a miss with eviction"
// in docs/architecture.md follows this file from top to bottom. domain_miss_failure.cpp handles failures of
// the registrar.
#include "firehose/cache/domain_miss.hpp"

#include "firehose/base/cancellation.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/trace/tracer.hpp"
#include "firehose/cache/coherence/upkeep.hpp"
#include "firehose/hit/find_and_hold.hpp"
#include "firehose/pin/failure_texts.hpp"
#include "firehose/watch/rule_clock.hpp"

#include <algorithm>
#include <utility>

namespace hydrant {
namespace {

constexpr int kMaxSpoiled = 256;     // more: the client invalidates faster than this registers
constexpr size_t kReserveDead = 64;  // dead regions examined for a reservation

// Starts the upkeep thread for a plan that may be cached: in the child of a fork an inherited domain has none
// yet. Requires: no lock is held.
void start_upkeep(const DomainConfig& config, const Plan& plan) noexcept {
  const bool may_be_released = plan.vouched || plan.cover != HYDRANT_COVER_NONE;
  if (may_be_released && config.watch == HYDRANT_WATCH_AUTO) (void)Upkeep::own().start(false);
}

[[gnu::cold]] void trace_miss(MemoryRange range, uint64_t begin, Status status) noexcept {
  trace({.start = begin,
         .end = TraceClock::ticks(),
         .bytes = range.len,
         .number = range.addr,
         .kind = TraceKind::kMiss,
         .is_failed = status != Status::kOk});
}

}  // namespace

Status MissPath::check_range(MemoryRange range) const noexcept {
  if (range.len == 0)
    return fail(Status::kBadArg, "a range of 0 bytes cannot be pinned: pass a length of 1 or more");
  // Rounding out must not wrap either, and a gate holds the end of its region.
  if (!range.valid() || range.last() > UINTPTR_MAX - 2 * parts_.config.granule_bytes) {
    return fail_wrapping(range);
  }
  return Status::kOk;
}

// ---- the slow way of a hit ----

Status MissPath::pin(PinRequest& request, const RegionSlot** out) noexcept {
  ThreadDomain* thread = request.thread;
  if (thread != nullptr) {
    const RegionSlot* slot = hold_without_lock(request);
    if (slot != nullptr) {
      *out = slot;
      return Status::kOk;
    }
  }
  const CancellationDisabled guard;
  if (thread != nullptr && parts_.checks.has_checked_regions() && find_checked(request, out)) {
    return Status::kOk;
  }
  const Status status = acquire(request, out);
  if (status == Status::kOk && thread != nullptr &&
      (*out)->checked_gate.load(std::memory_order_relaxed) <= kMarkedGate &&
      (*out)->tag.load(std::memory_order_relaxed) != 0) {
    parts_.threads.remember(*thread, request.range.addr, *out);
  }
  return status;
}

// Looks in the thread's own table, then in the shared tables. Null: look under the mutex. Requires: a thread
// with a state.
const RegionSlot* MissPath::hold_without_lock(const PinRequest& request) noexcept {
  ThreadDomain& thread = *request.thread;
  // A registrar that uses another domain leaves the hit context of that domain in place.
  if (thread.thread->current != &thread) load_hit_context(thread);
  const uintptr_t first = request.range.addr;
  const uintptr_t last = request.range.last();
  const uint32_t need = bits(request.need);
  const RegionSlot* slot = find_and_hold(thread, first, last, need);
  return slot != nullptr ? slot : hold_shared(request);
}

const RegionSlot* MissPath::hold_shared(const PinRequest& request) noexcept {
  ThreadDomain& thread = *request.thread;
  const uintptr_t first = request.range.addr;
  const RegionSlot* slot =
      parts_.tables.find_and_hold(&RegionSlot::gate, thread.counts, first, request.range.last(),
                                  bits(request.need), [](const RegionSlot&) { return true; });
  if (slot == nullptr) return nullptr;
  ThreadCounters::add(thread.counters.refills);
  parts_.extensions.note_reached(parts_.store.slot(slot->index), request.pages);
  parts_.threads.remember(thread, first, slot);
  return slot;
}

// Makes a checked hit, of memory whose acquisition is not reported. The caller has acquired the memory before
// this call, so a release of what was at these addresses earlier had begun by then. Either it is still under
// way, and the query of the monitor finds it, or the caches know of it.
bool MissPath::find_checked(PinRequest& request, const RegionSlot** out) noexcept {
  ThreadDomain& thread = *request.thread;
  const uintptr_t first = request.range.addr;
  const uintptr_t last = request.range.last();
  // Queries only for a slot that would be hit; find_and_hold() checks the slot again afterwards.
  const auto would_hit_and_quiet = [&](const RegionSlot& slot) {
    return first >= slot.addr.load(std::memory_order_relaxed) &&
           last < slot.checked_gate.load(std::memory_order_relaxed) &&
           parts_.watch.wait_until_quiet(request);
  };
  const RegionSlot* slot =
      parts_.tables.find_and_hold(&RegionSlot::checked_gate, thread.counts, first, last,
                                  bits(request.need), would_hit_and_quiet);
  if (slot == nullptr) return false;
  ThreadCounters::add(thread.counters.refills);
  ThreadCounters::add(thread.counters.checked_hits);
  parts_.extensions.note_reached(parts_.store.slot(slot->index), request.pages);
  *out = slot;
  return true;
}

// ---- the miss ----

Status MissPath::acquire(PinRequest& request, const RegionSlot** out) noexcept {
  if (!parts_.traits.unpin_before_release || request.policy == MissPolicy::kHitOnly) {
    return acquire_uncounted(request, out);
  }
  const BegunPin begun(parts_, request.range);
  return acquire_uncounted(request, out);
}

Status MissPath::acquire_uncounted(PinRequest& request, const RegionSlot** out) noexcept {
  const uint64_t begin = is_tracing() ? TraceClock::ticks() : 0;
  for (int spoiled = 0; spoiled < kMaxSpoiled;) {
    Plan plan;
    UnsettledRange unsettled;
    Status status = Status::kOk;
    RegionIndex held = kNoRegion;
    bool again = false;
    const Step step = prepare(request, &plan, &unsettled, &status, &held);
    if (std::exchange(request.waited_long, false)) {
      log_warning("domain %s: still waiting for another thread's registration of %#zx+%zu",
                  parts_.config.name, static_cast<size_t>(request.range.addr), request.range.len);
    }
    if (step == Step::kAgain) continue;
    if (step == Step::kRegister) {
      status = register_now(request, plan, &unsettled, &again, &held);
      if (begin != 0 && !again) [[unlikely]]
        trace_miss(request.range, begin, status);
    }
    if (again) {
      ++spoiled;
      continue;
    }
    if (status == Status::kOk) *out = &parts_.store.slot(held);
    return status;
  }
  return parts_.texts.invalidated(request.range, kMaxSpoiled);
}

// The first phase: look, plan, reserve and claim. It is two if the plan is longer than the request, because
// the kernel and the registrar are asked about that without the mutex. Then the victims are unpinned.
MissPath::Step MissPath::prepare(PinRequest& request, Plan* plan, UnsettledRange* unsettled,
                                 Status* status, RegionIndex* held) noexcept {
  // A call that does not register queries the monitor only once a region to take was found.
  const bool may_register = request.policy != MissPolicy::kHitOnly;
  if ((may_register || request.must_query) && parts_.checks.must_query()) {
    (void)parts_.watch.wait_until_quiet(request);
  } else if (may_register) {
    // A known refusal holds until its memory is released. A release returns to the caller once the monitor
    // has read its report, which may be before the report has reached this cache: wait for that.
    parts_.watch.settle();
  }
  // Asked for before it is known whether the request has to be registered: the mutex is taken once then.
  const bool is_charged = may_register && request.pages.len <= parts_.config.max_region_bytes;
  const uint64_t charge = is_charged ? parts_.registrar->charge(request.pages) : 0;
  uint64_t kernel_pending = is_charged ? parts_.registrar->pending_charge() : 0;
  Payment payment(parts_);
  bool is_extended = false;
  {
    const CachePhase lock(parts_);
    const Step step = look(lock, request, status, held);
    if (step != Step::kRegister) return step;
    parts_.planner.plan(lock, request, plan);
    is_extended = plan->range != request.pages;
    if (!is_extended) {
      plan->charge = charge;
      parts_.limits.widen_to_huge_pages(request, plan);
      *status = claim(lock, request, kernel_pending, plan, &payment);
    }
  }
  if (is_extended) {
    parts_.limits.keep_to_mapping(request, plan);
    plan->charge = parts_.registrar->charge(plan->range);
    parts_.limits.widen_to_huge_pages(request, plan);
    kernel_pending = parts_.registrar->pending_charge();
    const CachePhase lock(parts_);
    const Step step = look(lock, request, status, held);
    if (step != Step::kRegister) return step;
    *status = claim(lock, request, kernel_pending, plan, &payment);
  }
  const bool claimed = *status == Status::kOk;
  plan->evicted = !payment.victims.empty();
  Status paid =
      pay(request.range, claimed ? plan->charge : 0, &payment, claimed ? unsettled : nullptr);
  bool covered = true;
  if (claimed && paid == Status::kOk) {
    // No release of memory that is used once is waited for, unless the registrar has to know of it.
    plan->cover = HYDRANT_COVER_NONE;
    covered =
        (plan->once && !parts_.traits.wants_unmap_reports) || parts_.watch.cover(request, plan);
    if (covered) {
      if (!plan->once) start_upkeep(parts_.config, *plan);
      if (parts_.traits.wants_unmap_reports) parts_.watch.set_unmap_reports(request, *plan);
      return Step::kRegister;
    }
    paid = Status::kNotReady;  // try again with exactly the requested range
  }
  if (claimed) *status = paid;
  if (claimed || plan->stream) {
    const CachePhase lock(parts_);
    if (claimed) {
      settle(lock, unsettled);
      abandon(lock, request, *plan);
    }
    parts_.planner.note_abandoned(lock, request, *plan, !covered);
  }
  if (plan->range == request.pages) return Step::kDone;
  request.exact = true;
  return Step::kAgain;
}

// Serves the request from an open region, waits for a pending one, or returns kRegister.
MissPath::Step MissPath::look(const CacheLock& lock, PinRequest& request, Status* status,
                              RegionIndex* held) noexcept {
  *status = Status::kOk;
  const RegionIndex found = parts_.tables.find(lock, request.range, request.need);
  Step step = Step::kDone;
  if (found != kNoRegion && use_found(lock, request, found, &step, held)) return step;
  if (request.policy == MissPolicy::kHitOnly) {
    *status = Status::kNotReady;
  } else if (!includes(parts_.traits.supported, request.need)) {
    *status = parts_.texts.beyond_rights(request.range, request.need);
  } else if (parts_.planner.is_refused(lock, request.pages, request.need)) {
    *status = parts_.texts.refused_recently(request.range, request.need);
  } else if (request.pages.len > parts_.config.max_region_bytes) {
    *status = parts_.texts.too_large(request.range);
  } else {
    const RegionIndex pending = parts_.pending.find(lock, request.range, request.need);
    if (pending == kNoRegion) return Step::kRegister;
    // Waiting would be a deadlock if this thread itself has to make progress on the registration.
    const uint32_t starter = parts_.store.infos(lock)[pending].starter;
    const bool own = starter != 0 && starter == thread_mark();
    if (request.may_wait && !own && now_ns() < request.deadline_ns) {
      wait_for_pending(lock, request);
      return Step::kAgain;
    }
    request.saw_pending = true;
    *status = parts_.texts.being_registered(request.range);
  }
  return Step::kDone;
}

// True: *step is the next step. False: the region may not be used, because releases do not cease.
bool MissPath::use_found(const CacheLock& lock, PinRequest& request, RegionIndex found, Step* step,
                         RegionIndex* held) noexcept {
  const RegionInfo& info = parts_.store.infos(lock)[found];
  parts_.gates.check_from_now_on(lock, found);
  const bool unqueried =
      !request.quiet && !request.restless &&
      !(request.policy == MissPolicy::kHitOnly && is_mutant(Mutant::kNoCheckedTry));
  if (info.checked && unqueried) {
    request.must_query = true;
    *step = Step::kAgain;  // opened since this call began, or not queried for yet
    return true;
  }
  if (info.checked && request.restless) return false;
  take(lock, request.thread, found);
  parts_.extensions.note_reached(parts_.store.slot(found), request.pages);
  *held = found;
  *step = Step::kDone;
  return true;
}

void MissPath::take(const CacheLock& lock, ThreadDomain* thread, RegionIndex region) noexcept {
  if (parts_.gates.is_shut(lock, region)) parts_.evictor.reopen(lock, region);
  parts_.holds.take(lock, thread, region);
  if (thread == nullptr) return;
  ThreadCounters::add(thread->counters.refills);
  if (parts_.store.infos(lock)[region].checked) ThreadCounters::add(thread->counters.checked_hits);
}

// Waits until some registration ends, or long enough for a warning.
void MissPath::wait_for_pending(const CacheLock& lock, PinRequest& request) noexcept {
  if (request.thread != nullptr) ThreadCounters::add(request.thread->counters.waits);
  const uint64_t warn_at = now_ns() + parts_.config.wait_warn_ns;
  if (parts_.pending.wait_until(lock, std::min(request.deadline_ns, warn_at)) ||
      now_ns() < warn_at) {
    return;
  }
  request.waited_long = true;  // logged without the mutex
}

// Takes budget and a slot, and makes the registration known as pending.
Status MissPath::claim(const CacheLock& lock, PinRequest& request, uint64_t kernel_pending,
                       Plan* plan, Payment* payment) noexcept {
  if (parts_.planner.is_outdated(lock, request, *plan)) return Status::kNotReady;
  if (!admit(lock, request, kernel_pending, plan)) return Status::kNotReady;
  const Budget::Share share{plan->charge, 1};
  if (plan->replaces && !plan->once &&
      (kernel_pending != 0 ||
       !parts_.evictor.replace(lock, plan->range, plan->access, share, &payment->victims)) &&
      plan->range != request.pages)
    return Status::kNotReady;
  // A reservation made in advance is too small only after an invalidation spoiled a registration.
  if (request.prepaid == nullptr || !request.prepaid->consume(share)) {
    const Status status = reserve(lock, request.range, share, kernel_pending, payment);
    if (status != Status::kOk) return status;
    (void)payment->reservation.consume(share);
  }
  plan->region = parts_.free_slots.allocate(lock);
  if (plan->region == kNoRegion) {
    parts_.budget.release(lock, share);
    return parts_.texts.no_free_slot(request.range);
  }
  plan->vouched = parts_.vouched.covers(lock, plan->range);  // a joined neighbour may not be
  plan->request_vouched = plan->vouched || parts_.vouched.covers(lock, request.pages);
  RegionInfo& info = parts_.store.infos(lock)[plan->region];
  info = {};
  info.range = plan->range;
  info.access = plan->access;
  info.charge = plan->charge;
  info.state = RegionState::kPending;
  info.uncached = plan->once;
  info.starter = request.asynchronous ? thread_mark() : 0;
  parts_.planner.note_claimed(lock, request, *plan);
  parts_.pending.add(lock, plan->region);
  return Status::kOk;
}

// Decides whether the registration is kept (plan->once: it is not). False: the planned range is longer than
// the request and would not be kept; the caller plans the request alone.
bool MissPath::admit(const CacheLock& lock, PinRequest& request, uint64_t kernel_pending,
                     Plan* plan) noexcept {
  // A peer gets no memory that is used once where a recall has to unpin it before it is released.
  if (parts_.config.unpin_before_release && request.policy == MissPolicy::kRegisterSparingly)
    return true;
  const uint32_t more = request.prepaid == nullptr ? 1 : 0;
  Budget::Share lack = parts_.budget.shortage(lock, {kernel_pending + more * plan->charge, more});
  if (plan->replaces)
    lack.bytes -= std::min(lack.bytes, parts_.planner.replaced(lock, *plan).bytes);
  std::optional<Admission> answer = request.admission;
  if (const bool is_beyond_need = Planner::is_beyond_need(request, *plan);
      !answer || is_beyond_need) {
    AdmissionPolicy& policy = *parts_.policies.admission;
    AdmissionPolicy::Candidate one{plan->range,
                                   request.pages,
                                   plan->charge,
                                   lack.bytes,
                                   lack.regions,
                                   is_beyond_need,
                                   parts_.policies.cost.get()};
    if (policy.wants_room()) parts_.planner.add_room(lock, request, *plan, kernel_pending, &one);
    answer = policy.decide(one);
    if (plan->range == request.pages) request.admission = answer;
  }
  const bool is_kept = answer == Admission::kKeep || (answer == Admission::kKeepInFreeRoom &&
                                                      lack.bytes == 0 && lack.regions == 0);
  if (!is_kept && plan->range != request.pages) return false;
  plan->once = !is_kept;
  return true;
}

Status MissPath::reserve(const CacheLock& lock, MemoryRange requested, Budget::Share share,
                         uint64_t pending, Payment* payment) noexcept {
  Budget& budget = parts_.budget;
  const Budget::Share& whole = budget.whole();
  if (share.bytes > whole.bytes || share.regions > whole.regions)
    return parts_.texts.beyond_budget(requested, 1, share.bytes, share.regions);
  if (budget.in_force(lock) < whole.bytes && !parts_.config.is_remote &&
      budget.regrow(lock, rule_now_ns()))
    payment->regrown_budget = budget.in_force(lock);
  const Budget::Share lack = budget.shortage(lock, share);
  // Bytes that are being unpinned now are waited for; no region is evicted for them.
  if (lack.bytes == 0 && payment->victims.empty()) {
    if (!budget.has_room(lock, share.bytes + pending))
      return parts_.texts.until_uncharged(requested, share.bytes, pending);
    if (lack.regions == 0) {
      payment->reservation.take(lock, share);
      return Status::kOk;
    }
  }
  // Dead regions whose last hold was released come first: they are of no use.
  const auto& infos = parts_.store.infos(lock);
  RegionQueue& victims = payment->victims;
  parts_.retirement.drain(lock, kReserveDead, &victims);
  const Budget::Share dead = share_of(infos, victims);
  const Budget::Share more{lack.bytes > dead.bytes ? lack.bytes - dead.bytes : 0,
                           lack.regions > dead.regions ? lack.regions - dead.regions : 0};
  Shortage shortage{requested, share, {}, pending};
  const bool enough = (more.bytes == 0 && more.regions == 0) ||
                      parts_.evictor.evict(lock, more, &victims, &shortage.idle);
  const Budget::Share freed = share_of(infos, victims);
  if (enough) {
    // The victims' bytes pay for this request first; the rest is free for others once it is unpinned.
    payment->reservation.take(lock, share, freed);
    return Status::kOk;
  }
  parts_.budget_shortages.fetch_add(1, std::memory_order_relaxed);
  payment->reservation.keep_excess(freed);
  // The victims are dead regions that are not held any more.
  shortage.idle.bytes += freed.bytes;
  shortage.idle.regions += freed.regions;
  return parts_.texts.not_now(lock, budget, shortage);
}

Status MissPath::pay(MemoryRange requested, uint64_t charge, Payment* payment,
                     UnsettledRange* unsettled) noexcept {
  if (payment->regrown_budget != 0) {
    log_debug("domain %s: its budget grows back to %llu bytes", parts_.config.name,
              static_cast<unsigned long long>(payment->regrown_budget));
  }
  if (payment->victims.empty()) return Status::kOk;
  const Unpinner::Outcome outcome = parts_.unpinner.deregister(payment->victims);
  // A single victim without excess: its slot can be returned by the publication.
  if (unsettled != nullptr && !outcome.kernel_keeps() && payment->victims.size() == 1 &&
      !payment->reservation.has_excess()) {
    *unsettled = {std::exchange(payment->victims, {}), outcome};
    return Status::kOk;
  }
  const uint64_t pending = outcome.kernel_keeps() ? parts_.registrar->pending_charge() : 0;
  const CachePhase lock(parts_);
  if (outcome.kernel_keeps()) parts_.evictor.working_set().give_up(lock);
  parts_.unpinner.settle(lock, &payment->victims, outcome, Unpinner::Charge::kReserved);
  payment->reservation.release_excess(lock);
  if (parts_.budget.charged(lock) + pending <= parts_.budget.whole().bytes) return Status::kOk;
  return parts_.texts.until_uncharged(requested, charge, pending);
}

void MissPath::settle(const CacheLock& lock, UnsettledRange* unsettled) noexcept {
  if (unsettled == nullptr || unsettled->victims.empty()) return;
  parts_.unpinner.settle(lock, &unsettled->victims, unsettled->outcome,
                         Unpinner::Charge::kReserved);
}

Status MissPath::register_now(PinRequest& request, const Plan& plan, UnsettledRange* unsettled,
                              bool* again, RegionIndex* held) noexcept {
  Status status =
      parts_.registrar->pin(plan.range, plan.access, parts_.store.keys().of(plan.region));
  status = finish(request, plan, status, unsettled, again, held);
  parts_.invalidator.handle_losses(parts_.registrar->losses());
  return status == Status::kOk || *again ? status : after_failure(request, plan, status, again);
}

// The last phase: the end of a registration.
Status MissPath::finish(const PinRequest& request, const Plan& plan, Status status,
                        UnsettledRange* unsettled, bool* again, RegionIndex* held) noexcept {
  RegionQueue retired;
  const bool cacheable = status == Status::kOk && !plan.once && parts_.watch.may_be_cached(plan);
  bool is_indexed = true;
  {
    const CachePhase lock(parts_);
    settle(lock, unsettled);
    hydrant_stats_t& totals = parts_.totals.of(lock);
    RegionInfo& info = parts_.store.infos(lock)[plan.region];
    if (status != Status::kOk) {
      ++totals.pin_failures;
      // The memory may have been unmapped meanwhile: try again with what is mapped now.
      *again = info.poisoned;
      abandon(lock, request, plan);
      parts_.planner.note_abandoned(lock, request, plan, status == Status::kRefused && !*again);
      return status;
    }
    parts_.pending.remove(lock, plan.region);
    ++totals.pins;
    totals.pinned_bytes += plan.range.len;
    if (info.poisoned) {
      // Invalidated while it was being registered: it may not be used, and is not used yet.
      ++totals.retries;
      parts_.unpins.begin(lock, plan.region, &retired);
      *again = true;
    } else {
      is_indexed = parts_.publisher.publish(lock, plan, cacheable);
      if (held != nullptr) {
        parts_.holds.take(lock, info.is_unopened ? nullptr : request.thread, plan.region);
        *held = plan.region;
      }
      parts_.retirement.drain_many(lock, parts_.budget.in_force(lock), &retired);
    }
  }
  if (!is_indexed) log_missing_index();
  if (request.thread != nullptr && !*again) ThreadCounters::add(request.thread->counters.misses);
  (void)parts_.unpinner.unpin(&retired, Unpinner::Charge::kReleased);
  return Status::kOk;
}

}  // namespace hydrant
