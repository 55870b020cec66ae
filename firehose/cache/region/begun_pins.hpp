// Calls that register memory and have not returned yet, in a domain whose registrar must unpin before memory
// is released. Between two attempts such a call has no region that shows it.
//
// Invariant: lists the calls from their first look at the cache until their hold is visible as that of a
// region, or until they have failed. A deferred pin counts while it is queued, too.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/cache/region/cache_lock.hpp"

#include <cstdint>

namespace hydrant {

class BegunPins {
 public:
  struct Entry {
    MemoryRange pages;
    Entry* next;
    Entry* previous;
    // Number of the list's life when entered: a child of a fork begins another, with an empty list.
    uint32_t life;
  };

  void add(const CacheLock&, Entry& entry) noexcept {
    entry.life = life_;
    entry.previous = nullptr;
    entry.next = first_;
    if (first_ != nullptr) first_->previous = &entry;
    first_ = &entry;
  }
  void remove(const CacheLock&, const Entry& entry) noexcept {
    if (entry.life != life_) return;
    (entry.previous == nullptr ? first_ : entry.previous->next) = entry.next;
    if (entry.next != nullptr) entry.next->previous = entry.previous;
  }
  bool any_overlap(const CacheLock&, MemoryRange range) const noexcept {
    for (const Entry* entry = first_; entry != nullptr; entry = entry->next) {
      if (entry->pages.overlaps(range)) return true;
    }
    return false;
  }
  void reset_in_child(const CacheLock&) noexcept {
    first_ = nullptr;
    ++life_;
  }

 private:
  Entry* first_ = nullptr;
  uint32_t life_ = 0;
};

}  // namespace hydrant
