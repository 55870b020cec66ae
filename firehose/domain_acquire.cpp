// Misses: from a request to a registered, published region, without holding a lock while registering.
#include "firehose/access_classes.hpp"
#include "firehose/base/access_names.hpp"
#include "firehose/base/log.hpp"
#include "firehose/domain.hpp"
#include "firehose/gate.hpp"
#include "firehose/watch/mutant.hpp"

#include <algorithm>
#include <utility>

namespace hydrant {
namespace {

constexpr int kMostSpoiled = 256;  // then somebody invalidates faster than we can register
constexpr uint32_t kMostNoBudget =
    32;  // evictions on behalf of one request that the registrar turned down
constexpr size_t kNoBudgetDead = 32;  // dead regions looked at for each of them

// Tells threads apart: where their static TLS lies.
uint32_t thread_mark() {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(&t_window) >> 4);
}

}  // namespace

Status Domain::check_range(MemoryRange range) const noexcept {
  if (range.len == 0) return fail(Status::kBadArg, "a range of 0 bytes cannot be pinned");
  // Rounding out must not wrap either, and a gate holds the end of its region.
  if (!range.valid() || range.last() > UINTPTR_MAX - 2 * config_.granule_bytes) {
    return fail(Status::kBadArg, "range [%#zx, +%zu) wraps around the address space",
                static_cast<size_t>(range.addr), range.len);
  }
  return Status::kOk;
}

Status Domain::fail_too_large(MemoryRange asked) const noexcept {
  const size_t by_registrar = registrar_->traits().max_region_bytes;
  return fail(Status::kResource,
              "domain %s: [%#zx, +%zu) is more than the largest region of %zu bytes; pin it in "
              "pieces%s",
              config_.name, static_cast<size_t>(asked.addr), asked.len, config_.max_region_bytes,
              config_.max_region_bytes == by_registrar
                  ? ", the registrar takes no more at once"
                  : ", or raise options.max_region_bytes or FIREHOSE_MAX_REGION_SIZE");
}

Domain::Want Domain::make_want(MemoryRange range, Access need, Effort effort,
                               ThreadDomain* thread) const noexcept {
  Want want{range, round_out(range, config_.granule_bytes), need, thread, effort};
  return want;
}

const RegionSlot* Domain::hold_without_lock(ThreadDomain& thread, const Want& want) noexcept {
  // A registrar that uses another domain leaves that one's window behind.
  if (thread.thread->current != &thread) enter_window(thread);
  const uintptr_t first = want.range.addr;
  const uintptr_t last = want.range.last();
  const uint32_t need = bits(want.need);
  for (const RegionSlot* s : {proposed_slot(t_window, first), thread.second_choice(first)}) {
    if (s->index == kNoRegion) continue;
    if (!hold_if_open(*s, thread.counts[s->index], first, last, need)) continue;
    ThreadCounters::add(thread.hits());
    return s;
  }
  uint32_t classes = classes_.load(std::memory_order_acquire) & kClassesIncluding[need];
  while (classes != 0) {
    const RegionIndex r = tables_[take_lowest(&classes)]->find(first);
    if (r == kNoRegion || r >= slot_count_) continue;
    if (!hold_if_open(slot(r), thread.counts[r], first, last, need)) continue;
    ThreadCounters::add(thread.counters.refills);
    note_reached(slot(r), want.pages);
    thread.remember(first, &slot(r), &slot(kNoRegion), config_.thread_table_bytes);
    return &slot(r);
  }
  return nullptr;
}

RegionIndex Domain::find_locked(MemoryRange range, Access need) {
  uint32_t classes = classes_.load(std::memory_order_relaxed) & kClassesIncluding[bits(need)];
  while (classes != 0) {
    const RegionIndex r = tables_[take_lowest(&classes)]->find(range.addr);
    if (r != kNoRegion && infos_[r].range.covers(range)) return r;
  }
  return kNoRegion;
}

void Domain::reopen_locked(RegionIndex region) {
  open_gate(slot(region), infos_[region].range.end(), infos_[region].checked);
  if (!infos_[region].prepinned) policy_->touch(region);
}

void Domain::take_locked(ThreadDomain* thread, RegionIndex region) {
  // No check is needed: closers hold mu_, and taking it later they see this post.
  if (thread != nullptr) {
    post_hold(thread->counts[region]);
  } else {
    shared_counts_[region].fetch_add(1, std::memory_order_relaxed);
  }
}

uint32_t Domain::drop_locked(ThreadDomain* thread, RegionIndex region) {
  if (thread != nullptr) {
    drop_hold(thread->counts[region]);
  } else {
    shared_counts_[region].fetch_sub(1, std::memory_order_release);
  }
  return holds_locked(region);
}

