// Chooses CPUs for ranks (hydrant-run --bind core); the forked child calls apply().
#include "rdma/launch/cpu_binding.hpp"

#include "firehose/base/machine/small_file.hpp"

#include <algorithm>
#include <cstdio>
#include <sched.h>

namespace hydrant::launch {
namespace {

// The first CPU of the core of `cpu`; `cpu` itself if the core is unknown.
int first_of_core(int cpu) noexcept {
  char path[96];
  std::snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                cpu);
  char text[64];
  int first = cpu;
  (void)read_small_file(path, text, sizeof text);
  return std::sscanf(text, "%d", &first) == 1 ? first : cpu;
}

}  // namespace

CpuBinding CpuBinding::by_core() noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  CpuBinding binding;
  std::vector<int> siblings;
  std::vector<int> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    const int core = first_of_core(cpu);
    const bool known = std::find(cores.begin(), cores.end(), core) != cores.end();
    if (!known) cores.push_back(core);
    (known ? siblings : binding.cpus_).push_back(cpu);
  }
  binding.cpus_.insert(binding.cpus_.end(), siblings.begin(), siblings.end());
  return binding;
}

void CpuBinding::apply(Rank rank) const noexcept {
  if (cpus_.empty()) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpus_[rank % cpus_.size()], &one);
  sched_setaffinity(0, sizeof one, &one);
}

}  // namespace hydrant::launch
