// PageStore: where an arena's pages come from and go to, and the one place that may empty them.
//
// Address space is reserved in pieces of 64 MiB and more, aligned to huge pages, announced to the process's
// monitor, and kept for good. A heap takes fresh pages with grow(), says which of them are in use with
// commit() and decommit(), and never thinks of the kernel. Memory goes back to the kernel by whole 2-MiB
// blocks in which no page is in use: emptying a part would break a huge page, and with it the cheap pin.
//
// The rule that makes pins of this memory safe to cache without any check (emptying a block):
//   1. A block that any cache has registered stays as it is. It is asked again when more blocks are to be
//      emptied. Where peers have it mapped it is theirs until they have given it back, and then too much
//      may come together: what exceeds most_kept_bytes is recalled, by invalidate() alone. Caches then end
//      their registrations, and their peers' uses before; the block is emptied by a later round.
//   2. invalidate() runs before the block is emptied: afterwards no cache answers with the old pages.
//   3. invalidate() runs again after it, because a cache may meanwhile have pinned too much: a neighbour
//      that is in use, rounded or extended into this block. Only then can the block be handed out.
// And before fresh address space is handed out, sync(): whoever had that address before is forgotten.
//
// Threads: any. One mutex, held while the kernel is called and while the monitor is: its functions allow
// that. Locks of heaps are taken before it, none after it.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/base/memory_range.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/watch/arena/reservation.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant::arena {

struct PageCounts {
  size_t reserved_bytes;     // address space
  size_t unannounced_bytes;  // of it, what the monitor could not note, or there is no monitor
  size_t touched_bytes;      // blocks that may hold memory, whole
  size_t idle_bytes;         // of them, blocks in which nothing is in use
  uint64_t emptied_bytes;    // given back to the kernel, ever
  uint64_t refusals;         // times that a block was not emptied because a cache had it registered
  size_t kept_bytes;  // idle blocks that a cache had registered, when they were last looked at
  uint64_t recalls;   // blocks that caches were told to give up, ever
};

class PageStore {
 public:
  enum class Kind : uint8_t { kPrivate, kShared };

  // keep_bytes: so much idle memory is kept before any is given back on its own. most_kept_bytes: most of it
  // that caches may keep registered before they are told to give it up.
  constexpr PageStore(Kind kind, size_t keep_bytes, size_t most_kept_bytes = SIZE_MAX) noexcept
      : kind_(kind),
        keep_bytes_(keep_bytes),
        limit_bytes_(keep_bytes),
        most_kept_bytes_(most_kept_bytes) {}
  PageStore(const PageStore&) = delete;
  PageStore& operator=(const PageStore&) = delete;

  // Fresh pages that read as zero, not in use yet; 0 with errno ENOMEM when the machine refuses.
  // Requires: bytes > 0 whole pages; alignment a power of two, at least a page.
  uintptr_t grow(size_t bytes, size_t alignment) noexcept HYDRANT_EXCLUDES(mu_);

  // The heap uses these pages from now on; it does not any more. Requires: whole pages of one reservation
  // of this store, handed out, and so far in the other state.
  void commit(MemoryRange range) noexcept HYDRANT_EXCLUDES(mu_);
  void decommit(MemoryRange range) noexcept HYDRANT_EXCLUDES(mu_);

  // Gives back every idle block that no cache has registered; answers the bytes. Cost: a look at each block.
  size_t trim() noexcept HYDRANT_EXCLUDES(mu_);

  void set_keep_bytes(size_t bytes) noexcept HYDRANT_EXCLUDES(mu_);
  // Announces all there is, and what comes. The first one is kept.
  void use_monitor(const hydrant_monitor_t* monitor) noexcept HYDRANT_EXCLUDES(mu_);
  // True once after address space was reserved that no monitor knows. Cost: a load.
  bool take_unannounced() noexcept {
    return unannounced_.load(std::memory_order_relaxed) && unannounced_.exchange(false);
  }
  PageCounts counts() noexcept HYDRANT_EXCLUDES(mu_);

  // Around a fork. In the child shared reservations are lost: the kernel did not copy them
  // (MADV_DONTFORK), their addresses stay taken and fault, and the child's next ones are its own.
  void before_fork() noexcept HYDRANT_NO_TSA { mu_.lock(); }
  void after_fork() noexcept HYDRANT_NO_TSA { mu_.unlock(); }
  void after_fork_in_child() noexcept HYDRANT_NO_TSA;

 private:
  static constexpr size_t kLeastReservation = size_t{64} << 20;
  static constexpr size_t kMostReservation = size_t{1} << 30;

  uintptr_t take_locked(Reservation* from, size_t bytes, size_t alignment) noexcept
      HYDRANT_REQUIRES(mu_);
  Reservation* reserve_locked(size_t least_bytes) noexcept HYDRANT_REQUIRES(mu_);
  Reservation* reserve_exactly_locked(size_t bytes) noexcept HYDRANT_REQUIRES(mu_);
  void announce_locked(const Reservation& reservation) noexcept HYDRANT_REQUIRES(mu_);
  size_t empty_idle_locked() noexcept HYDRANT_REQUIRES(mu_);
  bool may_empty_locked(Reservation& reservation, size_t block) noexcept HYDRANT_REQUIRES(mu_);
  void note_kept_locked(Reservation& reservation, size_t block) noexcept HYDRANT_REQUIRES(mu_);
  bool empty_locked(Reservation& reservation, size_t first, size_t count) noexcept
      HYDRANT_REQUIRES(mu_);

  const Kind kind_;
  Mutex mu_;
  const hydrant_monitor_t* monitor_ HYDRANT_GUARDED_BY(mu_) = nullptr;
  Reservation* newest_ HYDRANT_GUARDED_BY(mu_) = nullptr;
  size_t keep_bytes_ HYDRANT_GUARDED_BY(mu_);
  size_t limit_bytes_ HYDRANT_GUARDED_BY(mu_);  // idle memory beyond it starts a round of emptying
  const size_t most_kept_bytes_;
  size_t unrecalled_bytes_ HYDRANT_GUARDED_BY(mu_) =
      0;  // of kept_bytes, counted anew in each round
  PageCounts counts_ HYDRANT_GUARDED_BY(mu_) = {};
  std::atomic<bool> unannounced_{false};  // a hint: what matters is under the mutex
};

}  // namespace hydrant::arena