RegionIndex Domain::pending_covering_locked(const Want& want) const {
  for (RegionIndex r = pending_.front(); r != kNoRegion; r = infos_[r].next) {
    const RegionInfo& info = infos_[r];
    if (!info.poisoned && info.range.covers(want.range) && includes(info.access, want.need))
      return r;
  }
  return kNoRegion;
}

// Waits until some registration ends, or long enough to say something.
void Domain::wait_for_pending_locked(Want& want) {
  if (want.thread != nullptr) ThreadCounters::add(want.thread->counters.waits);
  const uint64_t warn_at = now_ns() + config_.wait_warn_ns;
  if (registered_.wait_until(mu_, std::min(want.deadline_ns, warn_at)) || now_ns() < warn_at) {
    return;
  }
  want.waited_long = true;  // said without the lock
}

bool Domain::known_refused_locked(MemoryRange range, Access access) const {
  return !refusals_.empty() && refusals_.refuses(range, access, now_ns());
}

// Answers the request from what is there, waits, or says that it must be registered.
Domain::Step Domain::look_locked(Want& want, Status* status, RegionIndex* held) {
  *status = Status::kOk;
  const RegionIndex found = find_locked(want.range, want.need);
  const bool unasked = !want.quiet && !want.restless &&
                       !(want.effort == Effort::kHitOnly && is_mutant(Mutant::kNoCheckedTry));
  if (found != kNoRegion && infos_[found].checked && unasked) {
    want.must_ask = true;
    return Step::kAgain;  // somebody has opened it since this call began, or nobody has asked yet
  }
  if (found != kNoRegion && !(infos_[found].checked && want.restless)) {
    if (gate_is_shut(slot(found))) reopen_locked(found);
    take_locked(want.thread, found);
    note_reached(slot(found), want.pages);
    if (want.thread != nullptr) ThreadCounters::add(want.thread->counters.refills);
    *held = found;
    return Step::kDone;
  }
  if (want.effort == Effort::kHitOnly) {
    *status = Status::kNotReady;
    return Step::kDone;
  }
  if (!includes(registrar_->traits().supported, want.need)) {
    *status = fail(Status::kRefused, "access %s is more than registrar %s can grant: %s",
                   AccessNames(want.need).text(), registrar_->traits().name,
                   AccessNames(registrar_->traits().supported).text());
    return Step::kDone;
  }
  if (known_refused_locked(want.pages, want.need)) {
    *status = fail(Status::kRefused,
                   "domain %s: [%#zx, +%zu) was refused for access %s a moment ago (remembered for "
                   "a second, or until invalidated)",
                   config_.name, static_cast<size_t>(want.range.addr), want.range.len,
                   AccessNames(want.need).text());
    return Step::kDone;
  }
  if (want.pages.len > config_.max_region_bytes) {
    *status = fail_too_large(want.range);
    return Step::kDone;
  }
  const RegionIndex pending = pending_covering_locked(want);
  if (pending == kNoRegion) return Step::kRegister;
  // Waiting for a registration that this very thread may have to make progress on would be for ever.
  const bool own = infos_[pending].starter != 0 && infos_[pending].starter == thread_mark();
  if (want.may_wait && !own && now_ns() < want.deadline_ns) {
    wait_for_pending_locked(want);
    return Step::kAgain;
  }
  want.saw_pending = true;
  *status = fail(Status::kNotReady, "domain %s: [%#zx, +%zu) is being registered", config_.name,
                 static_cast<size_t>(want.range.addr), want.range.len);
  return Step::kDone;
}

// Takes budget and a slot, and makes the registration known as pending.
Status Domain::claim_locked(Want& want, uint64_t kernel_pending, Plan* plan) {
  Reservation& mine = plan->reservation;
  // What was reserved in advance is short only after an invalidation spoiled a registration.
  if (want.prepaid != nullptr && want.prepaid->charge >= plan->charge &&
      want.prepaid->regions >= 1) {
    mine.charge = plan->charge;
    mine.regions = 1;
    want.prepaid->charge -= mine.charge;
    want.prepaid->regions -= mine.regions;
  } else if (is_beyond_need(want, *plan) && charged_ + kernel_pending + plan->charge > budget_) {
    // Under pressure what is registered beyond need is evicted before it is used.
    return Status::kNotReady;
  } else {
    const Status status = reserve_locked(want.range, plan->charge, 1, kernel_pending, &mine);
    if (status != Status::kOk) return status;
  }
  plan->region = allocate_locked();
  if (plan->region == kNoRegion) {
    give_back_locked(&mine);
    return fail(Status::kNotReady, "all %u region slots are in use by dead or held regions",
                slot_count_);
  }
  plan->vouched = vouched_.covers(plan->range);  // what joined in may not be
  plan->request_vouched = plan->vouched || vouched_.covers(want.pages);
  RegionInfo& info = infos_[plan->region];
  info = {};
  info.range = plan->range;
  info.access = plan->access;
  info.charge = plan->charge;
  info.state = RegionState::kPending;
  info.starter = want.asynchronous ? thread_mark() : 0;
  if (want.noted && plan->range != want.advice.range) streams_.note_cut(want.pages, plan->range);
  pending_.push(infos_, plan->region);
  return Status::kOk;
}

