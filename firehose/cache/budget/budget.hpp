// The budget of a cache, and reservations of it.
//
// Invariant: charged() and regions() are the sums over open, dead, pending and retiring regions, and over
// live reservations; a retiring victim whose share a reservation has taken counts there. in_force() is at
// most the whole budget; it is less after the registrar had no room (then at least one granule), and in a
// domain whose budget a peer lends.
#pragma once

#include "firehose/cache/region/cache_lock.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

class Budget {
 public:
  struct Share {
    uint64_t bytes = 0;
    uint32_t regions = 0;
  };

  Budget(Share whole, size_t granule_bytes) noexcept
      : configured_(whole), granule_bytes_(granule_bytes), current_(whole.bytes) {}

  const Share& whole() const noexcept { return configured_; }
  uint64_t in_force(const CacheLock&) const noexcept { return current_; }
  uint64_t charged(const CacheLock&) const noexcept { return used_.bytes; }
  uint32_t regions(const CacheLock&) const noexcept { return used_.regions; }
  // True if so many bytes fit beside what is charged.
  bool has_room(const CacheLock&, uint64_t bytes) const noexcept {
    return used_.bytes + bytes <= current_;
  }
  // The share that has to be freed before `wanted` fits.
  Share shortage(const CacheLock&, Share wanted) const noexcept {
    const uint64_t bytes = used_.bytes + wanted.bytes;
    const uint32_t regions = used_.regions + wanted.regions;
    return {bytes > current_ ? bytes - current_ : 0,
            regions > configured_.regions ? regions - configured_.regions : 0};
  }

  // The share that is free beside so many bytes that the kernel still charges.
  Share room(const CacheLock&, uint64_t pending) const noexcept {
    const uint64_t bytes = used_.bytes + pending;
    return {bytes < current_ ? current_ - bytes : 0,
            used_.regions < configured_.regions ? configured_.regions - used_.regions : 0};
  }

  void take(const CacheLock&, Share share) noexcept {
    used_.bytes += share.bytes;
    used_.regions += share.regions;
  }
  void release(const CacheLock&, Share share) noexcept {
    used_.bytes -= share.bytes;
    used_.regions -= share.regions;
  }

  // Lowers the budget in force: the registrar had no room for `refused` bytes beside those that are charged
  // and the `pending` ones that the kernel still charges. No more than that is proved. At least one granule
  // stays.
  void shrink(const CacheLock&, uint64_t refused, uint64_t pending, uint64_t now_ns) noexcept;
  // Lets the budget in force grow back with the time that has passed; true if it did. While no region is
  // charged, it becomes the whole budget: limits learnt beside other registrations do not apply.
  bool regrow(const CacheLock&, uint64_t now_ns) noexcept;
  // Sets the budget that a peer lends, in bytes.
  void set_in_force(const CacheLock&, uint64_t bytes) noexcept;
  void reset_in_child(const CacheLock&) noexcept;

 private:
  const Share configured_;
  const size_t granule_bytes_;
  Share used_;
  uint64_t current_;
  uint64_t shrunk_at_ns_ = 0;
};

// A share of the budget for registrations that have not begun; released unless they begin.
//
// Invariant: share() and excess() are part of what is charged. The destructor releases both.
class Reservation {
 public:
  Reservation(Budget& budget, Mutex& mu) noexcept : budget_(budget), mu_(mu) {}
  ~Reservation() {
    if (share_.bytes != 0 || share_.regions != 0 || has_excess()) release_all();
  }
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  const Budget::Share& share() const noexcept { return share_; }
  bool has_excess() const noexcept { return excess_.bytes != 0 || excess_.regions != 0; }

  // Takes the share; victims that free so much, and are charged still, pay for it first. The rest of what
  // they free is excess until they are unpinned.
  void take(const CacheLock& lock, Budget::Share share) noexcept {
    budget_.take(lock, share);
    share_ = share;
  }
  void take(const CacheLock&, Budget::Share share, Budget::Share freed) noexcept;
  // Takes nothing; what the victims free is excess.
  void keep_excess(Budget::Share freed) noexcept { excess_ = freed; }
  void release_excess(const CacheLock& lock) noexcept {
    budget_.release(lock, excess_);
    excess_ = {};
  }

  // Hands a part of the share over to a registration that begins; false if there is less.
  bool consume(Budget::Share part) noexcept {
    if (share_.bytes < part.bytes || share_.regions < part.regions) return false;
    share_.bytes -= part.bytes;
    share_.regions -= part.regions;
    return true;
  }
  // Takes back a part whose registration was abandoned.
  void refund(Budget::Share part) noexcept {
    share_.bytes += part.bytes;
    share_.regions += part.regions;
  }

 private:
  void release_all() noexcept;

  Budget& budget_;
  Mutex& mu_;
  Budget::Share share_, excess_;
};

}  // namespace hydrant
