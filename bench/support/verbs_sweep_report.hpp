// Results of verbs_sweep_bench: a table, the names of the cells that miss a goal, and JSON with the samples.
#pragma once

#include "bench/support/put_report.hpp"

#include <cstdio>
#include <string>
#include <vector>

namespace hydrant::bench {

inline Json describe_sweep(const PutCell& cell) {
  Json out = {{"bytes", cell.bytes}, {"percent", cell.percent}};
  for (size_t i = 0; i < kPutWays; ++i) {
    const PutSamples& samples = cell.ways[i];
    Json& way = out["ways"][put_way_name(kAllPutWays[i])];
    way = {{"ns", median(samples.ns)}, {"samples_ns", samples.ns}, {"bounced", samples.bounced}};
    if (i < 3) way["registrations"] = samples.registrations;
    if (kAllPutWays[i] == PutWay::kFirehose) way["hit_rate"] = samples.hits;
  }
  const auto against = [&](const char* what, size_t way, double goal) {
    const std::vector<double> ratios = speedups(cell.ways[0], cell.ways[way]);
    out[what] = {{"ratio", median(ratios)}, {"kept", judge(ratios, goal)}};
  };
  against("of_rendezvous_unpin", 1, 1.0);
  against("of_rendezvous_keep", 2, 1.0);
  if (cell.percent <= 100) against("of_pin_everything", 4, kOfPinEverything);
  return out;
}

inline Json report_verbs_sweep(const std::vector<PutCell>& cells) {
  Json out = Json::array();
  size_t bytes = 0, lost = 0;
  for (const PutCell& cell : cells) {
    if (cell.bytes != bytes) {
      bytes = cell.bytes;
      std::printf(
          "\n%s, us per put by set / budget\n%5s | %8s %8s %8s %8s %8s | %13s %13s %13s | "
          "%5s %6s %6s\n",
          bytes == 8 ? "8 bytes, one at a time" : "64 KiB, 8 in flight", "set", "firehose", "unpin",
          "keep", "bounce", "pin all", "x unpin >=1", "x keep >=1", "x all >=0.95", "hits", "regs",
          "copies");
    }
    const Json line = describe_sweep(cell);
    std::printf("%4u%% |", cell.percent);
    for (const PutSamples& samples : cell.ways) std::printf(" %8.1f", median(samples.ns) / 1e3);
    std::printf(" |");
    for (const char* key : {"of_rendezvous_unpin", "of_rendezvous_keep", "of_pin_everything"}) {
      print_verdict(line, key);
      if (line.contains(key) && line[key]["kept"] == "NO") ++lost;
    }
    const PutSamples& ours = cell.ways[0];
    std::printf(" | %5.3f %6.3f %6.3f\n", ours.hits, ours.registrations, ours.bounced);
    out.push_back(line);
  }
  std::printf("\n%zu goals missed\n", lost);
  for (const Json& line : out) {
    for (const char* key : {"of_rendezvous_unpin", "of_rendezvous_keep", "of_pin_everything"}) {
      if (!line.contains(key) || line[key]["kept"] != "NO") continue;
      std::printf("NO: %5zu bytes, %3u %%: %s %.3f\n", line["bytes"].get<size_t>(),
                  line["percent"].get<unsigned>(), key, line[key]["ratio"].get<double>());
    }
  }
  return out;
}

}  // namespace hydrant::bench