// Unpins the victims of a reservation before the pin that they pay for. kNotReady: the kernel still charges
// them, and there is no room beside.
Status Domain::pay_with_victims(Reservation* reservation) noexcept {
  if (reservation->regrown_budget != 0) {
    log_debug("domain %s: its budget grows back to %llu bytes", config_.name,
              static_cast<unsigned long long>(reservation->regrown_budget));
  }
  const bool kernel_keeps = unpin_retired(&reservation->victims, true);
  const uint64_t pending = kernel_keeps ? registrar_->pending_charge() : 0;
  if (!kernel_keeps && reservation->excess_charge == 0 && reservation->excess_regions == 0) {
    return Status::kOk;
  }
  MutexLock lock(mu_);
  charged_ -= reservation->excess_charge;
  regions_ -= reservation->excess_regions;
  reservation->excess_charge = 0;
  reservation->excess_regions = 0;
  if (charged_ + pending <= config_.budget_bytes) return Status::kOk;
  return fail(Status::kNotReady,
              "room was made, but the kernel still charges %llu bytes that were unpinned",
              static_cast<unsigned long long>(pending));
}

// Undoes claim_locked(): budget that was reserved for several goes back to that reservation.
void Domain::abandon_locked(const Want& want, const Plan& plan) {
  pending_.remove(infos_, plan.region);
  Reservation mine = plan.reservation;
  if (want.prepaid != nullptr) {
    want.prepaid->charge += mine.charge;
    want.prepaid->regions += mine.regions;
  } else {
    give_back_locked(&mine);
  }
  quarantine_locked(plan.region);
  registered_.notify_all();
}

Domain::Step Domain::prepare(Want& want, Plan* plan, Status* status, RegionIndex* held) noexcept {
  // Whoever will not register asks only once there is something that he may take.
  if ((want.effort != Effort::kHitOnly || want.must_ask) &&
      checked_regions_.load(std::memory_order_relaxed) != 0) {
    (void)become_quiet(want);
  }
  {
    MutexLock lock(mu_);
    const Step step = look_locked(want, status, held);
    if (step != Step::kRegister) return step;
    plan_locked(want, plan);
  }
  // The kernel and the registrar's own functions, so without the lock; then look again.
  keep_to_mapping(want, plan);
  plan->charge = registrar_->charge(plan->range);
  widen_to_huge_pages(want, plan);
  const uint64_t kernel_pending = registrar_->pending_charge();
  {
    MutexLock lock(mu_);
    const Step step = look_locked(want, status, held);
    if (step != Step::kRegister) return step;
    *status = claim_locked(want, kernel_pending, plan);
  }
  const bool claimed = *status == Status::kOk;
  plan->evicted = !plan->reservation.victims.empty();
  Status paid = pay_with_victims(&plan->reservation);
  bool covered = true;
  if (claimed && paid == Status::kOk) {
    covered = cover(want, plan);
    if (covered) return Step::kRegister;
    paid = Status::kNotReady;  // not so much: then exactly what was asked for
  }
  if (claimed) *status = paid;
  if (claimed || plan->stream) {
    MutexLock lock(mu_);
    if (claimed) abandon_locked(want, *plan);
    give_up_extension_locked(want, *plan, !covered);
  }
  if (plan->range == want.pages) return Step::kDone;
  want.exact = true;
  return Step::kAgain;
}

