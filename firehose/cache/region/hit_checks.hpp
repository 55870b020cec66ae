// Records whether hits need a check: some memory may be hit only after a query for releases under way.
//
// Invariant: must_query() is false only while no region was ever opened through its checked gate and the
// monitor has not ended free hits.
#pragma once

#include "firehose/cache/region/region_info.hpp"
#include "firehose/watch/mutant.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

class HitChecks {
 public:
  // Sets the monitor's flag that ends free hits. Requires: before the domain is published.
  void follow(const uint32_t* hits_checked) noexcept { hits_checked_ = hits_checked; }
  bool follows() const noexcept { return hits_checked_ != nullptr; }

  bool free_hits_ended() const noexcept {
    return hits_checked_ != nullptr && __atomic_load_n(hits_checked_, __ATOMIC_SEQ_CST) != 0;
  }
  bool has_checked_regions() const noexcept {
    return checked_regions_.load(std::memory_order_relaxed) != 0;
  }
  bool must_query() const noexcept { return has_checked_regions() || free_hits_ended(); }

  // A region enters the cache that may be hit through its checked gate only.
  void note_checked() noexcept { checked_regions_.fetch_add(1, std::memory_order_relaxed); }
  // The same for an open region whose hits were free because of complete hooks, once that has ended. True if
  // so. Under the mutex.
  bool end_free_hits_of(RegionInfo& info) noexcept {
    if (!info.hooked || info.checked || !free_hits_ended() || is_mutant(Mutant::kOpenFree))
      return false;
    info.checked = true;
    note_checked();
    return true;
  }

 private:
  const uint32_t* hits_checked_ = nullptr;  // null where the monitor has none
  std::atomic<uint32_t> checked_regions_{0};
};

}  // namespace hydrant
