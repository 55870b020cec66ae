// A domain over memory of another process: registrations are asked for, and end when the answer comes; the
// budget is what the other side lends. Everything else, hits above all, is as for memory of this process.
#include "firehose/domain.hpp"
#include "firehose/gate.hpp"

#include <algorithm>

namespace hydrant {

Status Domain::begin_distant(MemoryRange range, Access need, Distant* pin,
                             const RegionSlot** out) noexcept {
  pin->begun_ = pin->joins_ = false;
  Status status = check_range(range);
  if (status != Status::kOk) return status;
  ThreadDomain* thread = enter();
  Want& want = pin->want_;
  want = make_want(range, need, Effort::kRegister, thread);
  if (thread != nullptr && (*out = hold_without_lock(*thread, want)) != nullptr) return Status::kOk;
  want.may_wait = false;
  want.asynchronous = true;
  RegionIndex held = kNoRegion;
  Step step = Step::kAgain;
  while (step == Step::kAgain) step = prepare(want, &pin->plan_, &status, &held);
  want.thread = nullptr;  // another one may end it
  if (step == Step::kRegister) {
    pin->begun_ = true;
    return Status::kNotReady;
  }
  count_outcome(thread, status);
  if (status == Status::kOk) {
    *out = &slot(held);
    if (thread != nullptr && (*out)->tag.load(std::memory_order_relaxed) != 0)
      thread->remember(range.addr, *out, &slot(kNoRegion), config_.thread_table_bytes);
  }
  pin->joins_ = status == Status::kNotReady && want.saw_pending;
  return status;
}

Status Domain::end_distant(Distant& pin, Status status, const Grant& grant,
                           const RegionSlot** out) noexcept {
  Plan& plan = pin.plan_;
  pin.begun_ = false;
  if (status == Status::kOk) {
    MutexLock lock(mu_);
    RegionInfo& info = infos_[plan.region];
    charged_ -= plan.charge - grant.charge;
    info.charge = plan.charge = grant.charge;
    info.range = plan.range = grant.range;
    plan.once = grant.once;
    plan.stream = false;
  } else if (status == Status::kRefused) {
    MutexLock lock(mu_);
    refusals_.add(pin.want_.pages, plan.access, now_ns());
  }
  if (status == Status::kOk && key_stride_ != 0)
    std::copy_n(grant.key, registrar_->traits().key_bytes, key_of(plan.region));
  bool again = false;
  RegionIndex held = kNoRegion;
  status = finish_registration(pin.want_, plan, status, &again, &held);
  if (status == Status::kOk && again)
    return fail_plainly(Status::kNotReady, "the peer took it back while it was being asked for");
  if (status == Status::kOk) *out = &slot(held);
  return status;
}

void Domain::set_lease(uint64_t bytes) noexcept {
  RegionQueue victims;
  {
    MutexLock lock(mu_);
    budget_ = std::min(bytes, config_.budget_bytes);
    if (charged_ <= budget_) return;
    drain_dead_locked(dead_.size(), &victims);
    uint64_t freed = 0;
    for (RegionIndex r = victims.front(); r != kNoRegion; r = infos_[r].next)
      freed += infos_[r].charge;
    const uint64_t beyond = charged_ - budget_;
    if (freed < beyond) (void)evict_locked(beyond - freed, 0, &victims);
  }
  unpin_retired(&victims, false);
}

void Domain::give_up(uint64_t bytes) noexcept {
  RegionQueue victims;
  bool enough = false;
  {
    MutexLock lock(mu_);
    enough = evict_locked(bytes, 1, &victims);
  }
  unpin_retired(&victims, false);
  if (!enough) flush();
}

bool Domain::is_ending() noexcept {
  MutexLock lock(mu_);
  for (RegionIndex r = 1; r <= high_; ++r) {
    const RegionInfo& info = infos_[r];
    if (info.state == RegionState::kDead || info.state == RegionState::kRetiring) return true;
    if (info.state == RegionState::kPending && info.poisoned) return true;
  }
  return false;
}

}  // namespace hydrant
