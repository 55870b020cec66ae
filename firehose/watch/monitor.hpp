// The process's monitor of memory that goes away: a userfaultfd, a thread that reads it, and the caches
// to tell. include/hydrant/monitor.h is its interface, for all copies of the library, for allocators and for
// the hooks.
//
// Why what it says can be relied on, layer by layer: docs/pin_cache.md, "Coherence". In short:
//  - The reader makes `sequence_` odd before it takes changes from the kernel and even when every cache
//    has forgotten them. A call that released memory returns after its change was read; so whoever
//    returned from it, or was told by who did, and then sees an even sequence, looks into caches that
//    know.
//  - Memory can be mapped again before the change that freed it was read. While such a change is under
//    way the kernel answers EAGAIN (userfault.hpp): quiet() waits for that to end, and then for the
//    reader.
//  - A removal is reported before it happens: what was removed is not cacheable until its caller has
//    returned, which only the hooks can tell (removed_ranges.hpp).
//  - Hits without a check rest on every acquisition passing a hook. A change that no hooked call explains
//    proves that some do not: from then on hits are checked (monitor_raw.cpp).
//
// Locks: a thread that releases memory sleeps in the kernel until the reader has read, and may do so in a
// signal handler, whatever the interrupted code holds. So the reader waits for no mutex that a handler
// can find held:
//  - The reader calls the caches without a lock, and they work without their own mutex (the client's
//    functions, monitor.h).
//  - The reader tries ranges_mu_ (a leaf) for a short time, and postpones a change that it cannot enter:
//    `is_behind_` keeps memory from being cached meanwhile, and `events_lost_` makes the next holder drop the
//    set.
//  - start_mu_ and the mutexes of unwatch_unused() are held with all signals blocked.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/base/range_set.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/watch/hooked_calls_under_way.hpp"
#include "firehose/watch/hooks_abi.h"
#include "firehose/watch/mapping_query.hpp"
#include "firehose/watch/removed_ranges.hpp"
#include "firehose/watch/userfault.hpp"

#include <atomic>
#include <cstdint>
#include <sys/types.h>

namespace hydrant {

class Monitor {
 public:
  static constexpr MemoryRange kAllMemory{4096, UINTPTR_MAX - 65536};
  constexpr Monitor() noexcept = default;
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // This copy's monitor, which may not be the one that serves the process (find_monitor()).
  static Monitor& own() noexcept;

  // Starts the reader, once. False, and reason() says why, if the kernel's reports are not to be had.
  bool start() noexcept HYDRANT_EXCLUDES(start_mu_);
  const char* reason() const noexcept {
    const char* reason = reason_.load(std::memory_order_acquire);
    return reason != nullptr ? reason : "";
  }

  int subscribe(const hydrant_monitor_client_t& client) noexcept;
  void unsubscribe(int number) noexcept;
  bool set_end_free_hits(int number, void (*end)(void* context)) noexcept;
  bool set_unmapped(int number,
                    void (*unmapped)(void* context, uintptr_t addr, size_t len)) noexcept;
  bool set_wanted(int number, void (*wanted)(void* context)) noexcept;
  // `flags`: HYDRANT_COVER_ONLY_*.
  uint32_t cover(MemoryRange range, uint32_t flags) noexcept;
  void note_pinned(MemoryRange range) noexcept;

  // False at the deadline.
  bool settle(uint64_t timeout_ns) noexcept;
  // Waits for releases that may be of this range.
  bool quiet(MemoryRange range, uint64_t timeout_ns) noexcept;
  // quiet(), or everything is forgotten.
  void sync() noexcept;
  // The range is new to the caller. Waits for no call: if a release is under way, the range is forgotten.
  void sync(MemoryRange range) noexcept HYDRANT_EXCLUDES(ranges_mu_);

  void invalidate(MemoryRange range) noexcept;
  void replaced(MemoryRange range) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  void forget_vouched() noexcept;
  bool pinned(MemoryRange range) noexcept;
  // Stops watching what no cache has any more (monitor_unwatch.cpp).
  void unwatch_unused() noexcept HYDRANT_EXCLUDES(ranges_mu_);
  // The same for memory that another userfaultfd is to have: caches forget it first. False if a part of it
  // is still watched at the deadline.
  bool unwatch_range(MemoryRange range, uint64_t timeout_ns) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  // Of its own accord, so only what costs little: nothing where hooks make room, else small mappings.
  void unwatch_idle() noexcept HYDRANT_EXCLUDES(ranges_mu_);
  // Something else may have ended the kernel's reports: caches forget the range.
  void not_watched(MemoryRange range) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  // `kept`: pinned memory stays in place.
  bool add_arena(MemoryRange range, bool kept) noexcept;
  void drop_arena(MemoryRange range) noexcept;

