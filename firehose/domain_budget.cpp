// Budget, victims, and the way from a shut region to a free slot.
#include "firehose/base/log.hpp"
#include "firehose/domain.hpp"
#include "firehose/gate.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr size_t kBatch = 64;      // regions examined per fence, at most
constexpr size_t kFirstBatch = 4;  // asked of the policy at first: mostly one is enough
// Dead regions that are worth a fence: so many, or so much of the budget, or so many bytes.
constexpr size_t kLazyDead = 32;
constexpr uint64_t kLazyDeadShare = 8;
constexpr uint64_t kLazyDeadBytes = uint64_t{64} << 20;
constexpr uint64_t kRegrowEveryNs = 1'000'000'000;

void warn_of_over_release(const char* domain, MemoryRange range) noexcept {
  static RateLimit limit(RateLimit::kSecond);
  log_warning(limit,
              "domain %s: a pin of [%#zx, +%zu) was released more often than it was taken; debug "
              "builds name the release",
              domain, static_cast<size_t>(range.addr), range.len);
}

void warn_of_broken_unpin(const char* domain, MemoryRange first, size_t n) noexcept {
  static RateLimit limit(RateLimit::kSecond);
  log_warning(limit, "domain %s: the registrar could not unpin [%#zx, +%zu) (a call for %zu): %s",
              domain, static_cast<size_t>(first.addr), first.len, n, last_error_text());
}

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

uint32_t Domain::settled_holds_locked(RegionIndex region) {
  const uint32_t sum = holds_locked(region);
  const auto surplus = static_cast<int32_t>(sum);
  if (surplus >= 0) return sum;
  // Every post that succeeded is in the sum, and only drops can be missing: fewer than none is no race. The
  // threads' counts are theirs to write, so that what is missing goes to the shared one.
  shared_counts_[region].fetch_sub(sum, std::memory_order_relaxed);
  infos_[region].over_released = true;
  return 0;
}

void Domain::fence_locked() {
  fence::heavy();
  ++epoch_;
}

// Shuts the gate; true if it was open. Holds may be summed after the next fence.
bool Domain::shut_locked(RegionIndex region) {
  if (gate_is_shut(slot(region))) return false;
  shut_gate(slot(region));
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
    if (static_cast<int32_t>(holds_locked(batch[i])) <= 0) {
      batch[kept++] = batch[i];
    } else {
      reopen_locked(batch[i]);
    }
  }
  return kept;
}

// Puts those first that cost least if they are used after all, where nobody knows that yet: one that
// suffices, the smaller the better, or the largest. Answers how many there are.
size_t Domain::smallest_first_locked(RegionIndex* batch, size_t n, uint64_t bytes) {
  const size_t more = policy_->evict(batch, kBatch / 2);
  n = keep_likely_victims_locked(batch, std::max(n, more));
  std::sort(batch, batch + n, [&](RegionIndex a, RegionIndex b) HYDRANT_NO_TSA {
    const bool a_is_enough = infos_[a].charge >= bytes;
    const bool b_is_enough = infos_[b].charge >= bytes;
    if (a_is_enough != b_is_enough) return a_is_enough;
    return a_is_enough ? infos_[a].charge < infos_[b].charge : infos_[a].charge > infos_[b].charge;
  });
  return n;
}

// Moves unheld regions from the policy to `chosen` until they are worth enough or none is left.
void Domain::choose_victims_locked(uint64_t bytes, uint32_t regions, RegionQueue* chosen,
                                   uint64_t* got) {
  RegionIndex batch[kBatch];
  size_t examined = 0;
  size_t ask = kFirstBatch;
  const size_t most = regions_ + kBatch;
  while ((*got < bytes || chosen->size() < regions) && examined < most) {
    size_t n = policy_->evict(batch, ask);
    if (n == 0) return;
    ask = std::min(2 * ask, kBatch / 2);
    examined += n;
    n = keep_likely_victims_locked(batch, n);
    if (n == 0) continue;
    // Those watched since before the last fence can be judged at once. If not even the first is, pay for a
    // fence, and let it serve as many others as the policy will have watched.
    size_t usable = 0;
    while (usable < n && gate_is_shut(slot(batch[usable])) &&
           infos_[batch[usable]].closed_epoch != epoch_) {
      ++usable;
    }
    if (usable == 0) {
      if (config_.distant) n = smallest_first_locked(batch, n, bytes > *got ? bytes - *got : 0);
      watch_more_locked();
      for (size_t i = 0; i < n; ++i) shut_locked(batch[i]);
      fence_locked();
      usable = n;
    }
    for (size_t i = 0; i < usable && (*got < bytes || chosen->size() < regions); ++i) {
      const RegionIndex r = batch[i];
      if (!evictable_locked(r)) continue;  // named twice
      if (settled_holds_locked(r) != 0) {
        reopen_locked(r);
        continue;
      }
      unlist_locked(r);
      infos_[r].state = RegionState::kRetiring;
      chosen->push(infos_, r);
      *got += infos_[r].charge;
    }
  }
}

