// Keeps pins that have to wait for budget, and tries them again when the client polls. Each attempt is a miss
// that waits for nothing.
#include "firehose/cache/deferred_pins.hpp"

#include "firehose/base/cancellation.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"
#include "firehose/pin/failure_texts.hpp"
#include "firehose/pin/pin_handle.hpp"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

namespace hydrant {

// A registration under way in an asynchronous registrar. Shared by the registrar, which completes it, and
// the deferred pin that started it, which may be cancelled first: the last of the two deletes it.
struct AsyncRegistration {
  DeferredPins* owner;
  PinRequest request;
  Plan plan;
  Status status = Status::kOk;    // written before `left` is
  RegionIndex held = kNoRegion;   // written before `left`: a hold for the deferred pin
  std::atomic<bool> left{false};  // one of the two has finished with it

  // True for the second of the two.
  bool leave() noexcept { return left.exchange(true, std::memory_order_acq_rel); }
};

namespace {

// A deferred pin, listed as a call that has begun until it completes.
struct CountedPin : DeferredPin {
  std::optional<BegunPin> begun;
};

CountedPin* counted(DeferredPin* pin) noexcept { return static_cast<CountedPin*>(pin); }

// True if an attempt for less may still succeed: then the synchronous path tries the exact range, fewer
// rights, and an eviction.
bool may_be_granted_less(const PinRequest& request, const Plan& plan, Status status) noexcept {
  if (status == Status::kNotReady) return true;
  return (status == Status::kRefused || status == Status::kResource) &&
         (plan.range != request.pages || plan.access != request.need);
}

}  // namespace

// Runs in the thread in which the registrar completes the registration.
void DeferredPins::on_async_registered(void* context, Status status, const std::byte* key) {
  const CancellationDisabled guard;
  auto* async = static_cast<AsyncRegistration*>(context);
  DeferredPins* self = async->owner;
  CacheParts& parts = self->parts_;
  if (status == Status::kOk && parts.traits.key_bytes != 0) {
    std::copy_n(key, parts.traits.key_bytes, parts.store.keys().of(async->plan.region));
  }
  bool again = false;
  async->request.thread = nullptr;
  async->status =
      self->miss_.finish(async->request, async->plan, status, nullptr, &again, &async->held);
  if (again) async->status = Status::kNotReady;
  if (async->leave()) self->forget(async);
  self->under_way_.fetch_sub(1, std::memory_order_release);
}

// The pin was cancelled: the hold that came with the registration is released here.
void DeferredPins::forget(AsyncRegistration* async) noexcept {
  if (async->held != kNoRegion) {
    (void)releases_.release(&parts_.store.slot(async->held), parts_.threads.current_thread_state());
  }
  delete async;
}

void DeferredPins::forget_async(DeferredPin& pin) noexcept {
  if (pin.async != nullptr && pin.async->leave()) forget(pin.async);
  pin.async = nullptr;
}

// Starts the registration that a deferred pin needs, or finds that it needs none.
Status DeferredPins::start_async(DeferredPin& pin, PinRequest& request,
                                 const RegionSlot** out) noexcept {
  auto* async = new (std::nothrow) AsyncRegistration{this, request, {}};
  if (async == nullptr) return fail_no_memory(parts_.config.name, request.range, "a registration");
  Status status = Status::kOk;
  RegionIndex held = kNoRegion;
  auto step = MissPath::Step::kAgain;
  while (step == MissPath::Step::kAgain) {
    step = miss_.prepare(async->request, &async->plan, nullptr, &status, &held);
  }
  request.admission = async->request.admission;
  if (step == MissPath::Step::kDone) {
    if (status == Status::kOk) *out = &parts_.store.slot(held);
    delete async;
    return status;
  }
  pin.async = async;
  under_way_.fetch_add(1, std::memory_order_relaxed);
  const Plan plan = async->plan;
  // The registrar may complete on another thread before this call returns.
  status = parts_.registrar->pin_async(plan.range, plan.access, parts_.store.keys().of(plan.region),
                                       &on_async_registered, async);
  if (status == Status::kNotReady) return status;
  // The registrar has finished at once: there will be no completion.
  under_way_.fetch_sub(1, std::memory_order_release);
  pin.async = nullptr;
  bool again = false;
  status = miss_.finish(async->request, plan, status, nullptr, &again, &held);
  delete async;
  if (again) return parts_.texts.invalidated(request.range, 1);
  if (status == Status::kOk) *out = &parts_.store.slot(held);
  return may_be_granted_less(request, plan, status) ? Status::kNotReady : status;
}

// Finishes a registration that was started. kNotReady until it has completed.
Status DeferredPins::finish_async(DeferredPin& pin, PinRequest& request,
                                  const RegionSlot** out) noexcept {
  if (!pin.async->left.load(std::memory_order_acquire)) return Status::kNotReady;
  const Status status = pin.async->status;
  const Plan plan = pin.async->plan;
  const RegionIndex held = std::exchange(pin.async->held, kNoRegion);
  forget_async(pin);
  if (held != kNoRegion) {
    *out = &parts_.store.slot(held);
    return Status::kOk;
  }
  // With kHitOnly this registers no memory: the next poll begins again.
  if (may_be_granted_less(request, plan, status)) return miss_.pin(request, out);
  return fail(status, "domain %s: registrar %s completed the pin of [%#zx, +%zu) with %s: %s",
              parts_.config.name, parts_.traits.name, static_cast<size_t>(pin.range.addr),
              pin.range.len, status_name(status), status_description(status));
}

// Makes one attempt that waits for no other thread.
Status DeferredPins::try_once(DeferredPin& pin, MissPolicy policy,
                              const RegionSlot** out) noexcept {
  PinRequest request = miss_.make_request(pin.range, pin.need, policy);
  request.may_wait = false;
  request.admission = pin.admission;
  const Status status = attempt(pin, request, out);
  pin.admission = request.admission;
  return status;
}

Status DeferredPins::attempt(DeferredPin& pin, PinRequest& request,
                             const RegionSlot** out) noexcept {
  if (spans_.needs_span(pin.range)) return spans_.pin(request, out);
  if (!parts_.traits.asynchronous) return miss_.pin(request, out);
  if (pin.async != nullptr) return finish_async(pin, request, out);
  if (request.thread != nullptr && (*out = miss_.hold_without_lock(request)) != nullptr) {
    return Status::kOk;
  }
  if (request.policy == MissPolicy::kHitOnly) return miss_.pin(request, out);
  request.asynchronous = true;
  const Status status = start_async(pin, request, out);
  if (status != Status::kNotReady || pin.async != nullptr) return status;
  request.asynchronous = false;
  return miss_.pin(request, out);
}

Status DeferredPins::pin(MemoryRange range, Access need, hydrant_pinned_fn done,
                         void* context) noexcept {
  auto* pin = new (std::nothrow) CountedPin{{nullptr, range, need, done, context, nullptr}, {}};
  if (pin == nullptr) return fail_no_memory(parts_.config.name, range, "a deferred pin");
  pin->begun.emplace(parts_, range);
  const RegionSlot* held = nullptr;
  const Status status = try_once(*pin, MissPolicy::kRegister, &held);
  if (status != Status::kNotReady) {
    delete pin;
    if (status == Status::kOk) done(context, make_pin(held));
    return status;
  }
  queue_.push(pin);
  return Status::kOk;
}

// Callbacks run without a lock and may defer more.
int DeferredPins::run(MissPolicy policy, uint64_t deadline_ns) noexcept {
  DeferredList pins;
  DeferredList again;
  queue_.take_all(&pins);
  int ran = 0;
  while (DeferredPin* pin = pins.pop()) {
    const RegionSlot* held = nullptr;
    const bool late = deadline_ns != UINT64_MAX && now_ns() >= deadline_ns;
    const Status status = late ? Status::kNotReady : try_once(*pin, policy, &held);
    if (status == Status::kNotReady) {
      again.push(pin);
      continue;
    }
    queue_.finish();
    counted(pin)->begun.reset();  // the callback may wait until nothing of the range is held
    pin->done(pin->context, status == Status::kOk ? make_pin(held) : failed_pin(status));
    delete counted(pin);
    ++ran;
  }
  queue_.requeue(&again);
  return ran;
}

void DeferredPins::cancel() noexcept {
  while (DeferredPin* pin = queue_.pop()) {
    queue_.finish();
    forget_async(*pin);
    pin->done(pin->context,
              failed_pin(fail_literal(Status::kNotInit,
                                      "the domain ended before the deferred pin completed")));
    delete counted(pin);
  }
  // The registrar must complete each of them; until then the domain may not be freed.
  const uint64_t warn_at = now_ns() + parts_.config.wait_warn_ns;
  bool warned = false;
  while (under_way_.load(std::memory_order_acquire) != 0) {
    uncancelled::sleep_ns(100'000);
    if (warned || now_ns() < warn_at) continue;
    warned = true;
    log_warning("domain %s ends, but its registrar %s has not completed %u registrations",
                parts_.config.name, parts_.traits.name, under_way_.load(std::memory_order_relaxed));
  }
}

void DeferredPins::reset_in_child() noexcept {
  queue_.reset_in_child();
  under_way_.store(0, std::memory_order_relaxed);
}

}  // namespace hydrant