// The smaller regions that the new one makes superfluous get no new hits, and go when nobody holds them.
// False when one of them is the client's own: it must stay, and then the new one cannot enter the table.
bool Domain::bury_covered_locked(const Plan& plan) {
  bool room = true;
  for (uint32_t c = 0; c < 16; ++c) {
    if ((classes_.load(std::memory_order_relaxed) >> c & 1) == 0) continue;
    if (!includes(plan.access, static_cast<Access>(c))) continue;
    // By start, and from the same place again after each: ranges may overlap without containing each other.
    uintptr_t from = plan.range.addr;
    for (;;) {
      const RegionIndex r = tables_[c]->first_start(from, plan.range.last());
      if (r == kNoRegion || !plan.range.covers(infos_[r].range)) break;
      if (infos_[r].prepinned) {
        room = room && c != bits(plan.access);
        from = infos_[r].range.addr + 1;
        continue;
      }
      slot(r).unreached.store(0, std::memory_order_relaxed);  // the new one may reach it yet
      kill_locked(r);
      dead_.add(infos_, r);
      ++totals_.merges;
    }
  }
  dead_count_.store(static_cast<uint32_t>(dead_.size()), std::memory_order_relaxed);
  return room;
}

// Lets hits find the region; or not, when it may not be cached or something larger has come first.
void Domain::publish_locked(const Plan& plan, bool cacheable) {
  const RegionIndex r = plan.region;
  RegionSlot& s = slot(r);
  RegionInfo& info = infos_[r];
  s.len.store(plan.range.len, std::memory_order_relaxed);
  s.key.store(key_stride_ != 0 ? key_of(r) : nullptr, std::memory_order_relaxed);
  s.denied.store(~bits(plan.access), std::memory_order_relaxed);  // unknown bits too
  s.addr.store(plan.range.addr, std::memory_order_relaxed);
  const uint32_t c = bits(plan.access);
  s.unreached.store(0, std::memory_order_relaxed);
  const bool superfluous = find_locked(plan.range, plan.access) != kNoRegion;
  const bool room = tables_[c]->mapped() || tables_[c]->map(slot_count_);
  if (!cacheable || superfluous || !room || !bury_covered_locked(plan)) {
    info.state = RegionState::kDead;
    info.closed_epoch = epoch_;
    info.uncached = !cacheable;
    dead_.add(infos_, r);
    dead_count_.store(static_cast<uint32_t>(dead_.size()), std::memory_order_relaxed);
    return;
  }
  if (plan.stream) enter_extension_locked(plan);
  info.state = RegionState::kOpen;
  info.vouched = plan.vouched;
  info.checked = monitor_ != nullptr && !plan.vouched && plan.cover == HYDRANT_COVER_CHECKED;
  if (info.checked) checked_regions_.fetch_add(1, std::memory_order_relaxed);
  tables_[c]->insert(plan.range, r);
  classes_.fetch_or(1u << c, std::memory_order_release);
  info.listed = !info.prepinned;
  if (info.listed) policy_->insert(r, plan.range.len, plan.charge);
  s.tag.store(static_cast<uint32_t>(handle_), std::memory_order_relaxed);
  open_gate(s, plan.range.end(), info.checked);
}

Status Domain::finish_registration(const Want& want, const Plan& plan, Status status, bool* again,
                                   RegionIndex* held) noexcept {
  RegionQueue retired;
  const bool cacheable = status == Status::kOk && !plan.once && may_be_cached(plan);
  {
    MutexLock lock(mu_);
    if (status != Status::kOk) {
      ++totals_.pin_failures;
      // What failed may be memory that is not there any more: ask again about what is there now.
      *again = infos_[plan.region].poisoned;
      abandon_locked(want, plan);
      give_up_extension_locked(want, plan, status == Status::kRefused && !*again);
      return status;
    }
    RegionInfo& info = infos_[plan.region];
    pending_.remove(infos_, plan.region);
    ++totals_.pins;
    pinned_bytes_ += plan.range.len;
    if (info.poisoned) {
      // Invalidated while it was being registered: nobody may use it, and nobody does yet.
      ++totals_.retries;
      info.state = RegionState::kRetiring;
      retired.push(infos_, plan.region);
      *again = true;
    } else {
      publish_locked(plan, cacheable);
      if (held != nullptr) {
        take_locked(want.thread, plan.region);
        *held = plan.region;
      }
      drain_many_dead_locked(&retired);
    }
    registered_.notify_all();
  }
  if (want.thread != nullptr && !*again) ThreadCounters::add(want.thread->counters.misses);
  unpin_retired(&retired, false);
  return Status::kOk;
}

