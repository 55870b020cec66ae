// Results of verbs_compare: a table, and a JSON file with the samples. The including program defines the
// thread mode.
#pragma once

#include "bench/support/job_bench.hpp"

#include <string>
#include <vector>

namespace hydrant::bench {

// Samples in ns per operation; a column that was not measured is empty.
struct VerbsRow {
  std::string name;
  std::string goal_of;   // the baseline of the goal: "raw" or "perftest"
  double goal = 1.05;    // largest allowed ratio to it; 0: none
  std::string perftest;  // contents of the column, such as "2 x ib_send_lat"
  std::string path;      // path reported by the library
  std::string uct;       // the same for ucx_perftest, such as "2 x am_lat"
  std::vector<double> ns, raw_ns, perftest_ns, uct_ns;
};

inline double median_ratio(const std::vector<double>& ours, const std::vector<double>& theirs) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size() && i < theirs.size(); ++i)
    ratios.push_back(ours[i] / theirs[i]);
  return ratios.empty() ? 0 : median(ratios);
}

inline nlohmann::json describe(const VerbsRow& row) {
  nlohmann::json out = {{"name", row.name},
                        {"path", row.path},
                        {"ns", median(row.ns)},
                        {"samples_ns", row.ns},
                        {"raw_ns", median(row.raw_ns)},
                        {"raw_samples_ns", row.raw_ns},
                        {"times_raw", median_ratio(row.ns, row.raw_ns)},
                        {"goal", row.goal},
                        {"goal_of", row.goal_of}};
  if (!row.perftest_ns.empty()) {
    out["perftest"] = row.perftest;
    out["perftest_ns"] = median(row.perftest_ns);
    out["perftest_samples_ns"] = row.perftest_ns;
    out["times_perftest"] = median_ratio(row.ns, row.perftest_ns);
  }
  if (!row.uct_ns.empty()) {
    out["uct"] = row.uct;
    out["uct_ns"] = median(row.uct_ns);
    out["uct_samples_ns"] = row.uct_ns;
    out["times_uct"] = median_ratio(row.ns, row.uct_ns);
  }
  const char* by = row.goal_of == "perftest" ? "times_perftest" : "times_raw";
  if (out.contains(by) && row.goal != 0) out["meets_goal"] = out[by].get<double>() <= row.goal;
  return out;
}

inline void print_row(const VerbsRow& row, const nlohmann::json& line) {
  std::printf("%-18s %-9s %10.2f %10.2f %6.2f", row.name.c_str(), row.path.c_str(),
              line["ns"].get<double>() / 1e3, line["raw_ns"].get<double>() / 1e3,
              line["times_raw"].get<double>());
  for (const std::string of : {"perftest", "uct"}) {
    if (line.contains(of + "_ns")) {
      std::printf(" %10.2f %6.2f", line[of + "_ns"].get<double>() / 1e3,
                  line["times_" + of].get<double>());
    } else {
      std::printf(" %10s %6s", "-", "-");
    }
  }
  const char* verdict = line.contains("meets_goal") ? (line["meets_goal"] ? "yes" : "NO") : "-";
  if (row.goal == 0) {
    std::puts("  -");
  } else {
    std::printf("  <= %.2f x %-8s %s\n", row.goal, row.goal_of.c_str(), verdict);
  }
}

// Prints the table and writes the JSON file if requested; false if the file cannot be written.
inline bool report_verbs(uint32_t ranks, const std::string& port, const std::vector<VerbsRow>& rows,
                         const std::string& no_perftest, const std::string& no_uct,
                         const std::string& json_file) {
  nlohmann::json out = {{"ranks", ranks}, {"port", port}, {"rows", nlohmann::json::array()}};
  std::printf(
      "%u ranks over %s; us per operation, medians of %zu, ratios medians of the ratios within "
      "each\n",
      ranks, port.c_str(), rows.empty() ? 0 : rows.front().ns.size());
  if (!no_perftest.empty()) {
    std::printf("no perftest column: %s\n", no_perftest.c_str());
    out["no_perftest"] = no_perftest;
  }
  if (!no_uct.empty()) {
    std::printf("no UCT column: %s\n", no_uct.c_str());
    out["no_uct"] = no_uct;
  }
  std::printf("%-18s %-9s %10s %10s %6s %10s %6s %10s %6s  %s\n", "row", "path", "ours", "raw", "x",
              "perftest", "x", "UCT", "x", "goal");
  for (const VerbsRow& row : rows) {
    const nlohmann::json line = describe(row);
    out["rows"].push_back(line);
    print_row(row, line);
  }
  if (json_file.empty()) return true;
  std::ofstream file(json_file);
  file << out.dump(1) << std::endl;
  if (file.good()) return true;
  std::fprintf(stderr, "cannot write %s: %s\n", json_file.c_str(), std::strerror(errno));
  return false;
}

}  // namespace hydrant::bench
