// Budget, victims, and the way from a shut region to a free slot.
#include "firehose/base/log.hpp"
#include "firehose/domain.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr size_t kBatch = 64;  // regions examined per fence, at most
constexpr uint64_t kRegrowEveryNs = 1'000'000'000;

}  // namespace

uint32_t Domain::holds_locked(RegionIndex region) const {
  // Requires that the region was shut before the last fence, or that an approximate answer will do.
  uint32_t sum = shared_counts_[region].load(std::memory_order_relaxed);
  for (const ThreadDomain* t = threads_; t != nullptr; t = t->next) {
    // Pairs with the release in drop_hold(): uses of the memory end before we unpin it.
    sum += t->counts[region].load(std::memory_order_acquire);
  }
  return sum;
}

void Domain::fence_locked() {
  fence::heavy();
  ++epoch_;
}

// Shuts the gate; true if it was open. Holds may be summed after the next fence.
bool Domain::shut_locked(RegionIndex region) {
  RegionSlot& s = slot(region);
  if (s.gate.load(std::memory_order_relaxed) == 0) return false;
  // seq_cst: one half of the protocol where fences are symmetric; a plain store otherwise would do.
  s.gate.store(0, std::memory_order_seq_cst);
  infos_[region].closed_epoch = epoch_;
  return true;
}

// A client's policy may name regions that are gone: they are passed over.
bool Domain::evictable_locked(RegionIndex region) const {
  return region != kNoRegion && region <= high_ && infos_[region].state == RegionState::kOpen &&
         !infos_[region].prepinned;
}

void Domain::watch_more_locked() {
  RegionIndex batch[kBatch];
  const size_t n = policy_->watch(batch, kBatch);
  for (size_t i = 0; i < n; ++i) {
    if (evictable_locked(batch[i])) shut_locked(batch[i]);
  }
}

// Drops what cannot be a victim before a fence is paid for it. The sums are approximate here: a region
// that is dropped was held a moment ago, which is a use.
size_t Domain::keep_likely_victims_locked(RegionIndex* batch, size_t n) {
  size_t kept = 0;
  for (size_t i = 0; i < n; ++i) {
    if (!evictable_locked(batch[i])) continue;
    if (holds_locked(batch[i]) == 0) {
      batch[kept++] = batch[i];
    } else {
      reopen_locked(batch[i]);
    }
  }
  return kept;
}

// Moves unheld regions from the policy to `chosen` until they are worth enough or none is left.
void Domain::choose_victims_locked(uint64_t bytes, uint32_t regions, RegionQueue* chosen,
                                   uint64_t* got) {
  RegionIndex batch[kBatch];
  size_t examined = 0;
  const size_t most = regions_ + kBatch;
  while ((*got < bytes || chosen->size() < regions) && examined < most) {
    size_t n = policy_->evict(batch, kBatch / 2);
    if (n == 0) return;
    examined += n;
    n = keep_likely_victims_locked(batch, n);
    if (n == 0) continue;
    // Those watched since before the last fence can be judged at once. If not even the first is, pay for a
    // fence, and let it serve as many others as the policy will have watched.
    size_t usable = 0;
    while (usable < n && slot(batch[usable]).gate.load(std::memory_order_relaxed) == 0 &&
           infos_[batch[usable]].closed_epoch != epoch_) {
      ++usable;
    }
    if (usable == 0) {
      watch_more_locked();
      for (size_t i = 0; i < n; ++i) shut_locked(batch[i]);
      fence_locked();
      usable = n;
    }
    for (size_t i = 0; i < usable && (*got < bytes || chosen->size() < regions); ++i) {
      const RegionIndex r = batch[i];
      if (!evictable_locked(r)) continue;  // named twice
      if (holds_locked(r) != 0) {
        reopen_locked(r);
        continue;
      }
      policy_->erase(r);
      infos_[r].state = RegionState::kRetiring;
      chosen->push(infos_, r);
      *got += infos_[r].charge;
    }
  }
}

bool Domain::evict_locked(uint64_t bytes, uint32_t regions, RegionQueue* victims) {
  RegionQueue chosen;
  uint64_t got = 0;
  choose_victims_locked(bytes, regions, &chosen, &got);
  const bool enough = got >= bytes && chosen.size() >= regions;
  while (!chosen.empty()) {
    const RegionIndex r = chosen.pop(infos_);
    if (enough) {
      tables_[bits(infos_[r].access)]->erase(infos_[r].range, r);
      retire_locked(r, victims);
      ++totals_.evictions;
    } else {
      // All or nothing: whoever cannot be served must not cost others their regions.
      infos_[r].state = RegionState::kOpen;
      policy_->insert(r, infos_[r].range.len, infos_[r].charge);
      slot(r).gate.store(infos_[r].range.last(), std::memory_order_release);
    }
  }
  return enough;
}

