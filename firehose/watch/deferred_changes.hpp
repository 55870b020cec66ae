// Changes that the reader has read and could not enter yet: a signal handler may have interrupted the holder
// of the mutex of the watched ranges, and wait for the reader.
//
// Invariant: any() is true from the return of push() until all changes have been taken. The changes are taken
// in their order, and every removal that was pushed is part of a removal that is taken. An unmapping or a
// move may be left out: its memory then stays removed.
//
// Threads: the reader; any() and wait_until_taken() any.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/watch/userfault.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class DeferredChanges {
 public:
  static constexpr size_t kMax = 256;

  constexpr DeferredChanges() noexcept = default;

  // `removal`: the number of a removal.
  void push(const MemoryChange& change, uint64_t removal) noexcept;
  // Calls enter(change, removal) for each change. A miss that then sees any() = false sees their entries.
  template <class Enter>
  void take_all(const Enter& enter) noexcept {
    for (size_t i = 0; i < count_; ++i) enter(entries_[i].change, entries_[i].removal);
    clear();
  }
  bool any() const noexcept { return any_.load(std::memory_order_acquire); }
  // Waits for a few milliseconds; false if there are changes even then.
  bool wait_until_taken() const noexcept;

  // Also in the child of a fork.
  void clear() noexcept {
    count_ = 0;
    any_.store(false, std::memory_order_release);
  }

 private:
  struct Entry {
    MemoryChange change;
    uint64_t removal;
  };

  Entry entries_[kMax] = {};
  size_t count_ = 0;
  std::atomic<bool> any_{false};
};

}  // namespace hydrant