// Are there unheld regions worth so much? Asked before anything is shut, so that a request that cannot
// be served costs nobody a hit. The sums are approximate, as for likely victims; what it promises may
// be gone. It goes on where it stopped the last time, or the same held regions would be passed over by
// each eviction.
bool Domain::victims_may_suffice_locked(uint64_t bytes, uint32_t regions) {
  if (bytes > charged_ || regions > regions_) return false;
  uint64_t unheld_bytes = 0;
  uint32_t unheld = 0;
  for (RegionIndex seen = 0; seen < high_; ++seen) {
    look_from_ = look_from_ < high_ ? look_from_ + 1 : 1;
    if (!evictable_locked(look_from_)) continue;
    if (static_cast<int32_t>(holds_locked(look_from_)) > 0) continue;
    unheld_bytes += infos_[look_from_].charge;
    ++unheld;
    if (unheld_bytes >= bytes && unheld >= regions) return true;
  }
  return false;
}

bool Domain::evict_locked(uint64_t bytes, uint32_t regions, RegionQueue* victims) {
  if (!victims_may_suffice_locked(bytes, regions)) return false;
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
      infos_[r].listed = true;
      policy_->insert(r, infos_[r].range.len, infos_[r].charge);
      open_gate(slot(r), infos_[r].range.end(), infos_[r].checked);
    }
  }
  return enough;
}

