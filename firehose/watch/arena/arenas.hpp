// The arenas of the process: private memory from jemalloc or our own heap, shared memory from our own
// heap alone; which of them it is and why; the monitor they tell; and what happens to them in a fork.
//
// Shared memory never comes from jemalloc, which keeps its records inside its arenas: the child of a
// fork, where that memory is not mapped, would trip over them.
//
// Locks, in order: jemalloc's or a heap's, a store's. None is held while symbols are looked up.
#pragma once

#include "firehose/watch/arena/extent_heap.hpp"
#include "firehose/watch/arena/jemalloc/jemalloc_abi.hpp"
#include "firehose/watch/arena/page_store.hpp"

#include <atomic>
#include <cstddef>

namespace hydrant::arena {

// More than any machine has; small enough that sums of a few cannot wrap.
constexpr size_t kMostBytes = size_t{1} << 46;

class Arenas {
 public:
  constexpr Arenas() noexcept = default;
  Arenas(const Arenas&) = delete;
  Arenas& operator=(const Arenas&) = delete;

  // The one of this library.
  static Arenas& instance() noexcept;

  // Requires: bytes in 1..kMostBytes, alignment a power of two up to kMostBytes.
  void* allocate(size_t bytes, size_t alignment) noexcept;
  void* allocate_shared(size_t bytes, size_t alignment) noexcept;
  // Requires: p is an allocation; anything else ends the program with a message.
  void release(void* p) noexcept;
  void* reallocate(void* p, size_t bytes) noexcept;
  size_t usable_bytes(const void* p) noexcept;

  size_t trim() noexcept;
  void announce() noexcept;

  bool uses_jemalloc() noexcept { return jemalloc() != nullptr; }
  const char* reason() noexcept;
  bool has_monitor() const noexcept { return monitor_known_.load(std::memory_order_relaxed); }
  PageCounts counts(PageStore::Kind kind) noexcept;
  size_t in_use_bytes(PageStore::Kind kind) noexcept;

  void before_fork() noexcept;
  void after_fork() noexcept;
  void after_fork_in_child() noexcept;

  // For jemalloc's hooks.
  PageStore& private_store() noexcept { return private_store_; }

 private:
  // Free memory that our own heaps keep, so that what is used again at once is not emptied in between.
  // jemalloc decides by itself how long to wait.
  static constexpr size_t kKeepBytes = size_t{64} << 20;
  static constexpr size_t kReasonBytes = 320;

  // Free memory that peers may keep mapped. What is private no peer has mapped: caches keep it as they like.
  static constexpr size_t kMostKeptBytes = size_t{1} << 30;

  enum class Choice : uint8_t { kNone, kJemalloc, kExtents };

  const JemallocTable* jemalloc() noexcept {
    // Pairs with the release in choose(): the table and the reason are seen with it.
    if (choice_.load(std::memory_order_acquire) == Choice::kNone) choose();
    return table_;
  }
  void choose() noexcept;
  // Announces what was reserved before the caller of an allocation sees any of it.
  void announce_fresh() noexcept {
    const bool private_grew = private_store_.take_unannounced();
    const bool shared_grew = shared_store_.take_unannounced();
    if (private_grew || shared_grew) announce();
  }
  void* move(void* p, const Reservation& from, size_t bytes) noexcept;
  ExtentHeap& heap_of(const Reservation& in) noexcept {
    return in.store == &shared_store_ ? shared_heap_ : private_heap_;
  }

  PageStore private_store_{PageStore::Kind::kPrivate, kKeepBytes};
  PageStore shared_store_{PageStore::Kind::kShared, kKeepBytes, kMostKeptBytes};
  ExtentHeap private_heap_{private_store_};
  ExtentHeap shared_heap_{shared_store_};

  std::atomic<Choice> choice_{Choice::kNone};
  std::atomic<bool> monitor_known_{false};
  Mutex choice_mu_;                       // a leaf
  const JemallocTable* table_ = nullptr;  // written once, under choice_mu_, before choice_
  char reason_[kReasonBytes] = {};        // the same
};

}  // namespace hydrant::arena
