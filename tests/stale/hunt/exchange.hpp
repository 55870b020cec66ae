// Hands memory, and holds on it, from one thread of a hunt to another.
#pragma once

#include "tests/stale/hunt/supply.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

namespace hydrant::stale {

struct Parcel {
  Block block;         // empty: a hold alone, to be released
  Hold hold;           // perhaps
  uintptr_t cell = 0;  // where the hold is known to look at the block's page
};

// Threads: any. The mutex orders everything that the giver did with the block before what the taker does.
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
  // Nothing comes in any more.
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
