// Shared by programs that run as a job: arguments, the raw floor between two ranks, and the report. The
// including program defines the thread mode.
#pragma once

#include <gasnetex.h>

#include "bench/support/bench_main.hpp"
#include "bench/support/option_error.hpp"
#include "firehose/base/thread.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <sched.h>
#include <string>
#include <unistd.h>
#include <vector>

namespace hydrant::bench {

struct JobOptions {
  uint32_t repetitions = 9;
  std::string json_file;
  bool quick = false;
};

[[noreturn]] inline void refuse_json_file(const std::string& json_file) {
  std::fprintf(stderr, "cannot write %s: %s\n", json_file.c_str(), std::strerror(errno));
  gasnet_exit(1);
  std::abort();
}

// Every rank gets the same arguments; only a rank with `prints` set writes output. Ends the job at --help, on
// errors, and if the JSON file cannot be written. `add` declares options of the program's own.
inline JobOptions parse_job_options(int argc, char** argv, bool prints,
                                    const std::function<void(CLI::App&)>& add = {}) {
  CLI::App app(kAbout);
  JobOptions options;
  app.add_option("--repetitions", options.repetitions,
                 "Repetitions of the whole table, interleaved")
      ->check(CLI::Range(1, 1000));
  app.add_option("--json", options.json_file,
                 "Also write the results, with all samples, to this file");
  app.add_flag("--quick", options.quick, "Do about a tenth of the work");
  if (add) add(app);
  app.failure_message(option_error);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kUsage = 2;
    if (prints) app.exit(error);
    gasnet_exit(error.get_exit_code() == 0 ? 0 : kUsage);
  }
  if (prints && !options.json_file.empty() && !std::ofstream(options.json_file))
    refuse_json_file(options.json_file);
  return options;
}

inline bool is_crowded(uint32_t ranks) {
  return static_cast<long>(ranks) > sysconf(_SC_NPROCESSORS_ONLN);
}

// Two cache lines in memory that both sides map; they pass them back and forth.
struct LineFloor {
  struct alignas(128) Line {
    std::atomic<uint64_t> value{0};
  };
  Line* lines = nullptr;  // two lines, initially zero
  bool first = false;     // true on the first of the two ranks
  bool crowded = false;   // more ranks than processors: yields while waiting
  uint64_t base = 0;

  // ns per round trip. Both sides call it.
  double run(uint64_t rounds) {
    uint32_t looks = 0;
    const auto await = [&](const Line& line, uint64_t value) {
      while (line.value.load(std::memory_order_acquire) != value) {
        if (crowded && ++looks % 64 == 0) sched_yield();
      }
    };
    const uint64_t begin = now_ns();
    for (uint64_t i = base + 1; i <= base + rounds; ++i) {
      if (first) lines[0].value.store(i, std::memory_order_release);
      await(lines[first ? 1 : 0], i);
      if (!first) lines[1].value.store(i, std::memory_order_release);
    }
    base += rounds;
    return static_cast<double>(now_ns() - begin) / static_cast<double>(rounds);
  }
};

struct JobRow {
  std::string name;
  std::vector<double> ns;
  std::vector<double> peer_ns;  // UCX; empty if it is absent
};

inline nlohmann::json describe(const JobRow& row, const std::vector<double>& floors) {
  std::vector<double> to_floor, to_peer;
  for (size_t i = 0; i < row.ns.size(); ++i) {
    to_floor.push_back(floors[i] > 0 ? row.ns[i] / floors[i] : 0);
    if (i < row.peer_ns.size()) to_peer.push_back(row.ns[i] / row.peer_ns[i]);
  }
  nlohmann::json out = {{"name", row.name},
                        {"ns", median(row.ns)},
                        {"best_ns", *std::min_element(row.ns.begin(), row.ns.end())},
                        {"worst_ns", *std::max_element(row.ns.begin(), row.ns.end())},
                        {"times_floor", median(to_floor)},
                        {"samples_ns", row.ns}};
  if (!to_peer.empty()) {
    out["ucx_ns"] = median(row.peer_ns);
    out["times_ucx"] = median(to_peer);
  }
  return out;
}

// Prints the table and writes the JSON file if requested; ends the job if the file cannot be written.
inline void report_job(uint32_t ranks, const std::vector<JobRow>& rows,
                       const std::vector<double>& floors, const std::string& json_file) {
  nlohmann::json out = {{"ranks", ranks},
                        {"repetitions", floors.size()},
                        {"floor_round_trip_ns", median(floors)},
                        {"floor_samples_ns", floors},
                        {"rows", nlohmann::json::array()}};
  const bool has_floor = median(floors) > 0;  // the floor needs two ranks
  std::printf("%u rank%s; floor (a line passed back and forth): ", ranks, ranks == 1 ? "" : "s");
  has_floor ? std::printf("%.0f ns\n", median(floors)) : std::printf("none\n");
  std::printf("%-26s %9s %9s %9s %8s %9s %7s\n", "row", "ns", "best", "worst", "x floor", "UCX ns",
              "x UCX");
  for (const JobRow& row : rows) {
    const nlohmann::json line = describe(row, floors);
    out["rows"].push_back(line);
    std::printf("%-26s %9.1f %9.1f %9.1f ", row.name.c_str(), line["ns"].get<double>(),
                line["best_ns"].get<double>(), line["worst_ns"].get<double>());
    has_floor ? std::printf("%8.2f", line["times_floor"].get<double>()) : std::printf("%8s", "-");
    if (line.contains("ucx_ns")) {
      std::printf(" %9.1f %7.2f\n", line["ucx_ns"].get<double>(), line["times_ucx"].get<double>());
    } else {
      std::printf(" %9s %7s\n", "-", "-");
    }
  }
  if (json_file.empty()) return;
  std::ofstream file(json_file);
  file << out.dump(1) << std::endl;
  if (!file.good()) refuse_json_file(json_file);
}

}  // namespace hydrant::bench
