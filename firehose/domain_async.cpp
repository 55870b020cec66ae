// Deferred pins: "not now" kept in a queue and tried again by poll(); and registrations that the registrar
// completes later, from a thread of its own.
#include "firehose/base/log.hpp"
#include "firehose/domain.hpp"
#include "firehose/domain_registry.hpp"
#include "firehose/pin_handle.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace hydrant {

// A registration under way in an asynchronous registrar. Shared by the registrar, which completes it, and the
// deferred pin that started it, which may be cancelled first: whoever comes last deletes it.
struct Domain::LateRegistration {
  Domain* domain;
  Want want;
  Plan plan;
  Status status = Status::kOk;    // written before `left` is
  RegionIndex held = kNoRegion;   // written before `left`: a hold for the deferred pin
  std::atomic<bool> left{false};  // one of the two is through with it

  // True for the second of the two.
  bool leave() noexcept { return left.exchange(true, std::memory_order_acq_rel); }
};

struct Domain::DeferredPin {
  DeferredPin* next;
  MemoryRange range;
  Access need;
  hydrant_pinned_fn done;
  void* context;
  LateRegistration* late;  // null: none started
};

void Domain::registered_later(void* context, Status status, const std::byte* key) {
  auto* late = static_cast<LateRegistration*>(context);
  Domain* domain = late->domain;
  if (status == Status::kOk && domain->key_stride_ != 0) {
    std::copy_n(key, domain->registrar_->traits().key_bytes, domain->key_of(late->plan.region));
  }
  bool again = false;
  late->want.thread = nullptr;
  late->status = domain->finish_registration(late->want, late->plan, status, &again, &late->held);
  if (again) late->status = Status::kNotReady;
  if (late->leave()) domain->forget(late);
  domain->async_running_.fetch_sub(1, std::memory_order_release);
}

// The pin was cancelled: nobody will release the hold that came with the registration.
void Domain::forget(LateRegistration* late) noexcept {
  if (late->held != kNoRegion) (void)release(&slot(late->held));
  delete late;
}

void Domain::forget_late(DeferredPin& pin) noexcept {
  if (pin.late != nullptr && pin.late->leave()) forget(pin.late);
  pin.late = nullptr;
}

// Was something tried whose failure does not answer the request? Then the synchronous way goes down the
// ladder: exact range, fewer rights, eviction.
bool Domain::may_be_granted_less(const Want& want, const Plan& plan, Status status) noexcept {
  if (status == Status::kNotReady) return true;
  return (status == Status::kRefused || status == Status::kResource) &&
         (plan.range != want.pages || plan.access != want.need);
}

// Starts the registration that a deferred pin needs, or finds that it needs none.
Status Domain::start_late(DeferredPin& pin, const Want& want, const RegionSlot** out) noexcept {
  auto* late = new (std::nothrow) LateRegistration{this, want, {}};
  if (late == nullptr) return fail(Status::kResource, "no memory for a registration");
  Status status = Status::kOk;
  RegionIndex held = kNoRegion;
  Step step = Step::kAgain;
  while (step == Step::kAgain) step = prepare(late->want, &late->plan, &status, &held);
  if (step == Step::kDone) {
    if (status == Status::kOk) *out = &slot(held);
    delete late;
    return status;
  }
  pin.late = late;
  async_running_.fetch_add(1, std::memory_order_relaxed);
  const Plan plan = late->plan;
  std::byte* key = key_stride_ != 0 ? key_of(plan.region) : nullptr;
  // The registrar may complete on another thread before this call returns.
  status = registrar_->pin_async(plan.range, plan.access, key, &registered_later, late);
  if (status == Status::kNotReady) return status;
  // Done at once, or failed at once: it will not be completed.
  async_running_.fetch_sub(1, std::memory_order_release);
  pin.late = nullptr;
  bool again = false;
  status = finish_registration(late->want, plan, status, &again, &held);
  delete late;
  if (again) return fail(Status::kNotReady, "invalidated while it was being registered");
  if (status == Status::kOk) *out = &slot(held);
  return may_be_granted_less(want, plan, status) ? Status::kNotReady : status;
}

// One try that waits for nobody.
Status Domain::try_deferred(DeferredPin& pin, Effort effort, const RegionSlot** out) noexcept {
  Want want = make_want(pin.range, pin.need, effort, enter());
  want.may_wait = false;
  if (config_.mode == HYDRANT_MODE_PAGE && buckets_in(pin.range) > 1) return pin_span(want, out);
  if (!registrar_->traits().asynchronous) return pin_one(want, out);
  if (pin.late != nullptr) {
    if (!pin.late->left.load(std::memory_order_acquire)) return Status::kNotReady;
    const Status status = pin.late->status;
    const Plan plan = pin.late->plan;
    const RegionIndex held = std::exchange(pin.late->held, kNoRegion);
    forget_late(pin);
    if (held != kNoRegion) {
      *out = &slot(held);
      return Status::kOk;
    }
    // (With kHitOnly: the next poll begins again.)
    if (may_be_granted_less(want, plan, status)) return pin_one(want, out);
    return fail(status, "the registrar completed with an error");
  }
  if (want.thread != nullptr && (*out = hold_without_lock(*want.thread, want)) != nullptr) {
    return Status::kOk;
  }
  if (effort == Effort::kHitOnly) return pin_one(want, out);
  want.asynchronous = true;
  const Status status = start_late(pin, want, out);
  if (status != Status::kNotReady || pin.late != nullptr) return status;
  want.asynchronous = false;
  return pin_one(want, out);
}

