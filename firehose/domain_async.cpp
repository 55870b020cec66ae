// Deferred pins: "not now" kept in a queue and tried again by poll(); and registrations that the registrar
// completes later, from a thread of its own.
#include <algorithm>
#include <new>

#include "firehose/base/log.hpp"
#include "firehose/domain.hpp"
#include "firehose/domain_registry.hpp"
#include "firehose/pin_handle.hpp"

namespace hydrant {

struct Domain::DeferredPin {
  DeferredPin* next;
  MemoryRange range;
  Access need;
  hydrant_pinned_fn done;
  void* context;
  bool started;  // an asynchronous registration was tried: its failure is found out synchronously
};

// A registration under way in an asynchronous registrar.
struct Domain::LateRegistration {
  Domain* domain;
  Want want;
  Plan plan;
};

void Domain::registered_later(void* context, Status status, const std::byte* key) {
  std::unique_ptr<LateRegistration> late(static_cast<LateRegistration*>(context));
  Domain* domain = late->domain;
  if (status == Status::kOk && domain->key_stride_ != 0) {
    std::copy_n(key, domain->registrar_->traits().key_bytes, domain->key_of(late->plan.region));
  }
  bool again = false;
  late->want.thread = nullptr;
  // Nobody holds it yet: the deferred request finds it at the next poll.
  (void)domain->finish_registration(late->want, late->plan, status, &again, nullptr);
  domain->async_running_.fetch_sub(1, std::memory_order_release);
}

// One try that waits for nobody.
Status Domain::try_deferred(DeferredPin& pin, const RegionSlot** out) noexcept {
  ThreadDomain* thread = enter();
  if (config_.mode == HYDRANT_MODE_PAGE && buckets_in(pin.range) > 1) {
    return pin_span(pin.range, pin.need, Effort::kRegister, out);
  }
  Want want = make_want(pin.range, pin.need, Effort::kRegister, thread);
  want.may_wait = false;
  if (!registrar_->traits().asynchronous || pin.started) return pin_one(want, out);

  if (thread != nullptr && (*out = hold_without_lock(*thread, want)) != nullptr) return Status::kOk;
  auto* late = new (std::nothrow) LateRegistration{this, want, {}};
  if (late == nullptr) return pin_one(want, out);
  Status status = Status::kOk;
  RegionIndex held = kNoRegion;
  Step step = Step::kAgain;
  while (step == Step::kAgain) step = prepare(late->want, &late->plan, &status, &held);
  if (step == Step::kDone) {
    if (status == Status::kOk) *out = &slot(held);
    delete late;
    return status;
  }
  pin.started = true;
  async_running_.fetch_add(1, std::memory_order_relaxed);
  const Plan plan = late->plan;
  std::byte* key = key_stride_ != 0 ? key_of(plan.region) : nullptr;
  // From here on `late` may be gone: the registrar may complete on another thread at once.
  status = registrar_->pin_async(plan.range, plan.access, key, &registered_later, late);
  if (status == Status::kNotReady) return status;
  async_running_.fetch_sub(1, std::memory_order_release);
  bool again = false;
  status = finish_registration(late->want, plan, status, &again, &held);
  delete late;
  if (status == Status::kOk && !again) {
    *out = &slot(held);
    return status;
  }
  return pin_one(want, out);
}

Status Domain::pin_async(MemoryRange range, Access need, hydrant_pinned_fn done,
                         void* context) noexcept {
  Status status = check_range(range);
  if (status != Status::kOk) return status;
  auto* pin = new (std::nothrow) DeferredPin{nullptr, range, need, done, context, false};
  if (pin == nullptr) return fail(Status::kResource, "no memory for a deferred pin");
  const RegionSlot* held = nullptr;
  status = try_deferred(*pin, &held);
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
int Domain::run_deferred() noexcept {
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
    const Status status = try_deferred(*pin, &held);
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

int Domain::poll() noexcept {
  if (dead_count_.load(std::memory_order_relaxed) != 0) {
    RegionQueue retired;
    {
      MutexLock lock(mu_);
      drain_dead_locked(64, &retired);
    }
    unpin_retired(&retired, false);
  }
  return deferred_count_.load(std::memory_order_relaxed) != 0 ? run_deferred() : 0;
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
    pin->done(pin->context, failed_pin(Status::kNotInit));
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