Status Domain::after_no_budget(Want& want, const Plan& plan, bool* again) noexcept {
  RegionQueue victims;
  uint64_t before = 0;
  uint64_t after = 0;
  const uint64_t pending = registrar_->pending_charge();
  {
    MutexLock lock(mu_);
    before = budget_;
    shrink_budget_locked(plan.charge, pending);
    after = budget_;
    drain_dead_locked(kNoBudgetDead, &victims);
    if (victims.empty() && !evict_locked(plan.charge, 1, &victims)) evict_locked(1, 1, &victims);
  }
  if (after != before) {
    log_debug("domain %s: the registrar has no budget for [%#zx, +%zu): %llu bytes instead of %llu",
              config_.name, static_cast<size_t>(plan.range.addr), plan.range.len,
              static_cast<unsigned long long>(after), static_cast<unsigned long long>(before));
  }
  const bool freed = !victims.empty();
  const bool kernel_keeps = unpin_retired(&victims, false);
  *again = (freed && !kernel_keeps && ++want.no_budget < kMostNoBudget) || plan.range != want.pages;
  want.exact = true;
  return Status::kNotReady;
}

// What the registrar refused may still be granted for less memory or for fewer rights.
Status Domain::after_failure(Want& want, const Plan& plan, Status status, bool* again) noexcept {
  if (status == Status::kNotReady) return after_no_budget(want, plan, again);
  if (status != Status::kRefused && status != Status::kResource) return status;
  if (plan.range != want.pages) {
    want.exact = true;
    *again = true;
    return status;
  }
  if (status != Status::kRefused) return status;
  MutexLock lock(mu_);
  refusals_.add(want.pages, plan.access, now_ns());
  if (plan.access != want.need) {
    want.plain = true;
    *again = true;
  }
  return status;
}

Status Domain::run_registration(Want& want, const Plan& plan, bool* again,
                                RegionIndex* held) noexcept {
  std::byte* key = key_stride_ != 0 ? key_of(plan.region) : nullptr;
  Status status = registrar_->pin(plan.range, plan.access, key);
  status = finish_registration(want, plan, status, again, held);
  return status == Status::kOk || *again ? status : after_failure(want, plan, status, again);
}

Status Domain::acquire(Want& want, const RegionSlot** out) noexcept {
  for (int spoiled = 0; spoiled < kMostSpoiled;) {
    Plan plan;
    Status status = Status::kOk;
    RegionIndex held = kNoRegion;
    bool again = false;
    const Step step = prepare(want, &plan, &status, &held);
    if (std::exchange(want.waited_long, false)) {
      log_warning("domain %s: still waiting for another thread's registration of %#zx+%zu",
                  config_.name, static_cast<size_t>(want.range.addr), want.range.len);
    }
    if (step == Step::kAgain) continue;
    if (step == Step::kRegister) status = run_registration(want, plan, &again, &held);
    if (again) {
      ++spoiled;
      continue;
    }
    if (status == Status::kOk) *out = &slot(held);
    return status;
  }
  return fail(Status::kNotReady, "%#zx+%zu was invalidated again and again while being registered",
              static_cast<size_t>(want.range.addr), want.range.len);
}

Status Domain::pin_one(Want& want, const RegionSlot** out) noexcept {
  if (want.thread != nullptr) {
    const RegionSlot* s = hold_without_lock(*want.thread, want);
    if (s != nullptr) {
      *out = s;
      return Status::kOk;
    }
    if (look_checked(want, out)) return Status::kOk;
  }
  const Status status = acquire(want, out);
  if (status == Status::kOk && want.thread != nullptr &&
      (*out)->checked_gate.load(std::memory_order_relaxed) == 0 &&
      (*out)->tag.load(std::memory_order_relaxed) != 0) {
    want.thread->remember(want.range.addr, *out, &slot(kNoRegion), config_.thread_table_bytes);
  }
  return status;
}

void Domain::count_outcome(ThreadDomain* thread, Status status) noexcept {
  if (thread == nullptr) return;
  if (status == Status::kNotReady) ThreadCounters::add(thread->counters.not_ready);
  if (status == Status::kRefused) ThreadCounters::add(thread->counters.refusals);
}

Status Domain::pin(MemoryRange range, Access need, Effort effort, const RegionSlot** out,
                   uint64_t deadline_ns) noexcept {
  Status status = check_range(range);
  if (status != Status::kOk) return status;
  Want want = make_want(range, need, effort, enter());
  want.deadline_ns = deadline_ns;
  const bool span = config_.mode == HYDRANT_MODE_PAGE && buckets_in(range) > 1;
  status = span ? pin_span(want, out) : pin_one(want, out);
  count_outcome(want.thread, status);
  if (status == Status::kNotReady && effort == Effort::kHitOnly) {
    return fail_plainly(status, "nothing that is pinned covers the range");
  }
  if (status == Status::kRefused && config_.mode == HYDRANT_MODE_PAGE) {
    return add_context(status, "asked for [%#zx, +%zu), whose buckets are pinned whole",
                       static_cast<size_t>(range.addr), range.len);
  }
  return status;
}

}  // namespace hydrant