  // For the only thread of a new process: no reader, nothing watched; arenas and caches stay.
  void reset_in_child() noexcept;

  // Removals are counted from 1, so that 0 can mean none. Before anybody may look.
  void begin_counting() noexcept;
  const uint64_t* blocks() const noexcept;
  const uint64_t* sequence() const noexcept;
  const uint64_t* removals() const noexcept;
  const uint32_t* checked() const noexcept;
  const uint64_t* raw_changes() const noexcept;

 private:
  static constexpr size_t kMaxClients = 64;
  static constexpr size_t kMaxArenas = 4096;
  static constexpr size_t kMaxRanges = 65536;
  static constexpr size_t kMaxDeferred = 256;

  struct Arena {
    std::atomic<uintptr_t> addr{0};  // 0: free
    std::atomic<size_t> len{0};
    std::atomic<bool> kept{false};
    std::atomic<uint64_t> version{0};  // odd while the others are being written
  };

  bool map_tables() noexcept;
  void show_blocks() noexcept;
  bool start_reader() noexcept;
  bool start_parts(const char** reason) noexcept HYDRANT_REQUIRES(start_mu_);
  static void* reader_main(void* self);
  void read_forever() noexcept;
  void stop_watching() noexcept;
  void take_changes() noexcept HYDRANT_EXCLUDES(ranges_mu_);
  void apply(const MemoryChange& change) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  void enter_locked(const MemoryChange& change, uint64_t removal) HYDRANT_REQUIRES(ranges_mu_);
  void defer_removal(const MemoryChange& change, uint64_t removal) noexcept;
  bool add_deferred(bool impatient) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  void forget(MemoryRange range) noexcept;
  void forget_unmapped(MemoryRange range) noexcept;
  void drop_watched(MemoryRange range) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  void notify_wanted() noexcept;
  template <class Call>
  void each_client(const Call& call) noexcept;

  bool looks_for_raw_changes() const noexcept;
  void note_stacks(MemoryRange mapping) noexcept HYDRANT_REQUIRES(ranges_mu_);
  bool is_of_stack(const MemoryChange& change) const noexcept HYDRANT_REQUIRES(ranges_mu_);
  bool may_be_hooked() noexcept HYDRANT_EXCLUDES(ranges_mu_);
  bool is_explained(const MemoryChange& change) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  bool knows_caller(const MemoryChange& removal) noexcept;
  void check_all_hits() noexcept;
  void end_free_hits() noexcept;
  static void report_raw(const MemoryChange& change) noexcept;
  const MemoryChange* look_for_raw(const MemoryChange* changes, size_t n,
                                   bool caller_found) noexcept;

  bool in_arena(MemoryRange range, bool only_kept) const noexcept;
  bool watch(MemoryRange range) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  bool watch_mapping(uintptr_t addr, uintptr_t* end) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  bool register_mapping(uintptr_t addr, Mapping* found, bool* needed) noexcept
      HYDRANT_REQUIRES(watching_mu_);
  bool removal_under_way(MemoryRange range) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  bool is_catching_up() noexcept;
  void drop_watched_after_loss_locked() HYDRANT_REQUIRES(ranges_mu_);
  void note_lost_events() noexcept;
  bool next_to_unwatch_locked(uintptr_t* from, uintptr_t end, MemoryRange* range)
      HYDRANT_REQUIRES(ranges_mu_);
  struct UnwatchRequest {
    MemoryRange range;
    size_t max_bytes = SIZE_MAX;  // larger ranges stay watched
    uint64_t deadline_ns = UINT64_MAX;
  };
  bool unwatch_some(uintptr_t* from, const UnwatchRequest& what) noexcept
      HYDRANT_EXCLUDES(ranges_mu_);
  bool unwatch_some_locked(uintptr_t* from, const UnwatchRequest& what) noexcept
      HYDRANT_REQUIRES(watching_mu_) HYDRANT_EXCLUDES(ranges_mu_);
  bool unwatch_one(MemoryRange range) noexcept HYDRANT_REQUIRES(watching_mu_)
      HYDRANT_REQUIRES(reading_mu_) HYDRANT_EXCLUDES(ranges_mu_);
  bool unwatch_all(const UnwatchRequest& what) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  bool unwatch(MemoryRange range) noexcept;
  void forget_ended_removals(MemoryRange range) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  bool watches_any(MemoryRange range) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  bool callers_returned(uint64_t removal) const noexcept;
  uint64_t begin_grace_period() noexcept;
  uint64_t next_reading_done() const noexcept;
  bool hooks_complete() const noexcept;
  bool in_libc_heap(MemoryRange range) const noexcept;

