// Regions that are longer than their request because a stream was expected to go on.
//
// Invariant: RegionInfo::extended marks them; RegionSlot::unused_extension says how much of the extension no
// slow call has seen used. Each is judged once, when it retires: the detector learns whether its advice was
// worth it.
#pragma once

#include "firehose/cache/region/cache_totals.hpp"
#include "firehose/cache/region/region_store.hpp"
#include "firehose/cache/region/stream_detector.hpp"

#include <cstddef>

namespace hydrant {

class Extensions {
 public:
  Extensions(RegionStore& store, CacheTotals& totals, size_t granule_bytes) noexcept
      : store_(store), totals_(totals), granule_bytes_(granule_bytes) {}

  StreamDetector& streams(const CacheLock&) noexcept { return streams_; }

  // The region was registered `extra_bytes` longer, at its start if `down`.
  void enter(const CacheLock&, RegionIndex region, size_t extra_bytes, bool down) noexcept;
  // The region retires: reports to the detector whether the extension was used.
  void judge(const CacheLock&, RegionIndex region) noexcept;
  // A slow call has seen these pages of the region used. Any thread, without the mutex: a hint for
  // statistics.
  void note_reached(RegionSlot& slot, MemoryRange pages) const noexcept {
    const uint32_t before = slot.unused_extension.load(std::memory_order_relaxed);
    if (before != 0) shorten(slot, pages, before);
  }
  // All of it is used, or the region is no extension.
  static void note_all_reached(RegionSlot& slot) noexcept {
    slot.unused_extension.store(0, std::memory_order_relaxed);
  }

 private:
  void shorten(RegionSlot& slot, MemoryRange pages, uint32_t before) const noexcept;

  RegionStore& store_;
  CacheTotals& totals_;
  const size_t granule_bytes_;
  StreamDetector streams_;
};

}  // namespace hydrant
