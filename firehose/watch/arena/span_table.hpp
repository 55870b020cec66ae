// Spans: runs of pages of one reservation, in use or free; and the free ones in order of size.
// Not thread-safe: part of an ExtentHeap, under its mutex.
#pragma once

#include "firehose/watch/arena/reservation.hpp"
#include "firehose/watch/arena/size_classes.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant::arena {

enum class SpanKind : uint8_t { kFree, kLarge, kSlab };

struct Span {
  uintptr_t addr;
  size_t pages;
  Reservation* reservation;
  Span* next;  // in a list of free spans, or of slabs with room
  Span* previous;
  SpanKind kind;
  // Of a slab; the bits of objects in use.
  uint8_t size_class;
  uint16_t used;
  uint16_t capacity;
  uint64_t bits[kMaxSlabObjects / 64];

  size_t bytes() const noexcept { return pages * kPageBytes; }
  uintptr_t end() const noexcept { return addr + bytes(); }
};

// A list through next and previous.
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

  // A record for [addr, addr + pages), entered in the reservation's page table; null without memory.
  Span* make(Reservation* in, uintptr_t addr, size_t pages, SpanKind kind) noexcept;
  // The span that the address lies in: any address of a slab, first or last page of the others. Null if none.
  static Span* find(const Reservation& in, uintptr_t addr) noexcept;

  // Enters it in the page table again, because it became a slab.
  static void enter(Span* span) noexcept;

  // A free span of at least so many pages, one of whose pages begins at the alignment with room behind
  // it; taken out of the free ones and cut to exactly that. Null if there is none.
  Span* take(size_t pages, size_t alignment) noexcept;
  // Makes it free, joined with its free neighbours.
  void give(Span* span) noexcept;
  // Cuts a large span to its first pages; what is left over is given. False without memory: nothing happened.
  bool shrink(Span* span, size_t pages) noexcept;
  // Lengthens a large span into the free pages behind it. False if they are too few.
  bool extend(Span* span, size_t pages) noexcept;

  // In the child of a fork: as new. The records stay where they are, unused.
  void forget_all() noexcept { *this = SpanTable(); }

 private:
  // Four to each doubling of pages, up to 2^35 pages.
  static constexpr unsigned kBins = 4 * 34;
  // How many spans of a bin that may be too small are looked at before a larger one is broken up.
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
