// Options of rma_bench, and its results: a table, and a JSON file with the samples.
#pragma once

#include "bench/support/job_bench.hpp"
#include "bench/support/option_error.hpp"
#include "bench/support/rma_rows.hpp"

#include <cstdlib>
#include <string>
#include <vector>

namespace hydrant::bench {

struct RmaOptions {
  uint32_t repetitions = 9;
  std::string json_file;
  std::string rows;  // rows whose names contain this; "" for all
  bool quick = false;
};

// Every rank gets the same arguments; only a rank with `prints` set writes output. Ends the job at --help and
// on errors.
inline RmaOptions parse_rma_options(int argc, char** argv, bool prints) {
  CLI::App app(kAbout);
  RmaOptions options;
  app.add_option("--repetitions", options.repetitions,
                 "Repetitions of the whole table, interleaved")
      ->check(CLI::Range(1, 1000));
  app.add_option("--json", options.json_file,
                 "Also write the results, with all samples, to this file");
  app.add_option("--rows", options.rows, "Only rows whose names contain this");
  app.add_flag("--quick", options.quick, "Do less work, with sizes up to 4 MiB");
  app.failure_message(option_error);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    constexpr int kUsage = 2;
    if (prints) app.exit(error);
    gasnet_exit(error.get_exit_code() == 0 ? 0 : kUsage);
  }
  return options;
}

// Samples in ns per operation; those of floor and UCX are 0 if absent.
struct RmaResult {
  RmaRow row;
  std::string path;
  uint64_t batches = 1;
  std::vector<double> ns, floor_ns, ucx_ns;

  explicit RmaResult(const RmaRow& which) : row(which) {}
  void add(double ours, double floor, double ucx) {
    ns.push_back(ours);
    floor_ns.push_back(floor);
    ucx_ns.push_back(ucx);
  }
};

inline nlohmann::json describe(const RmaResult& result) {
  const auto ratio_to = [&](const std::vector<double>& other) {
    std::vector<double> ratios;
    for (size_t i = 0; i < other.size(); ++i) ratios.push_back(result.ns[i] / other[i]);
    return ratios;
  };
  const double ns = median(result.ns);
  nlohmann::json out = {
      {"name", result.row.name()},
      {"memory", name_of(result.row.memory)},
      {"direction", result.row.is_put ? "put" : "get"},
      {"form", name_of(result.row.form)},
      {"bytes", result.row.bytes},
      {"batch", result.row.batch},
      {"path", result.path},
      {"ns", ns},
      {"best_ns", *std::min_element(result.ns.begin(), result.ns.end())},
      {"worst_ns", *std::max_element(result.ns.begin(), result.ns.end())},
      {"gib_per_s", static_cast<double>(result.row.bytes) / double{1 << 30} * 1e9 / ns},
      {"samples_ns", result.ns}};
  if (median(result.floor_ns) > 0) {
    out["floor_ns"] = median(result.floor_ns);
    out["floor_samples_ns"] = result.floor_ns;
    out["times_floor_samples"] = ratio_to(result.floor_ns);
    out["times_floor"] = median(ratio_to(result.floor_ns));
  }
  if (median(result.ucx_ns) > 0) {
    out["ucx_ns"] = median(result.ucx_ns);
    out["times_ucx"] = median(ratio_to(result.ucx_ns));
  }
  return out;
}

inline void print_pair(const nlohmann::json& line, const char* value, const char* ratio) {
  if (line.contains(value)) {
    std::printf(" %11.1f %6.2f", line[value].get<double>(), line[ratio].get<double>());
  } else {
    std::printf(" %11s %6s", "-", "-");
  }
}

// Prints the table and writes the JSON file if requested; ends the job if the file cannot be written.
inline void report_rma(const std::vector<RmaResult>& results, const RmaOptions& options) {
  const char* forced = std::getenv("HYDRANT_PATH");
  nlohmann::json out = {{"ranks", 2},
                        {"repetitions", options.repetitions},
                        {"forced_path", forced != nullptr ? forced : "auto"},
                        {"rows", nlohmann::json::array()}};
  std::printf("2 ranks; ns per operation; HYDRANT_PATH: %s\n", forced != nullptr ? forced : "auto");
  std::printf("%-32s %-11s %11s %7s %11s %6s %11s %6s\n", "row", "path", "ns", "GiB/s", "floor ns",
              "x", "UCX ns", "x");
  for (const RmaResult& result : results) {
    const nlohmann::json line = describe(result);
    out["rows"].push_back(line);
    std::printf("%-32s %-11s %11.1f %7.2f", result.row.name().c_str(), result.path.c_str(),
                line["ns"].get<double>(), line["gib_per_s"].get<double>());
    print_pair(line, "floor_ns", "times_floor");
    print_pair(line, "ucx_ns", "times_ucx");
    std::printf("\n");
  }
  if (options.json_file.empty()) return;
  std::ofstream file(options.json_file);
  file << out.dump(1) << std::endl;
  if (file.good()) return;
  std::fprintf(stderr, "cannot write %s: %s\n", options.json_file.c_str(), std::strerror(errno));
  gasnet_exit(1);
}

}  // namespace hydrant::bench
