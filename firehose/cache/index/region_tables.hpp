// The index of a cache: one table per set of access rights, which find a registered range by address.
//
// Invariants: the tables list exactly the regions in state kOpen, each in the table of its rights. A class
// has its bit in classes() once its table may be read. Readers without the mutex may miss a region and may
// find one that is being removed: they trust only its slot, read after posting a hold.
#pragma once

#include "firehose/cache/index/access_classes.hpp"
#include "firehose/cache/index/pin_table.hpp"
#include "firehose/cache/region/region_store.hpp"
#include "firehose/hit/hold.hpp"

#include <atomic>
#include <memory>

namespace hydrant {

class RegionTables {
 public:
  explicit RegionTables(RegionStore& store) noexcept : store_(store) {}
  // Tables of buckets of 2^bucket_shift bytes; 0: of ranges of any length. False without memory.
  [[nodiscard]] bool make(uint32_t bucket_shift) noexcept;

  // An open region that covers the range with these rights; kNoRegion if there is none.
  RegionIndex find(const CacheLock&, MemoryRange range, Access need) const noexcept;
  // Classes in use, as bits for take_lowest().
  uint32_t classes(const CacheLock&) const noexcept {
    return classes_.load(std::memory_order_relaxed);
  }
  const PinTable& table(const CacheLock&, uint32_t c) const noexcept { return *tables_[c]; }
  // True if some open region overlaps the range.
  bool any_overlap(const CacheLock&, MemoryRange range) const noexcept;

  // Calls visit(region) for each open region of these rights or fewer that lies in the range and is not the
  // client's own. visit() may remove the region.
  template <class Visit>
  void each_within(const CacheLock& lock, MemoryRange range, Access access,
                   const Visit& visit) const noexcept {
    const auto& infos = store_.infos(lock);
    uint32_t used = classes(lock);
    while (used != 0) {
      const uint32_t c = take_lowest(&used);
      if (!includes(access, static_cast<Access>(c))) continue;
      // No range of a table contains another: their starts and ends have the same order.
      for (uintptr_t from = range.addr;;) {
        const RegionIndex r = tables_[c]->first_start(from, range.last());
        if (r == kNoRegion || !range.covers(infos[r].range)) break;
        from = infos[r].range.addr + 1;
        if (!infos[r].prepinned) visit(r);
      }
    }
  }

  // False if the table of these rights has no memory.
  [[nodiscard]] bool prepare(const CacheLock&, Access access) noexcept;
  // False: a region of the same rights contains it, or is contained in it. Requires: prepare() for the
  // rights.
  [[nodiscard]] bool insert(const CacheLock&, RegionIndex region) noexcept;
  void erase(const CacheLock&, RegionIndex region) noexcept;
  // Makes lookups find no region any more.
  void close(const CacheLock&) noexcept { classes_.store(0, std::memory_order_release); }
  void reset_in_child(const CacheLock&) noexcept;
  uint64_t memory_bytes(const CacheLock&) const noexcept;

  // Without the mutex: a hold on a region that covers [first, last], through this gate of it. Before a hold
  // on a proposed slot is tried, `try_it(slot)` may reject the slot.
  template <class TryIt>
  const RegionSlot* find_and_hold(std::atomic<uintptr_t> RegionSlot::*gate, HoldCount* counts,
                                  uintptr_t first, uintptr_t last, uint32_t need,
                                  const TryIt& try_it) const noexcept {
    uint32_t classes = classes_.load(std::memory_order_acquire) & kClassesIncluding[need];
    while (classes != 0) {
      const RegionIndex r = tables_[take_lowest(&classes)]->find(first);
      if (r == kNoRegion || r >= store_.count()) continue;
      const RegionSlot& s = store_.slot(r);
      if (!try_it(s)) continue;
      if (hold_if_open(s, s.*gate, counts[r], first, last, need)) return &s;
    }
    return nullptr;
  }

  // Without the mutex: calls visit(region) for each open region that overlaps the range. False: there may
  // be more, because the tables change or there are many.
  template <class Visit>
  bool each_unlocked(MemoryRange range, const Visit& visit) const noexcept {
    constexpr size_t kMaxFound = 256;
    RegionIndex found[kMaxFound];
    uint32_t classes = classes_.load(std::memory_order_acquire);
    while (classes != 0) {
      size_t n = 0;
      if (!tables_[take_lowest(&classes)]->collect_unlocked(range.addr, range.last(), found,
                                                            kMaxFound, &n)) {
        return false;
      }
      for (size_t i = 0; i < n; ++i) visit(found[i]);
    }
    return true;
  }

 private:
  RegionStore& store_;
  std::unique_ptr<PinTable> tables_[16];
  std::atomic<uint32_t> classes_{0};
};

}  // namespace hydrant
