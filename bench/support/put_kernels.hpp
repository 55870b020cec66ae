// Communication patterns of complete programs, and of many initiators at one target.
#pragma once

#include "bench/support/put_strategy.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::bench {

struct KernelRow {
  std::string name;
  PutWay way;
  std::vector<double> ns;  // time per put of a rank, by repetition
  size_t puts = 0, put_bytes = 0;
  double messages = 0.0, registrations = 0.0, hits = 0.0;  // per put
  std::string refusal;
};
// Cannon's matrix multiplication on 4 x 4 ranks: blocks move left and up, row by row. And the exchanges of a
// bitonic sort of 16 ranks. The caches are empty at the first put.
std::vector<KernelRow> run_kernels(uint64_t delay_ns, double wire_rate, uint32_t repetitions,
                                   bool quick);

struct SharingRow {
  uint32_t initiators;
  size_t pages;
  double registrations, moves;  // per page
  std::string refusal;
};
// Puts of 8 bytes from several initiators to random places of the same pages.
std::vector<SharingRow> run_sharing(uint64_t budget_bytes, uint64_t delay_ns);

struct LeaseRow {
  uint32_t active, peers;
  double set_share;  // set of each active peer, as a fraction of the target's budget
  double leased_hits, fixed_hits, ratio;
  double leased_ns, fixed_ns;  // per put
  std::string refusal;
};
// 6 of 64 peers put to random pages of their own sets.
std::vector<LeaseRow> run_leases(uint64_t budget_bytes, uint64_t delay_ns, bool quick);

}  // namespace hydrant::bench
