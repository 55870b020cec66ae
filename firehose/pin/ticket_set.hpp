// The tickets of live pins in a build with HYDRANT_TICKETS: a hash table that does not throw when memory is
// used up, in the table space: a signal handler that interrupts malloc() must not fork (libc's fork() takes
// malloc's locks), and handlers may interrupt a pin anywhere.
#pragma once

#include "firehose/base/table_space.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Open addressing with linear probing; at most half full. Not thread-safe. Never frees its table.
class TicketSet {
 public:
  // False if the table would have to grow and memory is used up. Requires: ticket != 0, not yet inserted.
  bool insert(uint64_t ticket) noexcept {
    if (2 * (used_ + 1) > size_ && !grow()) return false;
    put(slots_, size_, ticket);
    ++used_;
    return true;
  }

  // Whether the ticket was there.
  bool erase(uint64_t ticket) noexcept {
    if (ticket == 0 || size_ == 0) return false;
    size_t at = first(ticket, size_);
    for (; slots_[at] != ticket; at = next(at, size_)) {
      if (slots_[at] == 0) return false;
    }
    --used_;
    // The entries behind move up, where their own first slots allow it: no search ends too early.
    size_t hole = at;
    for (at = next(at, size_); slots_[at] != 0; at = next(at, size_)) {
      const size_t wanted = first(slots_[at], size_);
      if (((at - wanted) & (size_ - 1)) < ((at - hole) & (size_ - 1))) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = 0;
    return true;
  }

 private:
  static constexpr size_t kFirstSize = 512;  // a page

  static size_t first(uint64_t ticket, size_t size) noexcept {
    return static_cast<size_t>(ticket * 0x9e3779b97f4a7c15u >> 32) & (size - 1);
  }
  static size_t next(size_t at, size_t size) noexcept { return (at + 1) & (size - 1); }
  static void put(uint64_t* slots, size_t size, uint64_t ticket) noexcept {
    size_t at = first(ticket, size);
    while (slots[at] != 0) at = next(at, size);
    slots[at] = ticket;
  }
  bool grow() noexcept {
    const size_t size = size_ == 0 ? kFirstSize : 2 * size_;
    auto* slots = static_cast<uint64_t*>(g_table_space.take(size * sizeof(uint64_t)));
    if (slots == nullptr) return false;
    for (size_t i = 0; i < size_; ++i) {
      if (slots_[i] != 0) put(slots, size, slots_[i]);
    }
    if (slots_ != nullptr) g_table_space.give(slots_, size_ * sizeof(uint64_t));
    slots_ = slots;
    size_ = size;
    return true;
  }

  uint64_t* slots_ = nullptr;
  size_t size_ = 0;  // a power of two
  size_t used_ = 0;
};

}  // namespace hydrant
