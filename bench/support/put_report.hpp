// Tables of firehose_bench on standard output, and as JSON, with goals; cells that miss a goal are marked.
#pragma once

#include "bench/support/bench_main.hpp"
#include "bench/support/domain.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/put_kernels.hpp"
#include "bench/support/put_sweep.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace hydrant::bench {

using Json = nlohmann::ordered_json;

inline constexpr double kOfPinEverything = 0.95;  // operations per second, while the set fits
inline constexpr double kLeasedHits = 1.5;        // times those of a fixed division
inline constexpr double kRegistrationsPerPage = 1.1;

// The speed of `ours` relative to `theirs`, by repetition.
inline std::vector<double> speedups(const PutSamples& ours, const PutSamples& theirs) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(ours.ns.size(), theirs.ns.size()); ++i)
    ratios.push_back(theirs.ns[i] / ours.ns[i]);
  return ratios;
}

// A ratio one percent below the goal counts as noise; within a tenth of it the upper quartile decides.
inline const char* judge(const std::vector<double>& ratios, double goal) {
  if (ratios.empty()) return "not run";
  if (median(ratios) >= goal) return "yes";
  const bool is_close = median(ratios) >= 0.99 * goal ||
                        (median(ratios) >= 0.9 * goal && quantile(ratios, 0.75) >= goal);
  return is_close ? "within noise" : "NO";
}

inline Json describe(const PutCell& cell, size_t way) {
  const PutSamples& samples = cell.ways[way];
  if (!samples.refusal.empty()) return {{"refusal", samples.refusal}};
  Json out = {{"ns", median(samples.ns)},
              {"samples_ns", samples.ns},
              {"messages", samples.messages},
              {"registrations", samples.registrations},
              {"bounced", samples.bounced}};
  if (asks_a_cache(kAllPutWays[way])) out["hit_rate"] = samples.hits;
  return out;
}

inline Json describe(const PutCell& cell) {
  Json out = {{"bytes", cell.bytes},
              {"percent", cell.percent},
              {"delay_us", static_cast<double>(cell.delay_ns) / 1000},
              {"pattern", cell.zipf ? "zipf" : "uniform"}};
  for (size_t i = 0; i < kPutWays; ++i)
    out["ways"][put_way_name(kAllPutWays[i])] = describe(cell, i);
  const auto against = [&](const char* what, size_t way, double goal) {
    const std::vector<double> ratios = speedups(cell.ways[0], cell.ways[way]);
    if (!ratios.empty()) out[what] = {{"ratio", median(ratios)}, {"kept", judge(ratios, goal)}};
  };
  against("of_rendezvous_unpin", 1, 1.0);
  against("of_rendezvous_keep", 2, 1.0);
  if (cell.percent <= 100 && !cell.zipf) against("of_pin_everything", 4, kOfPinEverything);
  return out;
}

inline void print_verdict(const Json& cell, const char* key) {
  if (!cell.contains(key)) {
    std::printf(" %13s", "-");
    return;
  }
  const auto kept = cell[key]["kept"].get<std::string>();
  std::printf("  %5.2f %-5s", cell[key]["ratio"].get<double>(),
              kept == "within noise" ? "noise" : kept.c_str());
}

inline void print_heading(const PutCell& cell) {
  std::printf(
      "\n%s, %s: %s\n", cell.bytes == 8 ? "Latency of 8 bytes, ns" : "Puts of 64 KiB, GiB/s",
      cell.zipf ? "some places more often (zipf)" : "random places", "set / budget by delay");
  std::printf("%5s %5s | %9s %9s %9s %9s %9s | %13s %13s %13s | %5s %5s %5s\n", "set", "us",
              "firehose", "unpin", "keep", "bounce", "pin all", "x unpin >=1", "x keep >=1",
              "x all >=0.95", "hits", "msgs", "regs");
}

inline Json report_sweep(const std::vector<PutCell>& cells) {
  Json out = Json::array();
  size_t bytes = 0;
  bool zipf = false;
  for (const PutCell& cell : cells) {
    if (cell.bytes != bytes || cell.zipf != zipf) print_heading(cell);
    bytes = cell.bytes;
    zipf = cell.zipf;
    out.push_back(describe(cell));
    std::printf("%4u%% %5.0f |", cell.percent, static_cast<double>(cell.delay_ns) / 1000);
    for (const PutSamples& samples : cell.ways) {
      const double ns = median(samples.ns);
      if (ns <= 0.0) {
        std::printf(" %9s", "refused");
      } else {
        const double shown = bytes == 8 ? ns : static_cast<double>(bytes) / kGiB * 1e9 / ns;
        std::printf(" %9.*f", bytes == 8 ? 0 : 2, shown);
      }
    }
    std::printf(" |");
    for (const char* key : {"of_rendezvous_unpin", "of_rendezvous_keep", "of_pin_everything"})
      print_verdict(out.back(), key);
    const PutSamples& ours = cell.ways[0];
    std::printf(" | %5.3f %5.2f %5.2f\n", ours.hits, ours.messages, ours.registrations);
  }
  for (const PutCell& cell : cells) {
    for (size_t i = 0; i < kPutWays; ++i) {
      if (cell.ways[i].refusal.empty()) continue;
      std::printf("%s of %zu bytes at %u %%: %s\n", put_way_name(kAllPutWays[i]), cell.bytes,
                  cell.percent, cell.ways[i].refusal.c_str());
    }
  }
  return out;
}

