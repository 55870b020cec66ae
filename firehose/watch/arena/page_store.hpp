// PageStore: the source of an arena's pages, and the only code that may empty them.
//
// It reserves address space in pieces of at least 64 MiB, aligned to huge pages, announces them to the
// process's monitor, and never releases them. A heap takes fresh pages with grow() and reports use with
// commit() and decommit(). Memory returns to the kernel in whole 2-MiB blocks in which no page is in use:
// emptying a part would split a huge page and make its pins expensive.
//
// The rule for emptying a block. It makes pins of this memory safe to cache without any check:
//   1. A block that any cache has registered stays. The next round checks it again. Peers that map a block
//      own it until they release it, so too many kept blocks may accumulate: invalidate() alone recalls the
//      excess over max_kept_bytes. Caches then end their registrations, after the uses of their peers; a
//      later round empties the block.
//   2. invalidate() runs before the block is emptied: afterwards no cache hits the old pages.
//   3. invalidate() runs again afterwards: a cache may meanwhile have pinned memory beside the block, rounded
//      or extended into it. Only then may the block be handed out.
// Rule 1, and mappings that stay, make these kept arenas (monitor.h): no registration outlives its memory.
// Before fresh address space is handed out, sync() makes caches forget earlier mappings at these addresses.
//
// Threads: any. One mutex, held during calls of the kernel and of the monitor, whose functions permit that.
// Locks of heaps are taken before it, none after it.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/base/memory_range.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/watch/arena/address_reservation.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant::arena {

struct PageStoreStats {
  size_t reserved_bytes;     // address space
  size_t unannounced_bytes;  // part of it that no monitor has accepted
  size_t touched_bytes;      // bytes of blocks that may hold memory
  size_t idle_bytes;         // part of them without a page in use
  uint64_t emptied_bytes;    // total returned to the kernel
  uint64_t refusals;         // times that a block was not emptied because a cache had it registered
  size_t kept_bytes;         // idle bytes that a cache had registered at the last check
  uint64_t recalls;          // total blocks recalled from caches
};

class PageStore {
 public:
  enum class Kind : uint8_t { kPrivate, kShared };

  // keep_bytes: idle memory that is kept before a round of emptying starts. max_kept_bytes: idle memory that
  // caches may keep registered before it is recalled.
  constexpr PageStore(Kind kind, size_t keep_bytes, size_t max_kept_bytes = SIZE_MAX) noexcept
      : kind_(kind),
        keep_bytes_(keep_bytes),
        limit_bytes_(keep_bytes),
        max_kept_bytes_(max_kept_bytes) {}
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  // Fresh pages that read as zero, not committed; 0 with errno ENOMEM if the system refuses.
  // Requires: bytes > 0 whole pages; alignment a power of two, at least a page.
  uintptr_t grow(size_t bytes, size_t alignment) noexcept HYDRANT_EXCLUDES(mu_);

  // commit(): the heap uses these pages from now on. decommit(): it no longer does. Requires: whole pages of
  // one reservation of this store, handed out, and currently in the other state.
  void commit(MemoryRange range) noexcept HYDRANT_EXCLUDES(mu_);
  void decommit(MemoryRange range) noexcept HYDRANT_EXCLUDES(mu_);

  // Empties every idle block that no cache has registered; returns the bytes. Cost: a check per block.
  size_t trim() noexcept HYDRANT_EXCLUDES(mu_);

  void set_keep_bytes(size_t bytes) noexcept HYDRANT_EXCLUDES(mu_);
  // Announces all current and future reservations to it. The first monitor is kept.
  void use_monitor(const hydrant_monitor_t* monitor) noexcept HYDRANT_EXCLUDES(mu_);
  // True once after an unannounced reservation was made. Cost: a load.
  bool take_unannounced() noexcept {
    return unannounced_.load(std::memory_order_relaxed) && unannounced_.exchange(false);
  }
  PageStoreStats counts() noexcept HYDRANT_EXCLUDES(mu_);

  // Around a fork. Shared reservations are lost in the child: the kernel does not copy them (MADV_DONTFORK).
  // Their addresses stay reserved and fault; the child makes its own.
  void before_fork() noexcept HYDRANT_NO_TSA { mu_.lock_uncounted(); }
  void after_fork() noexcept HYDRANT_NO_TSA { mu_.unlock_uncounted(); }
  void after_fork_in_child() noexcept HYDRANT_NO_TSA;

 private:
  static constexpr size_t kMinReservation = size_t{64} << 20;
  static constexpr size_t kMaxReservation = size_t{1} << 30;

  uintptr_t take_locked(AddressReservation* from, size_t bytes, size_t alignment) noexcept
      HYDRANT_REQUIRES(mu_);
  AddressReservation* reserve_locked(size_t min_bytes) noexcept HYDRANT_REQUIRES(mu_);
  AddressReservation* reserve_exactly_locked(size_t bytes) noexcept HYDRANT_REQUIRES(mu_);
  void announce_locked(const AddressReservation& reservation) noexcept HYDRANT_REQUIRES(mu_);
  size_t empty_idle_locked() noexcept HYDRANT_REQUIRES(mu_);
  bool may_empty_locked(AddressReservation& reservation, size_t block) noexcept
      HYDRANT_REQUIRES(mu_);
  void note_kept_locked(AddressReservation& reservation, size_t block) noexcept
      HYDRANT_REQUIRES(mu_);
  bool empty_locked(AddressReservation& reservation, size_t first, size_t count) noexcept
      HYDRANT_REQUIRES(mu_);

  const Kind kind_;
  Mutex mu_;
  const hydrant_monitor_t* monitor_ HYDRANT_GUARDED_BY(mu_) = nullptr;
  AddressReservation* newest_ HYDRANT_GUARDED_BY(mu_) = nullptr;
  size_t keep_bytes_ HYDRANT_GUARDED_BY(mu_);
  size_t limit_bytes_
      HYDRANT_GUARDED_BY(mu_);  // more idle memory than this starts a round of emptying
  const size_t max_kept_bytes_;
  // Part of kept_bytes, computed anew in each round.
  size_t unrecalled_bytes_ HYDRANT_GUARDED_BY(mu_) = 0;
  PageStoreStats counts_ HYDRANT_GUARDED_BY(mu_) = {};
  std::atomic<bool> unannounced_{false};  // a hint: the exact state is under the mutex
};

}  // namespace hydrant::arena
