// What a domain tells those who let peers use its memory (remote_exports.hpp).
#include <hydrant/monitor.h>

#include "firehose/domain.hpp"

namespace hydrant {
namespace {

// A release that takes longer to be told is waited for by the next call.
constexpr uint64_t kSettleNs = 1'000'000;

}  // namespace

bool Domain::describe_export(const RegionSlot* s, MemoryRange asked, Exported* out) noexcept {
  *out = {};
  MutexLock lock(mu_);
  if (is_span(s)) {
    const SpanParts* parts = spans_.find(s);
    if (parts == nullptr) return false;
    out->range = round_out(asked, config_.granule_bytes);
    out->cached = true;
    for (size_t i = 0; i < parts->count; ++i) {
      out->cached = out->cached && !infos_[parts->regions[i]].uncached;
      out->checked = out->checked || infos_[parts->regions[i]].checked;
    }
    return true;
  }
  const RegionInfo& info = infos_[index_of(s)];
  if (info.state != RegionState::kOpen && info.state != RegionState::kDead) return false;
  out->range = info.range;
  out->key = key_stride_ != 0 ? key_of(index_of(s)) : nullptr;
  out->cached = !info.uncached;
  out->checked = info.checked;
  return true;
}

void Domain::drop_idle(const RegionSlot* const* slots, size_t n, uint64_t bytes) noexcept {
  RegionQueue victims;
  {
    MutexLock lock(mu_);
    if (n == 0 || charged_ + bytes <= budget_) return;
    bool fenced = true;
    for (size_t i = 0; i < n; ++i) {
      const RegionIndex r = is_span(slots[i]) ? kNoRegion : index_of(slots[i]);
      if (!evictable_locked(r)) continue;
      (void)shut_locked(r);
      fenced = fenced && infos_[r].closed_epoch != epoch_;
    }
    if (!fenced) fence_locked();
    uint64_t freed = 0;
    for (size_t i = 0; i < n; ++i) {
      const RegionIndex r = is_span(slots[i]) ? kNoRegion : index_of(slots[i]);
      if (!evictable_locked(r)) continue;  // named twice, or dead
      if (charged_ + bytes <= budget_ + freed || settled_holds_locked(r) != 0) {
        reopen_locked(r);
        continue;
      }
      tables_[bits(infos_[r].access)]->erase(infos_[r].range, r);
      freed += infos_[r].charge;
      retire_locked(r, &victims);
      ++totals_.evictions;
    }
  }
  unpin_retired(&victims, false);
}

// A call that released memory returns when the kernel's report was read: then it is enough that the caches
// have forgotten. Where nobody reports what is acquired, a release may be under way in another thread.
bool Domain::settle_releases(bool checked) noexcept {
  if (monitor_ == nullptr) return true;
  if (checked) return monitor_->quiet(kSettleNs) == 0;
  if ((__atomic_load_n(monitor_->sequence, __ATOMIC_ACQUIRE) & 1) != 0) monitor_->settle();
  return true;
}

}  // namespace hydrant