Status Domain::reserve_locked(uint64_t charge, uint32_t regions, uint64_t pending,
                              Reservation* out) {
  if (charge > config_.budget_bytes || regions > config_.max_regions) {
    return fail(
        Status::kResource,
        "pinning %llu bytes in %u regions is more than the whole budget of %llu bytes and %u "
        "regions; raise FIREHOSE_BUDGET or FIREHOSE_MAX_REGIONS, or copy",
        static_cast<unsigned long long>(charge), regions,
        static_cast<unsigned long long>(config_.budget_bytes), config_.max_regions);
  }
  if (budget_ < config_.budget_bytes) regrow_budget_locked(now_ns());
  // What is on its way back from the kernel is waited for, not evicted for.
  const uint64_t taken = charged_ + charge;
  const uint64_t short_bytes = taken > budget_ ? taken - budget_ : 0;
  if (short_bytes == 0 && taken + pending > budget_) {
    return fail(Status::kNotReady,
                "%llu bytes do not fit before the kernel gives back %llu bytes that were unpinned",
                static_cast<unsigned long long>(charge), static_cast<unsigned long long>(pending));
  }
  const uint32_t short_regions =
      regions_ + regions > config_.max_regions ? regions_ + regions - config_.max_regions : 0;
  if (short_bytes != 0 || short_regions != 0) {
    // Dead regions that lost their last holder come first: they are of no use to anybody.
    RegionQueue& victims = out->victims;
    drain_dead_locked(kBatch, &victims);
    uint64_t freed = 0;
    for (RegionIndex r = victims.front(); r != kNoRegion; r = infos_[r].next)
      freed += infos_[r].charge;
    const auto count = static_cast<uint32_t>(victims.size());
    const uint64_t more_bytes = short_bytes > freed ? short_bytes - freed : 0;
    const uint32_t more_regions = short_regions > count ? short_regions - count : 0;
    const bool enough =
        (more_bytes == 0 && more_regions == 0) || evict_locked(more_bytes, more_regions, &victims);
    freed = 0;
    for (RegionIndex r = victims.front(); r != kNoRegion; r = infos_[r].next)
      freed += infos_[r].charge;
    const auto freed_regions = static_cast<uint32_t>(victims.size());
    if (!enough) {
      out->excess_charge = freed;
      out->excess_regions = freed_regions;
      return fail(
          Status::kNotReady,
          "%llu bytes in %u regions do not fit now: %llu of %llu bytes and %u of %u regions are "
          "held or being registered, %llu bytes not yet given back by the kernel",
          static_cast<unsigned long long>(charge), regions,
          static_cast<unsigned long long>(charged_), static_cast<unsigned long long>(budget_),
          regions_, config_.max_regions, static_cast<unsigned long long>(pending));
    }
    // What the victims free pays for us first; the rest is free for others once it is unpinned.
    out->excess_charge = freed > charge ? freed - charge : 0;
    out->excess_regions = freed_regions > regions ? freed_regions - regions : 0;
    charged_ -= freed - out->excess_charge;
    regions_ -= freed_regions - out->excess_regions;
  }
  out->charge = charge;
  out->regions = regions;
  charged_ += charge;
  regions_ += regions;
  return Status::kOk;
}

void Domain::give_back_locked(Reservation* reservation) {
  charged_ -= reservation->charge;
  regions_ -= reservation->regions;
  reservation->charge = 0;
  reservation->regions = 0;
}

RegionIndex Domain::allocate_locked() {
  RegionIndex found = kNoRegion;
  const RegionIndex oldest = quarantine_.front();
  if (oldest != kNoRegion && infos_[oldest].closed_epoch != epoch_ && holds_locked(oldest) == 0) {
    found = quarantine_.pop(infos_);
  } else if (high_ + 1 < slot_count_) {
    found = ++high_;
    slot(found).index = found;
    slot(found).addr.store(kBlankAddr, std::memory_order_relaxed);
  } else {
    fence_locked();
    for (size_t tries = quarantine_.size(); tries > 0 && found == kNoRegion; --tries) {
      const RegionIndex r = quarantine_.pop(infos_);
      if (holds_locked(r) == 0) {
        found = r;
      } else {
        quarantine_.push(infos_, r);  // somebody is between posting and checking
      }
    }
  }
  return found;
}

