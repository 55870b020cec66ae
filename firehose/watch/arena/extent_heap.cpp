// Implements the library's own allocator: slabs of small objects and spans of pages. Arenas calls it without
// jemalloc and for shared memory; it takes pages from page_store.cpp.
#include "firehose/watch/arena/extent_heap.hpp"

#include "firehose/watch/arena/fatal.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace hydrant::arena {
namespace {

constexpr size_t kBitsPerWord = 64;

// Least growth, so that the spans of a heap are contiguous.
constexpr size_t kMinGrowthPages = 4 * kBlockPages;

size_t object_index(const Span& slab, const void* p) noexcept {
  return (reinterpret_cast<uintptr_t>(p) - slab.addr) / class_bytes(slab.size_class);
}

uint64_t bit_of(size_t index) noexcept { return uint64_t{1} << (index % kBitsPerWord); }

// Requires: slab.used < slab.capacity.
size_t take_object(Span& slab) noexcept {
  for (size_t word = 0;; ++word) {
    const uint64_t taken = slab.bits[word];
    if (taken == UINT64_MAX) continue;
    const size_t index = word * kBitsPerWord + static_cast<size_t>(std::countr_one(taken));
    slab.bits[word] |= bit_of(index);
    ++slab.used;
    return index;
  }
}

MemoryRange range_of(const Span& span) noexcept { return {span.addr, span.bytes()}; }

}  // namespace

void* ExtentHeap::allocate(size_t bytes, size_t alignment) noexcept {
  MutexLock lock(mu_);
  const size_t padded = std::max(bytes, round_up(bytes, alignment));
  if (padded <= kMaxSmallBytes && alignment <= kPageBytes) {
    return allocate_small_locked(class_of(padded));
  }
  const size_t pages = round_up(bytes, kPageBytes) / kPageBytes;
  Span* span = take_pages_locked(pages, std::max(alignment, kPageBytes));
  if (span == nullptr) return nullptr;
  span->kind = SpanKind::kLarge;
  in_use_bytes_ += span->bytes();
  return reinterpret_cast<void*>(span->addr);
}

void* ExtentHeap::allocate_small_locked(unsigned size_class) noexcept {
  Span* slab = slabs_[size_class].first();
  if (slab == nullptr) slab = make_slab_locked(size_class);
  if (slab == nullptr) return nullptr;
  const size_t index = take_object(*slab);
  if (slab->used == slab->capacity) slabs_[size_class].remove(slab);
  in_use_bytes_ += class_bytes(size_class);
  return reinterpret_cast<void*>(slab->addr + index * class_bytes(size_class));
}

Span* ExtentHeap::make_slab_locked(unsigned size_class) noexcept {
  Span* slab = take_pages_locked(slab_pages(size_class), kPageBytes);
  if (slab == nullptr) return nullptr;
  slab->size_class = static_cast<uint8_t>(size_class);
  slab->used = 0;
  slab->capacity = static_cast<uint16_t>(slab->bytes() / class_bytes(size_class));
  std::memset(slab->bits, 0, sizeof slab->bits);
  // Bits beyond the capacity stay set.
  for (size_t i = slab->capacity; i < kMaxSlabObjects; ++i)
    slab->bits[i / kBitsPerWord] |= bit_of(i);
  slab->kind = SpanKind::kSlab;
  SpanTable::enter(slab);
  slabs_[size_class].push(slab);
  return slab;
}