Status Domain::reserve_locked(MemoryRange asked, uint64_t charge, uint32_t regions,
                              uint64_t pending, Reservation* out) {
  if (charge > config_.budget_bytes || regions > config_.max_regions) {
    return fail(
        Status::kResource,
        "domain %s: pinning [%#zx, +%zu) charges %llu bytes in %u regions, more than the whole "
        "budget of %llu bytes and %u regions: raise options.budget_bytes or FIREHOSE_BUDGET "
        "(options.max_regions or FIREHOSE_MAX_REGIONS), or copy",
        config_.name, static_cast<size_t>(asked.addr), asked.len,
        static_cast<unsigned long long>(charge), regions,
        static_cast<unsigned long long>(config_.budget_bytes), config_.max_regions);
  }
  if (budget_ < config_.budget_bytes && !config_.distant) {
    const uint64_t before = budget_;
    regrow_budget_locked(now_ns());
    if (budget_ != before) out->regrown_budget = budget_;
  }
  // What is on its way back from the kernel is waited for, not evicted for.
  const uint64_t taken = charged_ + charge;
  const uint64_t short_bytes = taken > budget_ ? taken - budget_ : 0;
  if (short_bytes == 0 && taken + pending > budget_) {
    return fail(Status::kNotReady,
                "domain %s: [%#zx, +%zu) charges %llu bytes, which do not fit before the kernel "
                "gives back %llu bytes that were unpinned",
                config_.name, static_cast<size_t>(asked.addr), asked.len,
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
      starved_.fetch_add(1, std::memory_order_relaxed);
      out->excess_charge = freed;
      out->excess_regions = freed_regions;
      if (config_.distant) {
        return fail(Status::kNotReady,
                    "%s: [%#zx, +%zu) needs %llu bytes of the peer's lease of %llu, %llu of which "
                    "are in use: "
                    "release, or raise budget_bytes or FIREHOSE_REMOTE_BUDGET at the peer",
                    config_.name, static_cast<size_t>(asked.addr), asked.len,
                    static_cast<unsigned long long>(charge),
                    static_cast<unsigned long long>(budget_),
                    static_cast<unsigned long long>(charged_));
      }
      return fail(
          Status::kNotReady,
          "domain %s: [%#zx, +%zu) charges %llu bytes in %u regions, which do not fit now: %llu of "
          "%llu bytes and %u of %u regions are held or being registered, %llu bytes not yet given "
          "back by the kernel; release, or raise options.budget_bytes or FIREHOSE_BUDGET",
          config_.name, static_cast<size_t>(asked.addr), asked.len,
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
  if (oldest != kNoRegion && infos_[oldest].closed_epoch != epoch_ &&
      settled_holds_locked(oldest) == 0) {
    found = quarantine_.pop(infos_);
  } else if (high_ + 1 < slot_count_) {
    found = ++high_;
    slot(found).index = found;
    slot(found).addr.store(kBlankAddr, std::memory_order_relaxed);
  } else {
    fence_locked();
    for (size_t tries = quarantine_.size(); tries > 0 && found == kNoRegion; --tries) {
      const RegionIndex r = quarantine_.pop(infos_);
      if (settled_holds_locked(r) == 0) {
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
  unlist_locked(region);
  RegionSlot& s = slot(region);
  if (infos_[region].extended) judge_extension_locked(region);
  s.tag.store(0, std::memory_order_relaxed);
  // Blank before the fence that ends the quarantine: a late holder then sees neither old nor new bounds.
  s.addr.store(kBlankAddr, std::memory_order_release);
  infos_[region].state = RegionState::kRetiring;
  retired->push(infos_, region);
}

void Domain::kill_locked(RegionIndex region) {
  unlist_locked(region);
  doom_locked(region);
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
    if (settled_holds_locked(r) == 0) {
      retire_locked(r, retired);
    } else {
      dead_.add(infos_, r);
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

void Domain::drain_many_dead_locked(RegionQueue* retired) {
  const uint64_t most_bytes = std::min(budget_ / kLazyDeadShare, kLazyDeadBytes);
  if (dead_.fresh_count() < kLazyDead && dead_.fresh_charge() <= most_bytes) return;
  drain_dead_locked(2 * kLazyDead, retired);
}

// Without the lock: nobody else touches the infos and keys of retiring regions.
UnpinResult Domain::unpin_all_of(const RegionQueue& retired, uint64_t* calls,
                                 uint64_t* failures) noexcept {
  constexpr size_t kCall = 64;
  MemoryRange ranges[kCall];
  const std::byte* keys[kCall];
  auto worst = UnpinResult::kDone;
  RegionIndex next = retired.front();
  while (next != kNoRegion) {
    size_t n = 0;
    for (; next != kNoRegion && n < kCall; next = infos_[next].next) {
      if (infos_[next].over_released) warn_of_over_release(config_.name, infos_[next].range);
      if (infos_[next].prepinned) continue;
      ranges[n] = infos_[next].range;
      keys[n++] = key_stride_ != 0 ? key_of(next) : nullptr;
    }
    if (n == 0) continue;
    const UnpinResult result =
        n == 1 ? registrar_->unpin(ranges[0], keys[0]) : registrar_->unpin_many(ranges, keys, n);
    // Which ones of a batch could not be undone is not known: all of it counts as failed.
    *(result == UnpinResult::kBroken ? failures : calls) += n;
    if (result == UnpinResult::kBroken) warn_of_broken_unpin(config_.name, ranges[0], n);
    worst = std::max(worst, result);
  }
  return worst;
}

bool Domain::unpin_retired(RegionQueue* retired, bool charge_is_reserved) noexcept {
  if (retired->empty()) return false;
  uint64_t unpinned = 0;
  uint64_t failures = 0;
  const UnpinResult worst = unpin_all_of(*retired, &unpinned, &failures);
  MutexLock lock(mu_);
  totals_.unpins += unpinned;
  totals_.unpin_failures += failures;
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

// The registrar allows less than we thought: not `refused` bytes beside what is charged and what the
// kernel has not given back. That alone is proved. One granule is always worth asking for.
void Domain::shrink_budget_locked(uint64_t refused, uint64_t pending) {
  const uint64_t granule = config_.granule_bytes;
  const uint64_t proved = charged_ + pending + std::max(refused, granule) - granule;
  const uint64_t least = std::max(config_.budget_bytes / 16, granule);
  budget_ = std::min(std::max(std::min(budget_, proved), least), config_.budget_bytes);
  shrunk_at_ns_ = now_ns();
}

// By the time that has passed, however rarely somebody asks. While nothing is charged, what was learnt when
// something was tells nothing: the whole budget is tried.
void Domain::regrow_budget_locked(uint64_t now) {
  uint64_t steps = (now - shrunk_at_ns_) / kRegrowEveryNs;
  if (steps == 0) return;
  shrunk_at_ns_ += steps * kRegrowEveryNs;
  if (charged_ == 0) budget_ = config_.budget_bytes;
  for (; steps > 0 && budget_ < config_.budget_bytes; --steps) {
    const uint64_t step = std::max<uint64_t>(budget_ / 4, config_.granule_bytes);
    budget_ += std::min(step, config_.budget_bytes - budget_);
  }
}

}  // namespace hydrant
