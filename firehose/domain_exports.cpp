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

// A call that released memory returns when the kernel's report was read: then it is enough that the caches
// have forgotten. Where nobody reports what is acquired, a release may be under way in another thread.
bool Domain::settle_releases(bool checked) noexcept {
  if (monitor_ == nullptr) return true;
  if (checked) return monitor_->quiet(kSettleNs) == 0;
  if ((__atomic_load_n(monitor_->sequence, __ATOMIC_ACQUIRE) & 1) != 0) monitor_->settle();
  return true;
}

}  // namespace hydrant
