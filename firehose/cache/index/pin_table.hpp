// The lookup that page and region mode share: finds the registered range that contains an address.
//
// A domain has one table per set of access rights. In a table no range contains another, so the range with
// the greatest start at or below an address is the only one that needs looking at.
//
// Thread safety: find() and collect_unlocked() from any thread without a lock; everything else under the
// domain's mutex. find() may miss a range while the table changes, and may return a range that is being
// removed: its caller trusts only the region's own slot, read after posting a hold.
#pragma once

#include "firehose/hit/region_slot.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

class PinTable {
 public:
  virtual ~PinTable() = default;

  // Reserves address space for `max_ranges`; false when refused. No memory is touched.
  [[nodiscard]] virtual bool map(size_t max_ranges) noexcept = 0;
  virtual bool mapped() const noexcept = 0;

  // The range that may contain `addr`; kNoRegion if there is none or the table was changing.
  virtual RegionIndex find(uintptr_t addr) const noexcept = 0;

  // Some range that overlaps [first, last]; kNoRegion if none.
  virtual RegionIndex any_overlap(uintptr_t first, uintptr_t last) const noexcept = 0;

  // Writes up to `room` ranges that overlap [first, last], in one pass; returns how many. 0: there are none.
  virtual size_t collect(uintptr_t first, uintptr_t last, RegionIndex* out,
                         size_t room) const noexcept = 0;

  // The same from any thread without a lock: true, and *n are written, if the table did not change meanwhile
  // and there are fewer than `room`.
  virtual bool collect_unlocked(uintptr_t first, uintptr_t last, RegionIndex* out, size_t room,
                                size_t* n) const noexcept = 0;

  // The lowest range that starts in [first, last]; kNoRegion if none.
  virtual RegionIndex first_start(uintptr_t first, uintptr_t last) const noexcept = 0;

  // False, and the table is as before: `range` contains a range of the table, or is contained in one.
  [[nodiscard]] virtual bool insert(MemoryRange range, RegionIndex index) noexcept = 0;
  // Requires: inserted with exactly this range.
  virtual void erase(MemoryRange range, RegionIndex index) noexcept = 0;

  // Called in the child of a fork: the copied table may be in any state.
  virtual void clear() noexcept = 0;
  virtual uint64_t memory_bytes() const noexcept = 0;

 protected:
  // Memory orders of the fields that readers look at without the mutex.
  static constexpr auto kRead = std::memory_order_acquire;
  static constexpr auto kWrite = std::memory_order_release;
};

// A sequence lock whose data are atomics: readers retry nothing, they just report a miss.
class SequenceLock {
 public:
  uint32_t begin_read() const noexcept { return sequence_.load(std::memory_order_acquire); }
  // Data must have been read with acquire, so that this load is not moved before it.
  bool read_was_clean(uint32_t begun) const noexcept {
    return (begun & 1) == 0 && sequence_.load(std::memory_order_relaxed) == begun;
  }
  // Data must be written with release between these two.
  void begin_write() noexcept { bump(std::memory_order_relaxed); }
  void end_write() noexcept { bump(std::memory_order_release); }
  // A thread that was writing exists in the parent alone.
  void reset_in_child() noexcept { sequence_.store(0, std::memory_order_relaxed); }

 private:
  void bump(std::memory_order order) noexcept {
    sequence_.store(sequence_.load(std::memory_order_relaxed) + 1, order);  // one writer: the mutex
  }
  std::atomic<uint32_t> sequence_{0};
};

}  // namespace hydrant
