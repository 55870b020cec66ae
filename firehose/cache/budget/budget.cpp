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
  const uint64_t least = std::max(whole_.bytes / 16, granule);
  in_force_ = std::min(std::max(std::min(in_force_, proved), least), whole_.bytes);
  shrunk_at_ns_ = now_ns;
}

bool Budget::regrow(const CacheLock&, uint64_t now_ns) noexcept {
  uint64_t steps = (now_ns - shrunk_at_ns_) / kRegrowEveryNs;
  if (steps == 0) return false;
  const uint64_t before = in_force_;
  shrunk_at_ns_ += steps * kRegrowEveryNs;
  if (used_.bytes == 0) in_force_ = whole_.bytes;
  for (; steps > 0 && in_force_ < whole_.bytes; --steps) {
    const uint64_t step = std::max<uint64_t>(in_force_ / 4, granule_bytes_);
    in_force_ += std::min(step, whole_.bytes - in_force_);
  }
  return in_force_ != before;
}

void Budget::set_in_force(const CacheLock&, uint64_t bytes) noexcept {
  in_force_ = std::min(bytes, whole_.bytes);
}

void Budget::reset_in_child(const CacheLock&) noexcept {
  used_ = {};
  in_force_ = whole_.bytes;
}

void Reservation::give_all_back() noexcept {
  const CacheLock lock(mu_);
  budget_.give_back(lock, share_);
  share_ = {};
  give_back_excess(lock);
}

void Reservation::take(const CacheLock& lock, Budget::Share share, Budget::Share freed) noexcept {
  excess_ = {freed.bytes > share.bytes ? freed.bytes - share.bytes : 0,
             freed.regions > share.regions ? freed.regions - share.regions : 0};
  budget_.give_back(lock, {freed.bytes - excess_.bytes, freed.regions - excess_.regions});
  take(lock, share);
}

}  // namespace hydrant
