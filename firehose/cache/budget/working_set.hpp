// Judges whether all memory that the program uses fits into 15/16 of the budget at once: what is registered,
// each byte once, and what was evicted lately and is not registered again. The rest of the budget is for
// regions that lie across the borders of others.
//
// A judgement walks all regions. One that the set does not fit answers as many later questions as the walk is
// worth.
//
// Evicted memory counts until registrations of kMemory budgets have followed. If more ranges than can be
// remembered were evicted in that time and are not registered again, the set does not fit.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/cache/index/region_tables.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hydrant {

class WorkingSet {
 public:
  WorkingSet(const RegionStore& store, const RegionTables& tables) noexcept
      : store_(store), tables_(tables) {}

  void note_registered(const CacheLock&, size_t bytes) noexcept { registered_bytes_ += bytes; }
  void note_evicted(const CacheLock&, MemoryRange range, uint64_t budget) noexcept;
  // The range was released: nothing uses it any more.
  void forget(const CacheLock&, MemoryRange range) noexcept;
  void forget_all(const CacheLock&) noexcept {
    evicted_count_ = 0;
    has_forgotten_ = false;
  }
  // A region for which others were unpinned could not be registered: the next kPause answers are false.
  void note_failure(const CacheLock&) noexcept {
    fits_ = false;
    answers_ = kPause;
  }
  // The kernel gives charges back late, so that what is unpinned makes no room: all answers are false.
  void give_up(const CacheLock&) noexcept { gave_up_ = true; }

  // True if the set fits into a budget of so many bytes together with the range, which is to be registered.
  bool fits(const CacheLock&, MemoryRange range, uint64_t budget) noexcept;

 private:
  static constexpr size_t kMaxEvicted = 64;
  static constexpr size_t kMostKept = 16;  // when there is no place for another one
  static constexpr uint64_t kMemory = 8;
  static constexpr uint32_t kLeastAnswers = 32;
  static constexpr uint32_t kPause = 1024;
  struct Evicted {
    MemoryRange range;
    uint64_t at;  // registered_bytes_ then
  };

  bool is_recent(uint64_t at, uint64_t budget) const noexcept {
    return registered_bytes_ - at < kMemory * budget;
  }
  void make_place(const CacheLock&, uint64_t budget) noexcept;
  bool judge(const CacheLock&, MemoryRange range, uint64_t budget) noexcept;
  uint64_t registered(const CacheLock&, uint32_t rights, MemoryRange range) const noexcept;
  uint64_t unregistered(const CacheLock&, MemoryRange range) const noexcept;
  uint64_t unregistered(const CacheLock&, std::span<MemoryRange> ranges) const noexcept;

  const RegionStore& store_;
  const RegionTables& tables_;
  uint64_t registered_bytes_ = 0;               // ever
  std::array<Evicted, kMaxEvicted> evicted_{};  // the oldest first
  size_t evicted_count_ = 0;
  uint64_t forgotten_at_ = 0;  // registered_bytes_ when evicted ranges were last forgotten
  bool has_forgotten_ = false;
  bool fits_ = false;     // the last judgement
  uint32_t answers_ = 0;  // questions that it answers yet, if it is false
  bool gave_up_ = false;
};

}  // namespace hydrant