void Domain::quarantine_locked(RegionIndex region) {
  infos_[region].state = RegionState::kQuarantine;
  infos_[region].closed_epoch = epoch_;
  quarantine_.push(infos_, region);
}

// Requires: shut before the last fence, and nobody held it since; in no table and no policy.
void Domain::retire_locked(RegionIndex region, RegionQueue* retired) {
  RegionSlot& s = slot(region);
  s.tag.store(0, std::memory_order_relaxed);
  // Blank before the fence that ends the quarantine: a late holder then sees neither old nor new bounds.
  s.addr.store(kBlankAddr, std::memory_order_release);
  infos_[region].state = RegionState::kRetiring;
  retired->push(infos_, region);
}

void Domain::kill_locked(RegionIndex region, RegionQueue* killed) {
  RegionInfo& info = infos_[region];
  if (!info.prepinned) policy_->erase(region);
  tables_[bits(info.access)]->erase(info.range, region);
  shut_locked(region);
  slot(region).tag.store(0, std::memory_order_release);
  info.state = RegionState::kDead;
  killed->push(infos_, region);
}

void Domain::settle_locked(RegionQueue* list, RegionQueue* retired) {
  if (list->empty()) return;
  bool fenced = true;
  for (RegionIndex r = list->front(); r != kNoRegion; r = infos_[r].next) {
    fenced = fenced && infos_[r].closed_epoch != epoch_;
  }
  if (!fenced) fence_locked();
  while (!list->empty()) {
    const RegionIndex r = list->pop(infos_);
    if (holds_locked(r) == 0) {
      retire_locked(r, retired);
    } else {
      dead_.push(infos_, r);
    }
  }
  dead_count_.store(static_cast<uint32_t>(dead_.size()), std::memory_order_relaxed);
}

void Domain::drain_dead_locked(size_t most, RegionQueue* retired) {
  if (dead_.empty()) return;
  RegionQueue examine;
  for (size_t n = std::min(most, dead_.size()); n > 0; --n) {
    examine.push(infos_, dead_.pop(infos_));
  }
  settle_locked(&examine, retired);
}

// Without the lock: nobody else touches the infos and keys of retiring regions.
UnpinResult Domain::unpin_all_of(const RegionQueue& retired, uint64_t* calls) noexcept {
  constexpr size_t kCall = 64;
  MemoryRange ranges[kCall];
  const std::byte* keys[kCall];
  auto worst = UnpinResult::kDone;
  RegionIndex next = retired.front();
  while (next != kNoRegion) {
    size_t n = 0;
    for (; next != kNoRegion && n < kCall; next = infos_[next].next) {
      if (infos_[next].prepinned) continue;
      ranges[n] = infos_[next].range;
      keys[n++] = key_stride_ != 0 ? key_of(next) : nullptr;
    }
    if (n == 0) continue;
    *calls += n;
    worst = std::max(worst, n == 1 ? registrar_->unpin(ranges[0], keys[0])
                                   : registrar_->unpin_many(ranges, keys, n));
  }
  return worst;
}

bool Domain::unpin_retired(RegionQueue* retired, bool charge_is_reserved) noexcept {
  if (retired->empty()) return false;
  uint64_t unpinned = 0;
  const UnpinResult worst = unpin_all_of(*retired, &unpinned);
  if (worst == UnpinResult::kBroken) {
    static RateLimit limit(RateLimit::kSecond);
    log_warning(limit, "domain %s: the registrar could not unpin: %s", config_.name,
                last_error_text());
  }
  MutexLock lock(mu_);
  totals_.unpins += unpinned;
  while (!retired->empty()) {
    const RegionIndex r = retired->pop(infos_);
    pinned_bytes_ -= infos_[r].range.len;
    if (!charge_is_reserved) {
      charged_ -= infos_[r].charge;
      --regions_;
    }
    quarantine_locked(r);
  }
  return worst == UnpinResult::kPending;
}

// The kernel allows less than we thought: what is charged now is known to fit.
void Domain::shrink_budget_locked() {
  const uint64_t least = config_.budget_bytes / 16;
  budget_ = std::max(std::min(budget_, charged_), least);
  shrunk_at_ns_ = now_ns();
}

void Domain::regrow_budget_locked(uint64_t now) {
  if (now - shrunk_at_ns_ < kRegrowEveryNs) return;
  shrunk_at_ns_ = now;
  budget_ = std::min(config_.budget_bytes, budget_ + std::max<uint64_t>(budget_ / 4, 4096));
}

}  // namespace hydrant
