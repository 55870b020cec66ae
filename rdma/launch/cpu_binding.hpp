// Which CPU each rank runs on, if it is to stay on one.
#pragma once

#include "rdma/bootstrap.hpp"

#include <vector>

namespace hydrant::launch {

class CpuBinding {
 public:
  // Binds nothing.
  CpuBinding() = default;
  // The CPUs that this process may use: one of each core first, then their siblings.
  static CpuBinding by_core() noexcept;

  // Binds the calling process, which is to be `rank`; ranks beyond the number of CPUs begin again.
  void apply(Rank rank) const noexcept;
  const std::vector<int>& cpus() const noexcept { return cpus_; }

 private:
  std::vector<int> cpus_;
};

}  // namespace hydrant::launch
