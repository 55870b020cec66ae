// Hands memory, and holds on it, from one thread of a hunt to another.
#pragma once

#include "tests/stale/hunt/supply.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

namespace hydrant::stale {

struct Parcel {
  Block block;         // empty: a hold only, to be released
  Hold hold;           // optional
  uintptr_t cell = 0;  // a cell of the block that the hold covers
};

// Threads: any. The mutex orders the giver's accesses to the block before the taker's.
class Exchange {
 public:
  explicit Exchange(uint32_t threads) : threads_(threads), inboxes_(new Inbox[threads]) {}

  // False when the inbox is full or closed.
  bool give(uint32_t to, const Parcel& parcel) {
    Inbox& inbox = inboxes_[to % threads_];
    const std::lock_guard lock(inbox.mutex);
    if (inbox.closed || inbox.count == inbox.parcels.size()) return false;
    inbox.parcels[inbox.count++] = parcel;
    return true;
  }
  bool take(uint32_t own, Parcel* parcel) {
    Inbox& inbox = inboxes_[own];
    const std::lock_guard lock(inbox.mutex);
    if (inbox.count == 0) return false;
    *parcel = inbox.parcels[--inbox.count];
    return true;
  }
  // Closes the inbox: no further parcels arrive.
  void close(uint32_t own) {
    const std::lock_guard lock(inboxes_[own].mutex);
    inboxes_[own].closed = true;
  }

 private:
  struct Inbox {
    std::mutex mutex;
    std::array<Parcel, 16> parcels;
    size_t count = 0;
    bool closed = false;
  };
  uint32_t threads_;
  std::unique_ptr<Inbox[]> inboxes_;
};

}  // namespace hydrant::stale
