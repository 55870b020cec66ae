// A region as hits see it: one cache line, written by the threads that open, shut, close or free the region,
// and by slow calls that note the use of an extension.
//
// Slots live in one array per domain, never move and are never unmapped, so that a pointer to a slot
// can always be read; its contents are valid only for a thread that has posted a hold first (hold.hpp).
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/base/memory_range.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

// Position of a region in its domain's arrays. 0 is the null slot, which never opens.
using RegionIndex = uint32_t;
constexpr RegionIndex kNoRegion = 0;

struct alignas(64) RegionSlot {
  // The public part, same layout as hydrant_region_t. Changes only while the slot is free.
  std::atomic<uintptr_t> addr;  // a free slot holds kBlankAddr here, which no request reaches
  std::atomic<size_t> len;
  std::atomic<const void*> key;

  // End of the region while it may be hit, 0 or kMarkedGate (1) while it is closed: nothing lies before
  // them, so that also memory that reads as zeros (a released arena, a child's wiped one) is shut for every
  // request.
  // Opened with release after all other fields; closed before the fence that precedes summing the
  // holds.
  std::atomic<uintptr_t> gate;
  std::atomic<uint32_t> denied;  // access bits this registration does not grant
  // The domain's handle while releases may take the fast path; 0 when the last release has work to
  // do (region dead, uncached or unpinned). Pairs with nothing: a release that misses the change leaves
  // the work to the next drain.
  std::atomic<uint32_t> tag;
  RegionIndex index;            // own position; constant once the slot was first used
  std::atomic<uint32_t> alive;  // kSlotAlive in the null slot; 0 in a child without fork handlers
  // The gate of memory whose acquisition is not reported: a thread has to query the monitor for changes
  // under way before it uses this gate. Such a region's `gate` stays shut, whatever life its slot had before.
  std::atomic<uintptr_t> checked_gate;
  std::atomic<RegionIndex> chained;  // page mode: the next region of the same hash (page_table.hpp)
  // Region mode: granules at the end for the expected next requests of a stream, less those that a slow
  // call has seen used. A hint for statistics, written by any holder, relaxed.
  std::atomic<uint32_t> unused_extension;

  const hydrant_region_t* as_public() const noexcept {
    return reinterpret_cast<const hydrant_region_t*>(this);
  }
  static const RegionSlot* from_public(const hydrant_region_t* region) noexcept {
    return static_cast<const RegionSlot*>(static_cast<const void*>(region));
  }
};

constexpr uintptr_t kBlankAddr = UINTPTR_MAX;
// In `unused_extension`: they lie at the start, not at the end.
constexpr uint32_t kUnusedBelow = uint32_t{1} << 31;
constexpr uint32_t kSlotAlive = 0x48594431;

static_assert(sizeof(RegionSlot) == 64);
static_assert(offsetof(RegionSlot, addr) == offsetof(hydrant_region_t, addr));
static_assert(offsetof(RegionSlot, len) == offsetof(hydrant_region_t, len));
static_assert(offsetof(RegionSlot, key) == offsetof(hydrant_region_t, key));
static_assert(std::atomic<uintptr_t>::is_always_lock_free);

}  // namespace hydrant
