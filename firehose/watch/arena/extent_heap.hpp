// ExtentHeap: the library's own allocator. Small objects come from slabs of one size class, larger ones are
// whole pages.
//
// Deliberately simple: one mutex, no per-thread caches. It is the backend if jemalloc cannot be loaded, and
// for all shared memory. Its records lie outside the memory that it hands out, so a late write of a device or
// peer into freed memory cannot corrupt them.
//
// Threads: any. Cost: an uncontended mutex and about ten nanoseconds; fresh pages add the kernel's cost.
// An invalid pointer or a double free aborts the program with a message.
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

  // Null with errno ENOMEM. Requires: bytes in 1..kMaxBytes, alignment a power of two up to kMaxBytes.
  void* allocate(size_t bytes, size_t alignment) noexcept HYDRANT_EXCLUDES(mu_);
  // These require: p lies in `in`, a reservation of this heap's store.
  void release(void* p, const AddressReservation& in) noexcept HYDRANT_EXCLUDES(mu_);
  size_t usable_bytes(const void* p, const AddressReservation& in) noexcept HYDRANT_EXCLUDES(mu_);
  // Resizes the allocation in place. False if it has to move.
  bool resize(void* p, const AddressReservation& in, size_t bytes) noexcept HYDRANT_EXCLUDES(mu_);

  size_t in_use_bytes() noexcept HYDRANT_EXCLUDES(mu_);

  // Around a fork, before and after the store's. `lost`: the memory is not mapped in the child.
  void before_fork() noexcept HYDRANT_NO_TSA { mu_.lock_uncounted(); }
  void after_fork() noexcept HYDRANT_NO_TSA { mu_.unlock_uncounted(); }
  void after_fork_in_child(bool lost) noexcept HYDRANT_NO_TSA;

 private:
  void* allocate_small_locked(unsigned size_class) noexcept HYDRANT_REQUIRES(mu_);
  Span* make_slab_locked(unsigned size_class) noexcept HYDRANT_REQUIRES(mu_);
  Span* take_pages_locked(size_t pages, size_t alignment) noexcept HYDRANT_REQUIRES(mu_);
  bool grow_locked(size_t pages, size_t alignment) noexcept HYDRANT_REQUIRES(mu_);
  void release_pages_locked(Span* span) noexcept HYDRANT_REQUIRES(mu_);
  bool resize_large_locked(Span* span, size_t pages) noexcept HYDRANT_REQUIRES(mu_);
  Span* checked_locked(const void* p, const AddressReservation& in) noexcept HYDRANT_REQUIRES(mu_);

  PageStore& store_;
  Mutex mu_;
  SpanTable spans_ HYDRANT_GUARDED_BY(mu_);
  SpanList slabs_[kSizeClasses] HYDRANT_GUARDED_BY(mu_);  // slabs with at least one free object
  size_t in_use_bytes_ HYDRANT_GUARDED_BY(mu_) = 0;
};

}  // namespace hydrant::arena
