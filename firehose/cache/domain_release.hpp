// Removes holds and regions at the client's request: releases, invalidation, flush.
//
// Invariant: when invalidate() has returned, no pin finds a region that overlapped the range before, except
// the client's own registrations. Unheld regions are unpinned, also those that were dead before. With a
// registrar that undoes pins by address, kOk also means that no other thread is unpinning any of the range.
// If the registrar must unpin before memory is released, kOk means more: none of the range is registered,
// being registered or being unpinned, and no call that began before will register any of it.
#pragma once

#include "firehose/cache/cache_parts.hpp"

namespace hydrant {

class Releases {
 public:
  explicit Releases(CacheParts& parts) noexcept : parts_(parts) {}

  // Drops a hold on a region, not on a span.
  Status release(const RegionSlot* slot, ThreadDomain* thread) noexcept;
  Status invalidate(MemoryRange range) noexcept;
  // Evicts everything that is not held.
  void flush() noexcept;
  // True if no region is dead and no pending range would make one dead. Without the mutex: a hint.
  bool looks_idle() const noexcept {
    return parts_.retirement.looks_idle() && !parts_.invalidator.has_pending();
  }
  // Unpins some dead regions that are no longer held, and all unheld regions of released memory, in bounded
  // batches until the deadline.
  void drain_some_dead(uint64_t deadline_ns) noexcept;
  // Unpins unheld regions of released memory, one bounded batch of them; true if more remain.
  bool drain_released() noexcept;
  // Does one batch of upkeep (upkeep.hpp): the same. At its end a domain that caches no region has no memory
  // watched.
  bool keep_up() noexcept;

 private:
  bool invalidate_some(MemoryRange range, bool first, bool* unpinning) noexcept;
  Status wait_for_unpins(MemoryRange range) noexcept;
  Status finish_unpins(MemoryRange range) noexcept;
  bool close_beside_prepinned(const CacheLock&, MemoryRange range, RegionQueue* closed) noexcept;
  void close(const CacheLock&, RegionIndex region, RegionQueue* closed) noexcept;

  CacheParts& parts_;
};

}  // namespace hydrant
