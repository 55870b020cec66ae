// The arenas of the process. Private memory comes from jemalloc or the library's own heap (backend.hpp),
// shared memory from the own heap only. Announces memory to the monitor, handles forks.
//
// Shared memory never comes from jemalloc: jemalloc keeps its records inside its arenas, and in the child of
// a fork, where shared arenas are not mapped, it would fault on them.
//
// Locks, in order: jemalloc's or a heap's, then a store's. Symbols are looked up without any of these locks.
#pragma once

#include "firehose/watch/arena/backend.hpp"
#include "firehose/watch/arena/extent_heap.hpp"
#include "firehose/watch/arena/page_store.hpp"

#include <atomic>
#include <cstddef>

namespace hydrant::arena {

// More than any machine has, but sums of several cannot wrap.
constexpr size_t kMaxBytes = size_t{1} << 46;

class Arenas {
 public:
  constexpr Arenas() noexcept = default;
  Arenas(const Arenas&) = delete;
  Arenas& operator=(const Arenas&) = delete;

  // The instance of this library.
  static Arenas& instance() noexcept;

  // Requires: bytes in 1..kMaxBytes, alignment a power of two up to kMaxBytes.
  void* allocate(size_t bytes, size_t alignment) noexcept;
  void* allocate_shared(size_t bytes, size_t alignment) noexcept;
  // Requires: p is an allocation; any other pointer aborts the program with a message.
  void release(void* p) noexcept;
  void* reallocate(void* p, size_t bytes) noexcept;
  size_t usable_bytes(const void* p) noexcept;

  size_t trim() noexcept;
  void announce() noexcept;

  Backend& backend() noexcept { return backend_; }
  bool has_monitor() const noexcept { return monitor_known_.load(std::memory_order_relaxed); }
  struct Usage {
    PageStoreStats counts;
    size_t in_use_bytes;
  };
  Usage usage(PageStore::Kind kind) noexcept;

  void before_fork() noexcept;
  void after_fork() noexcept;
  void after_fork_in_child() noexcept;

  // For jemalloc's extent hooks.
  PageStore& private_store() noexcept { return private_store_; }

 private:
  // Free memory that the own heaps keep, so that memory that is soon reused is not emptied in between.
  // jemalloc has its own delay.
  static constexpr size_t kKeepBytes = size_t{64} << 20;

  // Limit on free shared memory that peers keep mapped. Private memory has no such limit: no peer maps it.
  static constexpr size_t kMaxKeptBytes = size_t{1} << 30;

  // Announces newly reserved memory before an allocation returns part of it.
  void announce_fresh() noexcept {
    const bool private_grew = private_store_.take_unannounced();
    const bool shared_grew = shared_store_.take_unannounced();
    if (private_grew || shared_grew) announce();
  }
  void* move(void* p, const AddressReservation& from, size_t bytes) noexcept;
  ExtentHeap& heap_of(const AddressReservation& in) noexcept {
    return in.store == &shared_store_ ? shared_heap_ : private_heap_;
  }

  PageStore private_store_{PageStore::Kind::kPrivate, kKeepBytes};
  PageStore shared_store_{PageStore::Kind::kShared, kKeepBytes, kMaxKeptBytes};
  ExtentHeap private_heap_{private_store_};
  ExtentHeap shared_heap_{shared_store_};
  Backend backend_{private_store_, kKeepBytes};

  std::atomic<bool> monitor_known_{false};
};

}  // namespace hydrant::arena
