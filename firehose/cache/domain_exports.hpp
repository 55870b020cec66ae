// The view of a domain for peers that use its memory (export_table.hpp).
//
// Invariant: an export that describe() has described as cached is found in invalidation_log() when its memory
// goes away.
#pragma once

#include "firehose/cache/cache_parts.hpp"
#include "firehose/cache/page_mode/span_pins.hpp"

namespace hydrant {

class ExportView {
 public:
  // A live pin, of one part or several, that is to be exported.
  struct ExportInfo {
    MemoryRange range;
    const std::byte* key = nullptr;  // null where there is none, or several
    bool cached = false;             // its end is reported
    bool checked = false;            // by the kernel alone: sync_invalidations(true)
  };

  ExportView(CacheParts& parts, const SpanPins& spans) noexcept : parts_(parts), spans_(spans) {}

  // As ExtensionLimits::without_untouched().
  MemoryRange without_untouched(MemoryRange needed, MemoryRange wanted) const noexcept {
    return parts_.limits.without_untouched(needed, wanted);
  }
  bool describe(const RegionSlot* slot, MemoryRange asked, ExportInfo* out) noexcept;
  // Unpins the regions that are not held, if there is no room for `bytes`: they were released because of
  // that. (Among many that are held the policy would have to look for them.)
  void evict_if_short(const RegionSlot* const* slots, size_t n, uint64_t bytes) noexcept;
  // A pin of the range might find budget now, or finds it registered. Looks only; nothing is promised.
  bool may_fit(MemoryRange range, Access need) noexcept;
  // Ranges of registered memory that went away.
  const InvalidationLog& invalidation_log() noexcept;
  // Releases before the call are in invalidation_log() afterwards; false if that takes too long. `checked`:
  // also where only the kernel reports them, which costs a system call.
  bool sync_invalidations(bool checked) const noexcept {
    return parts_.watch.sync_invalidations(checked);
  }
  // Pins that failed because what is registered is held.
  uint64_t budget_shortages() const noexcept {
    return parts_.budget_shortages.load(std::memory_order_relaxed);
  }

 private:
  CacheParts& parts_;
  const SpanPins& spans_;
};

}  // namespace hydrant
