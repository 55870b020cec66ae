// Page mode's table: fixed buckets, found by hashing the bucket number.
//
// Open addressing with linear probing, at most half full; removal shifts later entries back, so that
// probe runs stay short for ever. 32 bytes per bucket of capacity, touched only where used.
#pragma once

#include "firehose/mapped_array.hpp"
#include "firehose/pin_table.hpp"

namespace hydrant {

class PageTable final : public PinTable {
 public:
  // Ranges are single buckets of 2^bucket_shift bytes, aligned to their size.
  explicit PageTable(uint32_t bucket_shift) noexcept : bucket_shift_(bucket_shift) {}

  [[nodiscard]] bool map(size_t max_ranges) noexcept override;
  bool mapped() const noexcept override { return entries_.size() != 0; }
  RegionIndex find(uintptr_t addr) const noexcept override;
  // Here the lowest one.
  RegionIndex any_overlap(uintptr_t first, uintptr_t last) const noexcept override;
  RegionIndex first_start(uintptr_t first, uintptr_t last) const noexcept override;
  size_t collect(uintptr_t first, uintptr_t last, RegionIndex* out,
                 size_t room) const noexcept override;
  void insert(MemoryRange range, RegionIndex index) noexcept override;
  void erase(MemoryRange range, RegionIndex index) noexcept override;
  void clear() noexcept override;
  uint64_t memory_bytes() const noexcept override { return used_ * 2 * sizeof(Entry); }

 private:
  struct Entry {
    std::atomic<uint64_t> bucket;  // number + 1; 0: empty
    std::atomic<RegionIndex> index;
  };

  size_t home(uint64_t bucket) const noexcept {
    return static_cast<size_t>((bucket * 0x9e3779b97f4a7c15u) >> 20) & (entries_.size() - 1);
  }
  uint64_t bucket_of(uintptr_t addr) const noexcept { return (addr >> bucket_shift_) + 1; }

  const uint32_t bucket_shift_;
  SequenceLock lock_;
  MappedArray<Entry> entries_;
  uint64_t used_ = 0;
};

}  // namespace hydrant
