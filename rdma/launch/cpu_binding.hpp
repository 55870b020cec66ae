// Assigns each rank a CPU, if ranks are to be bound.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <vector>

namespace hydrant::launch {

class CpuBinding {
 public:
  // Binds nothing.
  CpuBinding() = default;
  // The CPUs that this process may use: first one CPU of each core, then the siblings.
  static CpuBinding by_core() noexcept;

  // Binds the calling process, which becomes `rank`; further ranks wrap around to the first CPU.
  void apply(Rank rank) const noexcept;
  const std::vector<int>& cpus() const noexcept { return cpus_; }

 private:
  std::vector<int> cpus_;
};

}  // namespace hydrant::launch
