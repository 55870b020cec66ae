// Pins of several regions at once: hydrant_pin_many(), and page mode's requests of several buckets.
//
// Both hold what is there, reserve budget for all that is missing, and only then register: all or none. A
// request of several buckets returns a span: a slot of its own that remembers the buckets' slots. Spans are
// not cached; their release releases each bucket.
//
// Invariant: each live span holds each of its parts once.
#pragma once

#include "firehose/cache/domain_miss.hpp"
#include "firehose/cache/domain_release.hpp"
#include "firehose/cache/page_mode/span_table.hpp"

namespace hydrant {

class SpanPins {
 public:
  SpanPins(CacheParts& parts, MissPath& miss, Releases& releases) noexcept
      : parts_(parts), miss_(miss), releases_(releases) {}

  // Spans take the slots behind the regions'. Before the domain is published.
  [[nodiscard]] bool map(RegionSlot* slots, size_t count) noexcept {
    return spans_.map(slots, count);
  }
  bool is_span(const RegionSlot* slot) const noexcept {
    return slot >= parts_.store.slots() + parts_.store.count();
  }
  // True if a pin of the range has several parts.
  bool needs_span(MemoryRange range) const noexcept {
    return parts_.config.mode == HYDRANT_MODE_PAGE && buckets_in(range) > 1;
  }

  Status pin(const PinRequest& request, const RegionSlot** out) noexcept;
  Status pin_many(const hydrant_range_t* ranges, size_t n, Access need,
                  const RegionSlot** out) noexcept;
  // Releases a pin of a span or of a region.
  Status release(const RegionSlot* slot, ThreadDomain* thread) noexcept;

  const SpanTable& table(const CacheLock&) const noexcept { return spans_; }
  // Span slots ever used; frees the parts of all. Requires: no thread is inside a call.
  uint32_t used() const noexcept { return spans_.high(); }
  void free_all() noexcept { spans_.free_all(); }
  void reset_in_child(const CacheLock&) noexcept { spans_.reset_in_child(); }

 private:
  Status release_span(const RegionSlot* slot, ThreadDomain* thread) noexcept;
  // `requests`: how many ranges of the client the n regions or buckets serve.
  Status acquire_all(const PinRequest& like, size_t requests, const MemoryRange* ranges, size_t n,
                     const RegionSlot** held) noexcept;
  Status reserve_missing(MemoryRange requested, const MemoryRange* ranges, size_t n,
                         const RegionSlot* const* held, MissPath::Payment* payment) noexcept;
  Status check_total(const PinRequest& like, size_t requests, const MemoryRange* ranges,
                     size_t n) noexcept;
  Status make_span(MemoryRange pages, const RegionSlot* const* held, size_t n,
                   const RegionSlot** out) noexcept;
  Status group_held(const hydrant_range_t* ranges, size_t n, const RegionSlot** held, size_t total,
                    ThreadDomain* thread, const RegionSlot** out) noexcept;
  size_t buckets_in(MemoryRange range) const noexcept;
  Status count_parts(const hydrant_range_t* ranges, size_t n, size_t* total) const noexcept;

  CacheParts& parts_;
  MissPath& miss_;
  Releases& releases_;
  SpanTable spans_;
};

}  // namespace hydrant
