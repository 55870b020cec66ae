// ExtentHeap: the allocator of our own. Small memory comes from slabs of one size class, the rest is
// whole pages.
//
// Simple on purpose: one mutex, no caches per thread. It serves where jemalloc cannot be loaded, and all
// memory that other processes map. What it knows of an allocation lies outside the memory it hands out: a
// device or a peer that writes late into freed memory cannot damage it.
//
// Threads: any. Cost: an uncontended mutex and some ten nanoseconds; fresh pages cost what the kernel takes.
// A pointer that is not an allocation, or is freed twice, ends the program with a message.
#pragma once

#include "firehose/base/thread.hpp"
#include "firehose/watch/arena/page_store.hpp"
#include "firehose/watch/arena/span_table.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant::arena {

class ExtentHeap {
 public:
  constexpr explicit ExtentHeap(PageStore& store) noexcept : store_(store) {}
  ExtentHeap(const ExtentHeap&) = delete;
  ExtentHeap& operator=(const ExtentHeap&) = delete;

  // Null with errno ENOMEM. Requires: bytes in 1..kMostBytes, alignment a power of two up to kMostBytes.
  void* allocate(size_t bytes, size_t alignment) noexcept HYDRANT_EXCLUDES(mu_);
  // Requires of all these: p lies in `in`, a reservation of this heap's store.
  void release(void* p, const Reservation& in) noexcept HYDRANT_EXCLUDES(mu_);
  size_t usable_bytes(const void* p, const Reservation& in) noexcept HYDRANT_EXCLUDES(mu_);
  // Makes it hold `bytes`, where it is. False if it has to move.
  bool resize(void* p, const Reservation& in, size_t bytes) noexcept HYDRANT_EXCLUDES(mu_);

  size_t in_use_bytes() noexcept HYDRANT_EXCLUDES(mu_);

  // Around a fork, before and after the store's. `lost`: the memory is not mapped in the child.
  void before_fork() noexcept HYDRANT_NO_TSA { mu_.lock(); }
  void after_fork() noexcept HYDRANT_NO_TSA { mu_.unlock(); }
  void after_fork_in_child(bool lost) noexcept HYDRANT_NO_TSA;

 private:
  void* allocate_small_locked(unsigned size_class) noexcept HYDRANT_REQUIRES(mu_);
  Span* make_slab_locked(unsigned size_class) noexcept HYDRANT_REQUIRES(mu_);
  Span* take_pages_locked(size_t pages, size_t alignment) noexcept HYDRANT_REQUIRES(mu_);
  bool grow_locked(size_t pages, size_t alignment) noexcept HYDRANT_REQUIRES(mu_);
  void give_pages_locked(Span* span) noexcept HYDRANT_REQUIRES(mu_);
  bool resize_large_locked(Span* span, size_t pages) noexcept HYDRANT_REQUIRES(mu_);
  Span* checked_locked(const void* p, const Reservation& in) noexcept HYDRANT_REQUIRES(mu_);

  PageStore& store_;
  Mutex mu_;
  SpanTable spans_ HYDRANT_GUARDED_BY(mu_);
  SpanList slabs_[kSizeClasses] HYDRANT_GUARDED_BY(mu_);  // with room for one object at least
  size_t in_use_bytes_ HYDRANT_GUARDED_BY(mu_) = 0;
};

}  // namespace hydrant::arena
