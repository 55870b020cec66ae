// Random puts to a working set that may exceed the budget, in all ways in turn.
#pragma once

#include "bench/support/put_strategy.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::bench {

inline constexpr size_t kPutWays = 5;
inline constexpr std::array<PutWay, kPutWays> kAllPutWays = {
    PutWay::kFirehose, PutWay::kRendezvousUnpin, PutWay::kRendezvousKeep, PutWay::kBounce,
    PutWay::kPinEverything};

struct PutSweepPlan {
  uint64_t budget_bytes = 0;
  std::vector<size_t> bytes;       // sizes of puts
  std::vector<unsigned> percents;  // working sets, in percent of the budget
  std::vector<uint64_t> delays_ns;
  bool zipf = false;       // places follow Zipf's law, exponent 0.99; else uniform
  double wire_rate = 0.0;  // see PutSetting
  uint32_t repetitions = 9;
  size_t work = 1;  // multiplies the puts of a sample
};

struct PutSamples {
  std::vector<double> ns;                                                 // per put, by repetition
  double messages = 0.0, registrations = 0.0, hits = 0.0, bounced = 0.0;  // per put
  std::string refusal;  // the reason if there are no samples
};

struct PutCell {
  size_t bytes;
  unsigned percent;
  uint64_t delay_ns;
  bool zipf;
  std::array<PutSamples, kPutWays> ways;
};

// Outstanding puts: 1 of 8 bytes (measures latency), else several (bandwidth).
uint32_t put_window(size_t bytes);
// Bytes that each rank may pin in these programs on this machine.
uint64_t put_budget_bytes();

std::vector<PutCell> run_put_sweep(const PutSweepPlan& plan);

}  // namespace hydrant::bench