Status Domain::pin_async(MemoryRange range, Access need, hydrant_pinned_fn done,
                         void* context) noexcept {
  Status status = check_range(range);
  if (status != Status::kOk) return status;
  auto* pin = new (std::nothrow) DeferredPin{nullptr, range, need, done, context, nullptr};
  if (pin == nullptr) return fail(Status::kResource, "no memory for a deferred pin");
  const RegionSlot* held = nullptr;
  status = try_deferred(*pin, Effort::kRegister, &held);
  if (status != Status::kNotReady) {
    delete pin;
    if (status == Status::kOk) done(context, make_pin(*this, held));
    return status;
  }
  MutexLock lock(deferred_mu_);
  *deferred_tail_ = pin;
  deferred_tail_ = &pin->next;
  deferred_count_.fetch_add(1, std::memory_order_relaxed);
  return Status::kOk;
}

// Tries every deferred pin once, oldest first. Callbacks run without a lock and may defer more.
int Domain::run_deferred(Effort effort, uint64_t deadline_ns) noexcept {
  DeferredPin* list = nullptr;
  {
    MutexLock lock(deferred_mu_);
    list = deferred_;
    deferred_ = nullptr;
    deferred_tail_ = &deferred_;
  }
  int ran = 0;
  DeferredPin* again = nullptr;
  DeferredPin** again_tail = &again;
  while (list != nullptr) {
    DeferredPin* pin = list;
    list = pin->next;
    pin->next = nullptr;
    const RegionSlot* held = nullptr;
    const bool late = deadline_ns != UINT64_MAX && now_ns() >= deadline_ns;
    const Status status = late ? Status::kNotReady : try_deferred(*pin, effort, &held);
    if (status == Status::kNotReady) {
      *again_tail = pin;
      again_tail = &pin->next;
      continue;
    }
    deferred_count_.fetch_sub(1, std::memory_order_relaxed);
    pin->done(pin->context, status == Status::kOk ? make_pin(*this, held) : failed_pin(status));
    delete pin;
    ++ran;
  }
  if (again != nullptr) {
    // Before those that came meanwhile: first come, first served.
    MutexLock lock(deferred_mu_);
    *again_tail = deferred_;
    if (deferred_ == nullptr) deferred_tail_ = again_tail;
    deferred_ = again;
  }
  return ran;
}

void Domain::deregister_some_dead() noexcept {
  if (dead_count_.load(std::memory_order_relaxed) == 0) return;
  RegionQueue retired;
  {
    MutexLock lock(mu_);
    drain_dead_locked(64, &retired);
  }
  unpin_retired(&retired, false);
}

int Domain::poll() noexcept {
  deregister_some_dead();
  if (deferred_count_.load(std::memory_order_relaxed) == 0) return 0;
  return run_deferred(Effort::kRegister, UINT64_MAX);
}

// What a thread does while it waits until its deadline: the registrations of other people's deferred
// pins, which nothing bounds, are left to poll().
void Domain::poll_briefly(uint64_t deadline_ns) noexcept {
  deregister_some_dead();
  if (deferred_count_.load(std::memory_order_relaxed) == 0) return;
  (void)run_deferred(Effort::kHitOnly, deadline_ns);
}

void Domain::cancel_deferred() noexcept {
  for (;;) {
    DeferredPin* pin = nullptr;
    {
      MutexLock lock(deferred_mu_);
      pin = deferred_;
      if (pin == nullptr) break;
      deferred_ = pin->next;
      if (deferred_ == nullptr) deferred_tail_ = &deferred_;
    }
    deferred_count_.fetch_sub(1, std::memory_order_relaxed);
    forget_late(*pin);
    pin->done(pin->context, failed_pin(fail_plainly(
                                Status::kNotInit, "the domain ended before the pin's turn came")));
    delete pin;
  }
  // The registrar promised to complete each; without that their memory may not go away.
  const uint64_t warn_at = now_ns() + config_.wait_warn_ns;
  bool warned = false;
  while (async_running_.load(std::memory_order_acquire) != 0) {
    timespec ts{0, 100'000};
    nanosleep(&ts, nullptr);
    if (warned || now_ns() < warn_at) continue;
    warned = true;
    log_warning("domain %s ends, but its registrar %s has not completed %u registrations",
                config_.name, registrar_->traits().name,
                async_running_.load(std::memory_order_relaxed));
  }
}

}  // namespace hydrant
