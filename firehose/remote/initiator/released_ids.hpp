// The ids of a peer's firehoses that were released here and that the peer does not know of yet: a stack.
//
// Invariant: an id is listed once. The mark kReclaimed, which ends a RECLAIM, follows the last id.
//
// Threads: the owner's lock.
#pragma once

#include "firehose/base/mapped_array.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

class ReleasedIds {
 public:
  // Reserves address space. False when refused.
  [[nodiscard]] bool map(size_t most) noexcept { return ids_.map(most); }
  bool empty() const noexcept { return count_ == 0; }
  bool is_full() const noexcept { return count_ == ids_.size(); }
  bool is_half_full() const noexcept { return count_ > ids_.size() / 2; }
  // True if a message of their own is due, without a move to travel with.
  bool is_due() const noexcept { return urgent_ || count_ >= kBatch; }

  // Requires: not full.
  void add(uint64_t id) noexcept { ids_[count_++] = id; }
  // The peer waits for them.
  void make_urgent() noexcept { urgent_ = true; }
  // The peer asked for firehoses back, and is to learn when all that were evicted for it are released.
  void begin_reclaim() noexcept { reclaiming_ = true; }
  bool is_reclaiming() const noexcept { return reclaiming_; }

  // Moves up to `room` ids into `ids`; returns their number.
  size_t take(uint64_t* ids, size_t room) noexcept;
  // The same; behind the last id also kReclaimed, if a RECLAIM is done.
  size_t take_and_end(uint64_t* ids, size_t room) noexcept;
  // Lists again what could not be sent.
  void put_back(const uint64_t* ids, size_t n) noexcept;
  void clear() noexcept;

 private:
  static constexpr size_t kBatch = 64;

  MappedArray<uint64_t> ids_;
  size_t count_ = 0;
  bool urgent_ = false;
  bool reclaiming_ = false;
};

}  // namespace hydrant
