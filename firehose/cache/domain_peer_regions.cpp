// Begins and ends registrations that a peer makes for this process: steps 4 and 7 of "Tour: a put".
#include "firehose/cache/domain_peer_regions.hpp"

#include <algorithm>

namespace hydrant {

Status PeerRegions::begin(MemoryRange range, Access need, PeerPin* pin,
                          const RegionSlot** out) noexcept {
  pin->has_begun = pin->has_joined = false;
  Status status = miss_.check_range(range);
  if (status != Status::kOk) return status;
  PinRequest& request = pin->request;
  request = miss_.make_request(range, need, MissPolicy::kRegister);
  ThreadDomain* thread = request.thread;
  if (thread != nullptr && (*out = miss_.hold_shared(request)) != nullptr) {
    return Status::kOk;
  }
  request.may_wait = false;
  request.asynchronous = true;
  RegionIndex held = kNoRegion;
  auto step = MissPath::Step::kAgain;
  while (step == MissPath::Step::kAgain) {
    step = miss_.prepare(request, &pin->plan, nullptr, &status, &held);
  }
  request.thread = nullptr;  // another thread may end it
  if (step == MissPath::Step::kRegister) {
    pin->has_begun = true;
    return Status::kNotReady;
  }
  MissPath::count_outcome(thread, status);
  if (status == Status::kOk) {
    *out = &parts_.store.slot(held);
    if (thread != nullptr && (*out)->tag.load(std::memory_order_relaxed) != 0)
      parts_.threads.remember(*thread, range.addr, *out);
  }
  pin->has_joined = status == Status::kNotReady && request.saw_pending;
  return status;
}

Status PeerRegions::end(PeerPin& pin, Status status, const PeerGrant& grant,
                        const RegionSlot** out) noexcept {
  Plan& plan = pin.plan;
  pin.has_begun = false;
  if (status == Status::kOk) {
    const CachePhase lock(parts_);
    RegionInfo& info = parts_.store.infos(lock)[plan.region];
    parts_.budget.release(lock, {plan.charge - grant.charge, 0});
    info.charge = plan.charge = grant.charge;
    info.range = plan.range = grant.range;
    plan.once = plan.once || grant.once;
    plan.stream = false;
  } else if (status == Status::kRefused) {
    const CachePhase lock(parts_);
    parts_.planner.note_refused(lock, pin.request.pages, plan.access);
  }
  if (status == Status::kOk && parts_.traits.key_bytes != 0)
    std::copy_n(grant.key, parts_.traits.key_bytes, parts_.store.keys().of(plan.region));
  bool again = false;
  RegionIndex held = kNoRegion;
  status = miss_.finish(pin.request, plan, status, nullptr, &again, &held);
  if (status == Status::kOk && again)
    return fail(Status::kNotReady,
                "%s: the peer recalled [%#zx, +%zu) while it was being requested: try again",
                parts_.config.name, static_cast<size_t>(pin.request.range.addr),
                pin.request.range.len);
  if (status == Status::kOk) *out = &parts_.store.slot(held);
  return status;
}

void PeerRegions::set_lease(uint64_t bytes) noexcept {
  RegionQueue victims;
  {
    const CachePhase lock(parts_);
    Budget& budget = parts_.budget;
    budget.set_in_force(lock, bytes);
    if (budget.has_room(lock, 0)) return;
    parts_.retirement.drain(lock, SIZE_MAX, &victims);
    const uint64_t freed = share_of(parts_.store.infos(lock), victims).bytes;
    const uint64_t beyond = budget.charged(lock) - budget.in_force(lock);
    Budget::Share idle;
    if (freed < beyond) (void)parts_.evictor.evict(lock, {beyond - freed, 0}, &victims, &idle);
  }
  (void)parts_.unpinner.unpin(&victims, Unpinner::Charge::kReleased);
}

void PeerRegions::evict_unheld(uint64_t bytes) noexcept {
  RegionQueue victims;
  Budget::Share idle;
  bool enough = false;
  {
    const CachePhase lock(parts_);
    enough = parts_.evictor.evict(lock, {bytes, 1}, &victims, &idle);
  }
  (void)parts_.unpinner.unpin(&victims, Unpinner::Charge::kReleased);
  if (!enough) releases_.flush();
}

bool PeerRegions::has_pending_unpins() noexcept {
  const CachePhase lock(parts_);
  for (RegionIndex r = 1; r <= parts_.store.high(lock); ++r) {
    const RegionInfo& info = parts_.store.infos(lock)[r];
    if (info.state == RegionState::kDead || info.state == RegionState::kRetiring) return true;
    if (info.state == RegionState::kPending && info.poisoned) return true;
  }
  return false;
}

}  // namespace hydrant
