// Accounts for what a cache has registered, and reserves room in its budget. A miss reserves its charge
// before it registers (step 4 of "Tour: a miss with eviction").
#include "firehose/cache/budget/budget.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr uint64_t kRegrowEveryNs = 1'000'000'000;

}  // namespace

void Budget::shrink(const CacheLock&, uint64_t refused, uint64_t pending,
                    uint64_t now_ns) noexcept {
  const uint64_t granule = granule_bytes_;
  const uint64_t proved = used_.bytes + pending + std::max(refused, granule) - granule;
  const uint64_t least = std::max(configured_.bytes / 16, granule);
  current_ = std::min(std::max(std::min(current_, proved), least), configured_.bytes);
  shrunk_at_ns_ = now_ns;
}

bool Budget::regrow(const CacheLock&, uint64_t now_ns) noexcept {
  uint64_t steps = (now_ns - shrunk_at_ns_) / kRegrowEveryNs;
  if (steps == 0) return false;
  const uint64_t before = current_;
  shrunk_at_ns_ += steps * kRegrowEveryNs;
  if (used_.bytes == 0) current_ = configured_.bytes;
  for (; steps > 0 && current_ < configured_.bytes; --steps) {
    const uint64_t step = std::max<uint64_t>(current_ / 4, granule_bytes_);
    current_ += std::min(step, configured_.bytes - current_);
  }
  return current_ != before;
}

void Budget::set_in_force(const CacheLock&, uint64_t bytes) noexcept {
  current_ = std::min(bytes, configured_.bytes);
}

void Budget::reset_in_child(const CacheLock&) noexcept {
  used_ = {};
  current_ = configured_.bytes;
}

void Reservation::release_all() noexcept {
  const CacheLock lock(mu_);
  budget_.release(lock, share_);
  share_ = {};
  release_excess(lock);
}

void Reservation::take(const CacheLock& lock, Budget::Share share, Budget::Share freed) noexcept {
  excess_ = {freed.bytes > share.bytes ? freed.bytes - share.bytes : 0,
             freed.regions > share.regions ? freed.regions - share.regions : 0};
  budget_.release(lock, {freed.bytes - excess_.bytes, freed.regions - excess_.regions});
  take(lock, share);
}

}  // namespace hydrant
