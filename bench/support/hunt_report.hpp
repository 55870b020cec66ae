// Reports of the programs that hunt for stale pins, as text and as JSON.
#pragma once

#include "tests/stale/hunt/hunt.hpp"

#include <nlohmann/json.hpp>

#include <cinttypes>
#include <cstdio>

namespace hydrant::stale {

using Json = nlohmann::ordered_json;

inline void show_progress(const HuntCounts& counts) {
  std::fprintf(stderr, "\r%" PRIu64 " operations, %" PRIu64 " opportunities, %" PRIu64 " stale   ",
               counts.operations, counts.opportunities, counts.stale);
}

inline Json to_json(const HuntResult& result) {
  const HuntCounts& c = result.counts;
  Json sources = Json::object();
  for (size_t i = 0; i < kSources; ++i) {
    if (c.lives[i] == 0) continue;
    sources[source_name(static_cast<Source>(i))] = {{"lives", c.lives[i]},
                                                    {"opportunities", c.opportunities_by_source[i]},
                                                    {"stale", c.stale_by_source[i]}};
  }
  Json coverage = Json::object();
  for (size_t i = 0; i < kCoverages; ++i) {
    coverage[coverage_name(static_cast<Coverage>(i))] = c.pins_by_coverage[i];
  }
  return {{"seconds", result.seconds},
          {"operations", c.operations},
          {"opportunities", c.opportunities},
          {"stale", c.stale},
          {"unwatched_kept", c.unwatched_kept},
          {"broken", c.broken},
          {"pins", c.pins},
          {"not_now", c.not_now},
          {"refused", c.refused},
          {"checks", c.checks},
          {"late_checks", c.late_checks},
          {"contests", c.contests},
          {"raw_calls", c.raw_calls},
          {"stale_before_checked", c.stale_before_checked},
          {"children", c.children},
          {"pins_by_coverage", coverage},
          {"sources", sources},
          {"findings", result.findings},
          {"skipped", result.skipped},
          {"failure", result.failure}};
}

inline void print(const HuntResult& result) {
  const HuntCounts& c = result.counts;
  for (const std::string& text : result.skipped) std::printf("skipped %s\n", text.c_str());
  std::printf("%-8s %12s %14s %8s\n", "source", "lives", "opportunities", "stale");
  for (size_t i = 0; i < kSources; ++i) {
    if (c.lives[i] == 0) continue;
    std::printf("%-8s %12" PRIu64 " %14" PRIu64 " %8" PRIu64 "\n",
                source_name(static_cast<Source>(i)), c.lives[i], c.opportunities_by_source[i],
                c.stale_by_source[i]);
  }
  std::printf("%.1f s; %" PRIu64 " pins, %" PRIu64 " not now, %" PRIu64 " refused; %" PRIu64
              " checks, %" PRIu64 " through holds that outlived their memory; %" PRIu64
              " mapped before the last owner's release had returned; %" PRIu64 " children\n",
              result.seconds, c.pins, c.not_now, c.refused, c.checks, c.late_checks, c.contests,
              c.children);
  if (c.raw_calls != 0) {
    std::printf("%" PRIu64 " raw calls; %" PRIu64
                " stale pins before the library detected the first one\n",
                c.raw_calls, c.stale_before_checked);
  }
  std::printf("pins by coverage:");
  for (size_t i = 0; i < kCoverages; ++i) {
    std::printf(" %s %" PRIu64, coverage_name(static_cast<Coverage>(i)), c.pins_by_coverage[i]);
  }
  std::printf("\n");
  for (const std::string& text : result.findings) std::printf("FOUND %s\n", text.c_str());
  if (c.unwatched_kept != 0) {
    std::printf("%" PRIu64 " times unwatched memory stayed cached\n", c.unwatched_kept);
  }
  if (c.broken != 0) std::printf("%" PRIu64 " broken pins, moves or children\n", c.broken);
  if (!result.failure.empty()) std::printf("The hunt failed: %s\n", result.failure.c_str());
}

// The last line of every such program; programs.cpp reads it again.
inline void print_last_line(std::FILE* to, const HuntCounts& counts, unsigned mutants,
                            unsigned caught) {
  std::fprintf(to,
               "operations %" PRIu64 ", opportunities %" PRIu64 ", stale %" PRIu64
               ", mutants %u caught of %u\n",
               counts.operations, counts.opportunities, counts.stale, caught, mutants);
}

}  // namespace hydrant::stale
