// Implements PinnedTable, a hash table with linear probing that deletes by shifting back, so that no
// tombstones pile up. firehose_registrar.cpp lists pinned ranges in it.
#include "firehose/gasnet_compat/firehose_registrar.hpp"

#include <algorithm>
#include <new>

namespace hydrant {
namespace {
constexpr size_t kFirstCapacity = 64;
}  // namespace

size_t PinnedTable::home_of(uintptr_t addr) const noexcept {
  // Fibonacci hashing: page addresses differ in their middle bits.
  const uint64_t mixed = static_cast<uint64_t>(addr >> 12) * 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(mixed >> 32) & (capacity_ - 1);
}

void PinnedTable::place(const Entry& entry) noexcept {
  size_t cell = home_of(entry.addr);
  while (cells_[cell].len != 0) cell = next(cell);
  cells_[cell] = entry;
}

bool PinnedTable::grow() noexcept {
  const size_t old_capacity = capacity_;
  const size_t capacity = old_capacity == 0 ? kFirstCapacity : 2 * old_capacity;
  std::unique_ptr<Entry[]> cells(new (std::nothrow) Entry[capacity]);
  if (cells == nullptr) return false;
  cells_.swap(cells);
  capacity_ = capacity;
  for (size_t i = 0; i < old_capacity; ++i) {
    if (cells[i].len != 0) place(cells[i]);
  }
  return true;
}

void PinnedTable::add(const Entry& entry) noexcept {
  // Half full at most; without memory the last cell stays free, so that probing ends.
  if (2 * (size_ + 1) > capacity_ && !grow() && size_ + 1 >= capacity_) return;
  place(entry);
  ++size_;
}

void PinnedTable::remove(uintptr_t addr, size_t len) noexcept {
  if (capacity_ == 0) return;
  size_t hole = home_of(addr);
  while (cells_[hole].addr != addr || cells_[hole].len != len) {
    if (cells_[hole].len == 0) return;  // was never recorded
    hole = next(hole);
  }
  --size_;
  // Moves back the cells that would no longer be found across the hole.
  for (size_t cell = next(hole); cells_[cell].len != 0; cell = next(cell)) {
    const size_t home = home_of(cells_[cell].addr);
    const size_t mask = capacity_ - 1;
    if (((cell - home) & mask) < ((cell - hole) & mask)) continue;
    cells_[hole] = cells_[cell];
    hole = cell;
  }
  cells_[hole] = Entry{};
}

size_t PinnedTable::copy_lowest(Entry* entries, size_t n) const noexcept {
  const auto lower = [](const Entry& a, const Entry& b) { return a.addr < b.addr; };
  size_t copied = 0;  // entries[0, copied) is a heap, its highest address first
  for (size_t i = 0; i < capacity_ && n != 0; ++i) {
    if (cells_[i].len == 0) continue;
    if (copied == n) {
      if (!lower(cells_[i], entries[0])) continue;
      std::pop_heap(entries, entries + copied--, lower);
    }
    entries[copied++] = cells_[i];
    std::push_heap(entries, entries + copied, lower);
  }
  std::sort_heap(entries, entries + copied, lower);
  return copied;
}

}  // namespace hydrant
