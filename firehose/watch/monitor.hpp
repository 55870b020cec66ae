// The process's monitor of memory that goes away: a userfaultfd, a thread that reads it, and the caches
// to tell. include/hydrant/monitor.h is its face, for all copies of the library, for allocators and for
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
//
// Locks: the reader takes ranges_mu_ (a leaf) and clients_mu_, under which the caches' functions run
// and take their own mutex. Nobody waits for the reader while holding any of these, nor allocates,
// frees or registers. Around a fork nothing of this is held; see borrowed_lock.hpp.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/base/thread.hpp"
#include "firehose/range_set.hpp"
#include "firehose/watch/hooks_abi.h"
#include "firehose/watch/mapping_query.hpp"
#include "firehose/watch/removed_ranges.hpp"
#include "firehose/watch/userfault.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

class Monitor {
 public:
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

  int subscribe(const hydrant_monitor_client_t& client) noexcept HYDRANT_EXCLUDES(clients_mu_);
  void unsubscribe(int number) noexcept HYDRANT_EXCLUDES(clients_mu_);
  uint32_t cover(MemoryRange range, bool only_arenas) noexcept;
  void note_pinned(MemoryRange range) noexcept;

  // False at the deadline.
  bool settle(uint64_t timeout_ns) noexcept;
  bool quiet(uint64_t timeout_ns) noexcept;
  // quiet(), or everything is forgotten.
  void sync() noexcept;

  void invalidate(MemoryRange range) noexcept HYDRANT_EXCLUDES(clients_mu_);
  void replaced(MemoryRange range) noexcept HYDRANT_EXCLUDES(ranges_mu_)
      HYDRANT_EXCLUDES(clients_mu_);
  void forget_vouched() noexcept HYDRANT_EXCLUDES(clients_mu_);
  bool pinned(MemoryRange range) noexcept HYDRANT_EXCLUDES(clients_mu_);
  bool add_arena(MemoryRange range) noexcept;
  void drop_arena(MemoryRange range) noexcept;

  // For the only thread of a new process: no reader, nothing watched; arenas and caches stay.
  void reset_in_child() noexcept;

  // Removals are counted from 1, so that 0 can mean none. Before anybody may look.
  void begin_counting() noexcept;
  const uint64_t* blocks() const noexcept;
  const uint64_t* sequence() const noexcept;
  const uint64_t* removals() const noexcept;

 private:
  static constexpr size_t kMostClients = 64;
  static constexpr size_t kMostArenas = 4096;
  static constexpr size_t kMostRanges = 65536;
  static constexpr MemoryRange kAllMemory{4096, UINTPTR_MAX - 65536};

  struct Arena {
    std::atomic<uintptr_t> addr{0};  // 0: free
    std::atomic<size_t> len{0};
    std::atomic<uint64_t> version{0};  // odd while the two are being written
  };

  bool map_tables() noexcept;
  void show_blocks() noexcept;
  bool start_reader() noexcept;
  static void* reader_main(void* self);
  void read_forever() noexcept;
  void stop_watching() noexcept;
  void take_changes() noexcept HYDRANT_EXCLUDES(ranges_mu_) HYDRANT_EXCLUDES(clients_mu_);
  void apply(const MemoryChange& change) noexcept HYDRANT_EXCLUDES(ranges_mu_)
      HYDRANT_EXCLUDES(clients_mu_);
  void tell(MemoryRange range) noexcept HYDRANT_EXCLUDES(clients_mu_);

  bool in_arena(MemoryRange range) const noexcept;
  bool watch(MemoryRange range) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  bool watch_mapping(uintptr_t addr, uintptr_t* end) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  bool removal_under_way(MemoryRange range) noexcept HYDRANT_EXCLUDES(ranges_mu_);
  bool callers_returned(uint64_t removal) const noexcept;
  bool hooks_complete() const noexcept;
  bool in_libc_heap(MemoryRange range) const noexcept;

  Mutex start_mu_;  // outermost: held while the reader is started
  std::atomic<bool> running_{false};
  std::atomic<bool> reader_begun_{false};
  bool refused_ HYDRANT_GUARDED_BY(start_mu_) = false;
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
  // Number of the newest removal taken, from 1. Written by the reader alone.
  alignas(64) std::atomic<uint64_t> removals_{0};

  alignas(64) Mutex ranges_mu_;
  RangeSet watched_ HYDRANT_GUARDED_BY(ranges_mu_);  // registered with the userfaultfd
  RemovedRanges removed_ HYDRANT_GUARDED_BY(ranges_mu_);
  uint64_t changes_ HYDRANT_GUARDED_BY(ranges_mu_) = 0;  // applied so far

  Mutex clients_mu_;
  struct Client {
    hydrant_monitor_client_t is;
    bool used;
  };
  Client clients_[kMostClients] HYDRANT_GUARDED_BY(clients_mu_) = {};

  // Without a lock: allocators add and drop under locks of their own, also while somebody forks.
  Arena arenas_[kMostArenas];
  std::atomic<uint32_t> arena_high_{0};
};

// The monitor that serves the process: the first that the dynamic linker finds, else this copy's.
const hydrant_monitor_t* find_monitor() noexcept;

}  // namespace hydrant