Span* ExtentHeap::take_pages_locked(size_t pages, size_t alignment) noexcept {
  Span* span = spans_.take(pages, alignment);
  if (span == nullptr && grow_locked(pages, alignment)) span = spans_.take(pages, alignment);
  if (span == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  store_.commit(range_of(*span));
  return span;
}

bool ExtentHeap::grow_locked(size_t pages, size_t alignment) noexcept {
  const size_t wanted = round_up(std::max(pages, kMinGrowthPages), kBlockPages) * kPageBytes;
  const uintptr_t addr = store_.grow(wanted, std::max(alignment, kBlockBytes));
  if (addr == 0) return false;
  AddressReservation* in = address_map().find(reinterpret_cast<const void*>(addr));
  Span* span = spans_.make(in, addr, wanted / kPageBytes, SpanKind::kFree);
  if (span == nullptr) return false;  // leaks only address space
  spans_.give(span);
  return true;
}

void ExtentHeap::release_pages_locked(Span* span) noexcept {
  const MemoryRange range = range_of(*span);
  spans_.give(span);
  // Last, and still under mu_: no other thread may commit these pages before.
  store_.decommit(range);
}

Span* ExtentHeap::checked_locked(const void* p, const AddressReservation& in) noexcept {
  const auto addr = reinterpret_cast<uintptr_t>(p);
  Span* span = SpanTable::find(in, addr);
  if (span == nullptr || span->kind == SpanKind::kFree) fatal("not allocated, or freed already", p);
  if (span->kind == SpanKind::kLarge) {
    if (addr != span->addr) fatal("not the start of an allocation", p);
    return span;
  }
  const size_t index = object_index(*span, p);
  const bool at_start = (addr - span->addr) % class_bytes(span->size_class) == 0;
  if (!at_start || index >= span->capacity) fatal("not the start of an allocation", p);
  if ((span->bits[index / kBitsPerWord] & bit_of(index)) == 0) fatal("freed already", p);
  return span;
}

void ExtentHeap::release(void* p, const AddressReservation& in) noexcept {
  MutexLock lock(mu_);
  Span* span = checked_locked(p, in);
  if (span->kind == SpanKind::kLarge) {
    in_use_bytes_ -= span->bytes();
    release_pages_locked(span);
    return;
  }
  const unsigned size_class = span->size_class;
  const size_t index = object_index(*span, p);
  in_use_bytes_ -= class_bytes(size_class);
  span->bits[index / kBitsPerWord] &= ~bit_of(index);
  if (span->used-- == span->capacity) slabs_[size_class].push(span);
  // Keeps one empty slab per class, so that the next allocation need not create it again.
  const bool is_only = slabs_[size_class].first() == span && span->next == nullptr;
  if (span->used != 0 || is_only) return;
  slabs_[size_class].remove(span);
  release_pages_locked(span);
}

size_t ExtentHeap::usable_bytes(const void* p, const AddressReservation& in) noexcept {
  MutexLock lock(mu_);
  const Span* span = checked_locked(p, in);
  return span->kind == SpanKind::kLarge ? span->bytes() : class_bytes(span->size_class);
}

bool ExtentHeap::resize(void* p, const AddressReservation& in, size_t bytes) noexcept {
  MutexLock lock(mu_);
  Span* span = checked_locked(p, in);
  if (span->kind == SpanKind::kSlab) {
    return bytes <= kMaxSmallBytes && class_of(bytes) == span->size_class;
  }
  if (bytes <= kMaxSmallBytes) return false;
  return resize_large_locked(span, round_up(bytes, kPageBytes) / kPageBytes);
}

bool ExtentHeap::resize_large_locked(Span* span, size_t pages) noexcept {
  const size_t before = span->pages;
  const uintptr_t tail = span->addr + std::min(pages, before) * kPageBytes;
  if (pages < before) {
    if (!spans_.shrink(span, pages)) return true;  // keeping the larger size is harmless
    in_use_bytes_ -= (before - pages) * kPageBytes;
    store_.decommit({tail, (before - pages) * kPageBytes});
  } else if (pages > before) {
    if (!spans_.extend(span, pages)) return false;
    in_use_bytes_ += (pages - before) * kPageBytes;
    store_.commit({tail, (pages - before) * kPageBytes});
  }
  return true;
}

size_t ExtentHeap::in_use_bytes() noexcept {
  MutexLock lock(mu_);
  return in_use_bytes_;
}

void ExtentHeap::after_fork_in_child(bool lost) noexcept {
  if (lost) {
    spans_.forget_all();
    for (SpanList& list : slabs_) list = SpanList();
    in_use_bytes_ = 0;
  }
  mu_.unlock_uncounted();
}

}  // namespace hydrant::arena