  Mutex start_mu_;  // outermost: held, with signals blocked, while the reader is started
  std::atomic<bool> running_{false};
  std::atomic<bool> reader_begun_{false};
  std::atomic<bool> refused_{false};  // written under start_mu_
  std::atomic<const char*> reason_{nullptr};
  Userfault userfault_;
  MappingQuery mappings_;
  MemoryRange statics_{};             // find_static_memory(); set before running_
  hydrant_hooks_t* hooks_ = nullptr;  // set before running_
  // 1 bit per 2 MiB of user addresses; never cleared.
  MappedArray<std::atomic<uint64_t>> blocks_;
  std::atomic<bool> tables_mapped_{false};  // blocks_ may be looked at, and stays

  // Odd while changes were taken and not everybody has forgotten. Written by the reader alone.
  alignas(64) std::atomic<uint64_t> sequence_{0};
  // Nonzero, for good: no hit on memory that the kernel watches is free.
  std::atomic<uint32_t> checked_{0};
  std::atomic<uint64_t> raw_changes_{0};  // seen while hits were free
  HookedCallsUnderWay hooked_calls_;      // used by the reader only, except next_stack()

  // Number of the newest removal taken, or of the newest grace period, from 1.
  alignas(64) std::atomic<uint64_t> removals_{0};

  // Registrations with the userfaultfd, and their end: see unwatch_unused(). Order: watching_mu_,
  // reading_mu_, ranges_mu_. The reader takes only reading_mu_, to read and apply; other threads take it with
  // signals blocked.
  Mutex watching_mu_, reading_mu_;

  alignas(64) Mutex ranges_mu_;
  RangeSet watched_ HYDRANT_GUARDED_BY(ranges_mu_);  // registered with the userfaultfd
  RemovedRanges removed_ HYDRANT_GUARDED_BY(ranges_mu_);
  // Changes applied so far. Without the mutex the reader writes this first and events_lost_ second, so that
  // a miss that has dropped the set sees that its earlier answers may be outdated.
  std::atomic<uint64_t> changes_{0};
  // unwatch_unused() goes on, and may stop watching what it found in watched_ before.
  std::atomic<bool> unwatching_{false};
  std::atomic<bool> events_lost_{false};  // watched_ has ranges too many: the next holder drops it
  // Changes that the reader could not enter yet, for the reader only; is_behind_: there are some.
  struct DeferredRemoval {
    MemoryChange change;
    uint64_t removal;
  };
  DeferredRemoval deferred_[kMaxDeferred] = {};
  size_t deferred_count_ = 0;
  std::atomic<bool> is_behind_{false};
  // Mappings in which threads were found to live: libc unmaps them in whatever thread joins another.
  RangeSet stacks_ HYDRANT_GUARDED_BY(ranges_mu_);  // the thread descriptors in watched memory
  std::atomic<bool> has_stacks_{false};

  // Without a lock: any number of threads call a client, and so do handlers that interrupt them.
  enum ClientState : uint32_t { kFree, kBeingWritten, kUsed, kLeaving };
  struct Client {
    hydrant_monitor_client_t is;
    std::atomic<void (*)(void* context)> end_free_hits{nullptr};  // null: it has none
    std::atomic<void (*)(void* context, uintptr_t addr, size_t len)> unmapped{nullptr};  // the same
    std::atomic<void (*)(void* context)> wanted{nullptr};                                // the same
    std::atomic<uint32_t> state{kFree};
    std::atomic<uint32_t> inside{0};  // calls of its functions; counted before `state` is looked at
  };
  // Null if `number` is not subscribed.
  Client* find_client(int number) noexcept;
  Client clients_[kMaxClients] = {};

  // Without a lock: allocators add and drop under locks of their own, also while somebody forks.
  Arena arenas_[kMaxArenas];
  std::atomic<uint32_t> arena_high_{0};
};

// The monitor that serves the process: the first that the dynamic linker finds, else this copy's.
const hydrant_monitor_t* find_monitor() noexcept;

}  // namespace hydrant
