// main() of every benchmark program: defaults for fair comparisons, and a context that names the peers. The
// user's flags come after the defaults and override them.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace hydrant::bench {

// The comment at the head of the program, as text: what it measures, and in which unit. The build makes it.
extern const char* const kAbout;

inline void print_help() {
  std::printf("%s\nThe library's flags:\n\n", kAbout);
  benchmark::PrintDefaultHelp();
}

// Interleaves repetitions at random, so that slow phases of the machine affect all rows alike. The JSON keeps
// raw samples beside median and spread.
inline int run_program(int argc, char** argv, const char* min_time) {
  std::string repetitions = "--benchmark_repetitions=9";
  std::string interleave = "--benchmark_enable_random_interleaving=true";
  std::string time = std::string("--benchmark_min_time=") + min_time;
  std::vector<char*> arguments{argv[0], repetitions.data(), interleave.data(), time.data()};
  arguments.insert(arguments.end(), argv + 1, argv + argc);
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data(), print_help);
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  const size_t matched = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  if (matched != 0) return 0;
  constexpr int kUsage = 2;
  std::fprintf(stderr,
               "%s: no row matches the filter, so nothing was measured; "
               "--benchmark_list_tests names the rows\n",
               argv[0]);
  return kUsage;
}

// Sets the time of a thread's iterations, so that the row shows it per thread. Google Benchmark divides the
// sum of the threads' times by that of their iterations; releases before 1.9 divide by the threads as well.
inline void set_thread_time(benchmark::State& state, double ns) {
#if HYDRANT_BENCHMARK_DIVIDES_BY_THREADS
  ns *= state.threads();
#endif
  state.SetIterationTime(ns * 1e-9);
}

// Sets a counter, unless it is 0: Google Benchmark would write the variation of a counter that is always 0 as
// NaN, which is not JSON. Readers take an absent counter of a row as 0.
inline void set_counter(benchmark::State& state, const std::string& name, double value) {
  if (value != 0.0) state.counters[name] = value;
}

// A reproducible order, at least `min_length` long, in which each of `count` items occurs equally often, and
// consecutive items are not adjacent in memory.
inline std::vector<uint32_t> shuffled_stream(uint32_t count, size_t min_length, uint32_t seed) {
  std::vector<uint32_t> stream;
  std::mt19937 random(seed);
  std::vector<uint32_t> round(count);
  for (uint32_t i = 0; i < count; ++i) round[i] = i;
  while (stream.size() < min_length || stream.empty()) {
    std::shuffle(round.begin(), round.end(), random);
    stream.insert(stream.end(), round.begin(), round.end());
  }
  return stream;
}

// The quantile `at` (0 to 1) of the values; 0 for none.
inline double quantile(std::vector<double> values, double at) {
  if (values.empty()) return 0.0;
  const auto index = static_cast<std::ptrdiff_t>(at * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + index, values.end());
  return values[static_cast<size_t>(index)];
}

inline double median(const std::vector<double>& values) { return quantile(values, 0.5); }

}  // namespace hydrant::bench
