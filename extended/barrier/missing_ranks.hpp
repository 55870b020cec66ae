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
  static constexpr uint32_t kMostListed = 10;

  void add(Rank rank) noexcept {
    if (count_ < kMostListed) listed_[count_] = rank;
    ++count_;
  }
  bool empty() const noexcept { return count_ == 0; }
  uint32_t count() const noexcept { return count_; }
  // The first kMostListed ranks that were added.
  std::span<const Rank> listed() const noexcept {
    return {listed_.data(), count_ < kMostListed ? count_ : kMostListed};
  }

 private:
  uint32_t count_ = 0;
  std::array<Rank, kMostListed> listed_{};
};

}  // namespace hydrant
