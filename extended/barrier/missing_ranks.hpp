// The ranks that a barrier waits for, for warnings: the first of them, and how many there are. On the
// stack, because a warning may come when memory is used up.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <array>
#include <cstdint>
#include <span>

namespace hydrant {

class MissingRanks {
 public:
  static constexpr uint32_t kMaxListed = 10;

  void add(Rank rank) noexcept {
    if (count_ < kMaxListed) listed_[count_] = rank;
    ++count_;
  }
  bool empty() const noexcept { return count_ == 0; }
  uint32_t count() const noexcept { return count_; }
  // The first kMaxListed ranks that were added.
  std::span<const Rank> listed() const noexcept {
    return {listed_.data(), count_ < kMaxListed ? count_ : kMaxListed};
  }

 private:
  uint32_t count_ = 0;
  std::array<Rank, kMaxListed> listed_{};
};

}  // namespace hydrant