inline Json report_kernels(const std::vector<KernelRow>& rows) {
  std::printf(
      "\nKernels on 16 ranks, 2 us: a rank's time per put\n%-8s %-17s %8s %6s | %9s %8s | "
      "%7s %6s %6s\n",
      "kernel", "way", "puts", "bytes", "ns", "x", "hits", "msgs", "regs");
  Json out = Json::array();
  const KernelRow* firehose = nullptr;
  for (const KernelRow& row : rows) {
    if (row.way == PutWay::kFirehose) firehose = &row;
    Json line = {{"kernel", row.name},
                 {"way", put_way_name(row.way)},
                 {"puts", row.puts},
                 {"bytes", row.put_bytes}};
    if (!row.refusal.empty()) {
      line["refusal"] = row.refusal;
      std::printf("%-8s %-17s %s\n", row.name.c_str(), put_way_name(row.way), row.refusal.c_str());
      out.push_back(line);
      continue;
    }
    std::vector<double> ratios;
    for (size_t i = 0; i < std::min(row.ns.size(), firehose->ns.size()); ++i)
      ratios.push_back(row.ns[i] / firehose->ns[i]);
    line.update({{"ns", median(row.ns)},
                 {"samples_ns", row.ns},
                 {"times_firehose", median(ratios)},
                 {"messages", row.messages},
                 {"registrations", row.registrations}});
    char hits[16] = "-";
    if (asks_a_cache(row.way)) {
      line["hit_rate"] = row.hits;
      std::snprintf(hits, sizeof hits, "%.4f", row.hits);
    }
    out.push_back(line);
    std::printf("%-8s %-17s %8zu %6zu | %9.0f %8.2f | %7s %6.3f %6.3f\n", row.name.c_str(),
                put_way_name(row.way), row.puts, row.put_bytes, median(row.ns), median(ratios),
                hits, row.messages, row.registrations);
  }
  return out;
}

inline Json report_sharing(const std::vector<SharingRow>& rows) {
  std::printf(
      "\nSharing, the same pages (goal: about 1 registration per page)\n%-10s %6s %14s %10s\n",
      "initiators", "pages", "registrations", "moves");
  Json out = Json::array();
  for (const SharingRow& row : rows) {
    const bool kept = row.registrations <= kRegistrationsPerPage;
    out.push_back({{"initiators", row.initiators},
                   {"pages", row.pages},
                   {"registrations_per_page", row.registrations},
                   {"moves_per_page", row.moves},
                   {"kept", kept ? "yes" : "NO"},
                   {"refusal", row.refusal}});
    std::printf("%-10u %6zu %10.2f %-3s %10.2f %s\n", row.initiators, row.pages, row.registrations,
                kept ? "yes" : "NO", row.moves, row.refusal.c_str());
  }
  return out;
}

inline Json report_leases(const std::vector<LeaseRow>& rows) {
  std::printf(
      "\nLeases, 6 of 64 peers active, 2 us (goal: 1.5 times the hits of a fixed split)\n"
      "%-12s %8s %8s %8s %9s %9s\n",
      "set / budget", "leased", "fixed", "ratio", "leased ns", "fixed ns");
  Json out = Json::array();
  for (const LeaseRow& row : rows) {
    const bool kept = row.ratio >= kLeasedHits;
    out.push_back({{"active", row.active},
                   {"peers", row.peers},
                   {"set_share", row.set_share},
                   {"leased_hit_rate", row.leased_hits},
                   {"fixed_hit_rate", row.fixed_hits},
                   {"ratio", row.ratio},
                   {"kept", kept ? "yes" : "NO"},
                   {"leased_ns", row.leased_ns},
                   {"fixed_ns", row.fixed_ns},
                   {"refusal", row.refusal}});
    std::printf("1/%-10.0f %8.3f %8.3f %4.2f %-3s %9.0f %9.0f %s\n", 1.0 / row.set_share,
                row.leased_hits, row.fixed_hits, row.ratio, kept ? "yes" : "NO", row.leased_ns,
                row.fixed_ns, row.refusal.c_str());
  }
  return out;
}

}  // namespace hydrant::bench
