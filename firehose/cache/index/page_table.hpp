// Page mode's table: fixed buckets, found by hashing the bucket number.
//
// Linear hashing: chains of regions, linked through their slots, and two chain heads for each region
// there ever was at once. Each insertion adds the heads it is due and moves what belongs there, so that
// the table grows in place, in ascending order, without a stop: 8 bytes per region, touched only when
// used.
#pragma once

#include "firehose/base/mapped_array.hpp"
#include "firehose/cache/index/pin_table.hpp"

namespace hydrant {

class PageTable final : public PinTable {
 public:
  // Ranges are single buckets of 2^bucket_shift bytes, aligned to their size; their regions' slots are among
  // `slots`, by index, and begin at the bucket while they are in the table.
  PageTable(uint32_t bucket_shift, RegionSlot* slots) noexcept
      : bucket_shift_(bucket_shift), slots_(slots) {}

  [[nodiscard]] bool map(size_t max_ranges) noexcept override;
  bool mapped() const noexcept override { return heads_.size() != 0; }
  RegionIndex find(uintptr_t addr) const noexcept override;
  // Here the lowest one.
  RegionIndex any_overlap(uintptr_t first, uintptr_t last) const noexcept override;
  RegionIndex first_start(uintptr_t first, uintptr_t last) const noexcept override;
  size_t collect(uintptr_t first, uintptr_t last, RegionIndex* out,
                 size_t room) const noexcept override;
  bool collect_unlocked(uintptr_t first, uintptr_t last, RegionIndex* out, size_t room,
                        size_t* n) const noexcept override;
  [[nodiscard]] bool insert(MemoryRange range, RegionIndex index) noexcept override;
  void erase(MemoryRange range, RegionIndex index) noexcept override;
  void clear() noexcept override;
  uint64_t memory_bytes() const noexcept override;

 private:
  using Link = std::atomic<RegionIndex>;

  uint64_t bucket_of(uintptr_t addr) const noexcept { return addr >> bucket_shift_; }
  // The chain of a bucket while there are `heads` of them.
  static uint32_t chain_of(uint64_t bucket, uint32_t heads) noexcept;
  bool few_buckets(uint64_t low, uint64_t high) const noexcept;
  template <class Visit>
  void visit_all(const Visit& visit) const noexcept;
  void add_head() noexcept;

  const uint32_t bucket_shift_;
  RegionSlot* const slots_;
  SequenceLock lock_;
  MappedArray<Link> heads_;
  std::atomic<uint32_t> head_count_{0};
  uint32_t used_ = 0;
};

}  // namespace hydrant
