// SpanTable: runs of pages of one reservation, in use or free. Free ones are binned by size. Not
// thread-safe: part of an ExtentHeap, under its mutex.
#pragma once

#include "firehose/watch/arena/address_reservation.hpp"
#include "firehose/watch/arena/size_classes.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant::arena {

enum class SpanKind : uint8_t { kFree, kLarge, kSlab };

struct Span {
  uintptr_t addr;
  size_t pages;
  AddressReservation* reservation;
  Span* next;  // in a list of free spans, or of slabs with free objects
  Span* previous;
  SpanKind kind;
  // For slabs only; `bits` marks the objects in use.
  uint8_t size_class;
  uint16_t used;
  uint16_t capacity;
  uint64_t bits[kMaxSlabObjects / 64];

  size_t bytes() const noexcept { return pages * kPageBytes; }
  uintptr_t end() const noexcept { return addr + bytes(); }
};

// A doubly linked list through next and previous.
class SpanList {
 public:
  Span* first() const noexcept { return first_; }
  void push(Span* span) noexcept;
  void remove(Span* span) noexcept;

 private:
  Span* first_ = nullptr;
};

class SpanTable {
 public:
  constexpr SpanTable() noexcept = default;

  // Creates a span for [addr, addr + pages) and enters it in the reservation's page table; null if out of
  // memory.
  Span* make(AddressReservation* in, uintptr_t addr, size_t pages, SpanKind kind) noexcept;
  // The span of an address: any page of a slab, the first or last page of other spans. Null if none.
  static Span* find(const AddressReservation& in, uintptr_t addr) noexcept;

  // Enters all pages of a new slab in the page table.
  static void enter(Span* span) noexcept;

  // Removes a free span of exactly `pages` pages at that alignment, split off a larger one if need be. Null
  // if there is none.
  Span* take(size_t pages, size_t alignment) noexcept;
  // Frees the span and merges it with its free neighbours.
  void give(Span* span) noexcept;
  // Shortens a large span to its first pages and frees the rest. False, without a change, if out of memory.
  bool shrink(Span* span, size_t pages) noexcept;
  // Extends a large span into the free pages behind it. False if they are too few.
  bool extend(Span* span, size_t pages) noexcept;

  // In the child of a fork: empties the table and leaks its records.
  void forget_all() noexcept { *this = SpanTable(); }

 private:
  // Four to each doubling of pages, up to 2^35 pages.
  static constexpr unsigned kBins = 4 * 34;
  // How many spans of a bin of possibly too small ones are tried before a larger span is split.
  static constexpr unsigned kPatience = 32;

  static unsigned bin_of(size_t pages) noexcept;
  static bool fits(const Span& span, size_t pages, size_t alignment) noexcept;
  Span* find_free(size_t pages, size_t alignment) const noexcept;
  Span* cut(Span* span, size_t pages) noexcept;
  void list(Span* span) noexcept { bins_[bin_of(span->pages)].push(span); }
  void unlist(Span* span) noexcept { bins_[bin_of(span->pages)].remove(span); }
  void retire(Span* span) noexcept;

  SpanList bins_[kBins];
  Span* spare_ = nullptr;  // records without pages, through next
};

}  // namespace hydrant::arena
