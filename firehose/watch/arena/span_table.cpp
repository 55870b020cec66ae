// Creates, finds, splits and merges spans for an ExtentHeap.
#include "firehose/watch/arena/span_table.hpp"

#include "firehose/watch/arena/system_calls.hpp"

#include <bit>
#include <cstring>

namespace hydrant::arena {
namespace {

constexpr size_t kRecordsBytes = size_t{64} * 1024;  // mapped at a time

Span*& entry(const AddressReservation& in, uintptr_t addr) noexcept {
  return in.pages[(addr - in.addr) / kPageBytes];
}

}  // namespace

void SpanList::push(Span* span) noexcept {
  span->previous = nullptr;
  span->next = first_;
  if (first_ != nullptr) first_->previous = span;
  first_ = span;
}

void SpanList::remove(Span* span) noexcept {
  (span->previous == nullptr ? first_ : span->previous->next) = span->next;
  if (span->next != nullptr) span->next->previous = span->previous;
}

Span* SpanTable::make(AddressReservation* in, uintptr_t addr, size_t pages,
                      SpanKind kind) noexcept {
  if (spare_ == nullptr) {
    const uintptr_t raw = sys_map(0, kRecordsBytes, PROT_READ | PROT_WRITE, 0, -1);
    if (raw == 0) return nullptr;
    auto* records = reinterpret_cast<Span*>(raw);
    for (size_t i = 0; i < kRecordsBytes / sizeof(Span); ++i) retire(&records[i]);
  }
  Span* span = spare_;
  spare_ = span->next;
  span->addr = addr;
  span->pages = pages;
  span->reservation = in;
  span->kind = kind;
  enter(span);
  return span;
}

void SpanTable::retire(Span* span) noexcept {
  span->reservation = nullptr;  // marks it as retired for find()
  span->next = spare_;
  spare_ = span;
}

void SpanTable::enter(Span* span) noexcept {
  const AddressReservation& in = *span->reservation;
  if (span->kind == SpanKind::kSlab) {
    for (uintptr_t at = span->addr; at < span->end(); at += kPageBytes) entry(in, at) = span;
    return;
  }
  entry(in, span->addr) = span;
  entry(in, span->end() - kPageBytes) = span;
}

Span* SpanTable::find(const AddressReservation& in, uintptr_t addr) noexcept {
  Span* span = entry(in, addr);
  // Entries inside a span are stale: they belong to an earlier span, whose record may be reused.
  if (span == nullptr || span->reservation != &in || addr < span->addr || addr >= span->end()) {
    return nullptr;
  }
  return span;
}

unsigned SpanTable::bin_of(size_t pages) noexcept {
  if (pages < 4) return static_cast<unsigned>(pages);
  const unsigned octave = static_cast<unsigned>(std::bit_width(pages)) - 1;
  const unsigned quarter = static_cast<unsigned>(pages >> (octave - 2)) & 3;
  const unsigned bin = (octave - 1) * 4 + quarter;
  return bin < kBins ? bin : kBins - 1;
}

bool SpanTable::fits(const Span& span, size_t pages, size_t alignment) noexcept {
  const uintptr_t start = round_up(span.addr, alignment);
  return start < span.end() && (span.end() - start) / kPageBytes >= pages;
}

Span* SpanTable::find_free(size_t pages, size_t alignment) const noexcept {
  for (unsigned bin = bin_of(pages); bin < kBins; ++bin) {
    unsigned looked_at = 0;
    for (Span* span = bins_[bin].first(); span != nullptr; span = span->next) {
      if (fits(*span, pages, alignment)) return span;
      if (++looked_at == kPatience) break;
    }
  }
  return nullptr;
}

// Shortens `span` to its first pages and returns a new span of the rest; null if out of memory.
Span* SpanTable::cut(Span* span, size_t pages) noexcept {
  Span* rest =
      make(span->reservation, span->addr + pages * kPageBytes, span->pages - pages, span->kind);
  if (rest == nullptr) return nullptr;
  span->pages = pages;
  enter(span);
  return rest;
}

Span* SpanTable::take(size_t pages, size_t alignment) noexcept {
  Span* span = find_free(pages, alignment);
  if (span == nullptr) return nullptr;
  unlist(span);
  const size_t before = (round_up(span->addr, alignment) - span->addr) / kPageBytes;
  if (before != 0) {
    Span* rest = cut(span, before);
    list(span);
    if (rest == nullptr) return nullptr;
    span = rest;
  }
  if (span->pages > pages) {
    Span* rest = cut(span, pages);
    if (rest == nullptr) {
      give(span);
      return nullptr;
    }
    list(rest);
  }
  return span;
}

void SpanTable::give(Span* span) noexcept {
  const AddressReservation& in = *span->reservation;
  span->kind = SpanKind::kFree;
  Span* left = span->addr == in.addr ? nullptr : find(in, span->addr - kPageBytes);
  if (left != nullptr && left->kind == SpanKind::kFree) {
    unlist(left);
    left->pages += span->pages;
    retire(span);
    span = left;
  }
  Span* right = span->end() == in.end() ? nullptr : find(in, span->end());
  if (right != nullptr && right->kind == SpanKind::kFree) {
    unlist(right);
    span->pages += right->pages;
    retire(right);
  }
  enter(span);
  list(span);
}

bool SpanTable::shrink(Span* span, size_t pages) noexcept {
  Span* rest = cut(span, pages);
  if (rest == nullptr) return false;
  give(rest);
  return true;
}

bool SpanTable::extend(Span* span, size_t pages) noexcept {
  const AddressReservation& in = *span->reservation;
  Span* right = span->end() == in.end() ? nullptr : find(in, span->end());
  const size_t more = pages - span->pages;
  if (right == nullptr || right->kind != SpanKind::kFree || right->pages < more) return false;
  unlist(right);
  if (right->pages == more) {
    retire(right);
  } else {
    right->addr += more * kPageBytes;
    right->pages -= more;
    enter(right);
    list(right);
  }
  span->pages = pages;
  enter(span);
  return true;
}

}  // namespace hydrant::arena
