// The view of a domain for peers that use its memory (export_table.hpp).
//
// Invariant: an export that describe() has described as cached is found in invalidation_log() when its memory
// is released.
#pragma once

#include "firehose/cache/cache_parts.hpp"
#include "firehose/cache/span_pins.hpp"

namespace hydrant {

class ExportView {
 public:
  // A live pin, of one part or several, that is to be exported.
  struct ExportInfo {
    MemoryRange range;
    const std::byte* key = nullptr;  // null where there is none, or several
    bool cached = false;             // its release is reported, and it is not used once
    bool checked = false;            // by the kernel only: sync_invalidations(true)
  };

  ExportView(CacheParts& parts, const SpanPins& spans) noexcept : parts_(parts), spans_(spans) {}

  // As ExtensionLimits::without_untouched().
  MemoryRange without_untouched(MemoryRange needed, MemoryRange wanted) const noexcept {
    return parts_.limits.without_untouched(needed, wanted);
  }
  bool describe(const RegionSlot* slot, MemoryRange requested, ExportInfo* out) noexcept;
  // Unpins those of the regions that are not held, if there is no room for `bytes`: the caller has released
  // them for that. Among many held regions the policy would have to search for them.
  void evict_if_short(const RegionSlot* const* slots, size_t n, uint64_t bytes) noexcept;
  // True if a pin of the range may find budget now, or a region. A hint: reserves no budget.
  bool may_fit(MemoryRange range, Access need) noexcept;
  // Ranges of registered memory that were released.
  const InvalidationLog& invalidation_log() noexcept;
  // Releases before the call are in invalidation_log() afterwards; false if that takes too long. `checked`:
  // also those that only the kernel reports, which costs a system call.
  bool sync_invalidations(bool checked) const noexcept {
    return parts_.watch.sync_invalidations(checked);
  }
  // Pins that failed because registered regions are held.
  uint64_t budget_shortages() const noexcept {
    return parts_.budget_shortages.load(std::memory_order_relaxed);
  }

 private:
  CacheParts& parts_;
  const SpanPins& spans_;
};

}  // namespace hydrant
