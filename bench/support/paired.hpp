// Measures two subjects in turn, so that slow phases of the machine affect both and their ratio stays valid.
#pragma once

#include "bench/support/bench_main.hpp"
#include "bench/support/machine.hpp"

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

namespace hydrant::bench {

// The samples of one repetition, taken in pairs, and the statistics that are reported.
class PairedSamples {
 public:
  void add(double ours_ns, double bare_ns) {
    ours_.push_back(ours_ns);
    bare_.push_back(bare_ns);
  }
  void report(benchmark::State& state) const {
    const double ours = median(ours_);
    const double bare = median(bare_);
    set_counter(state, "ours_ns", ours);
    set_counter(state, "bare_ns", bare);
    set_counter(state, "extra_ns", ours - bare);
    set_counter(state, "ratio", bare > 0 ? ours / bare : 0.0);
  }

 private:
  std::vector<double> ours_;
  std::vector<double> bare_;
};

template <typename Call>
double nanoseconds(Call&& call) {
  const uint64_t start = now_ns();
  call();
  return static_cast<double>(now_ns() - start);
}

// Runs both, in alternating order, because the second one finds warm caches.
template <typename First, typename Second>
void alternate(size_t turn, First&& first, Second&& second) {
  if (turn % 2 == 0) {
    first();
    second();
  } else {
    second();
    first();
  }
}

}  // namespace hydrant::bench
