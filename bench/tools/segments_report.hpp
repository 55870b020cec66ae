// hydrant-info's facts about segments: their largest size and how to raise it, huge pages, and the variables
// with GASNet's names that have their own grammar.
#pragma once

#include "am/segment/segment_size.hpp"
#include "bench/tools/setting_notes.hpp"
#include "firehose/base/config/config_grammar.hpp"
#include "firehose/base/machine/machine_limits.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace hydrant::info {

using Json = nlohmann::ordered_json;

// "always within_size advise [never] deny force": returns the word in brackets.
inline std::string shmem_mode() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  std::string words;
  std::getline(file, words);
  const size_t open = words.find('[');
  const size_t close = words.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "unknown";
  return words.substr(open + 1, close - open - 1);
}

inline Json describe_huge_pages() {
  const std::string mode = shmem_mode();
  const bool possible =
      mode == "always" || mode == "within_size" || mode == "advise" || mode == "force";
  std::string text = "segments use huge pages: shmem_enabled is " + mode;
  if (mode == "unknown") {
    text = "unknown: /sys/kernel/mm/transparent_hugepage/shmem_enabled cannot be read";
  } else if (!possible) {
    text = "segments use no huge pages: shmem_enabled is " + mode +
           "; echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled enables them";
  }
  return {{"shmem_enabled", mode}, {"possible", possible}, {"text", text}};
}

// The largest segment of a single rank on this host.
inline Json describe_max_segment() {
  const AvailableMemory available = find_available_memory();
  Json row = {{"available_bytes", available.bytes}, {"limited_by", available.limited_by}};
  char why[kMaxSegmentText];
  if (choose_max_segment(1) != Status::kOk || count_process_limits() != Status::kOk) {
    row["bytes"] = Json();
    row["text"] = last_error_text();
    return row;
  }
  row["bytes"] = max_local_segment();
  row["text"] = explain_max_segment(why, sizeof why);
  return row;
}

struct GasnetVariable {
  const char* name;
  const char* default_text;
  const char* effect;
};
// Variables outside the table of knobs. docs/env_vars.md and docs/tools.md list them, too.
inline constexpr GasnetVariable kGasnetVariables[] = {
    {"GASNET_MAX_SEGSIZE", "0.85/H", "The largest segment of a rank."},
    {"GASNET_FREEZE", "no", "Ranks wait for a debugger at the end of init."},
    {"GASNET_NO_CATCH_SIGNAL", "", "Signals that the library does not catch."},
    {"GASNET_VERBOSEENV", "no", "Rank 0 shows the settings in force."},
    {"GASNET_TSC_RATE", "walltime", "The rate of the processor's counter."},
    {"GASNET_TSC_RATE_TOLERANCE", "0.0005", "Error of that rate that causes a warning."},
    {"GASNET_TSC_RATE_HARD_TOLERANCE", "0.02", "Error of that rate that ends the program."},
    {"GASNET_TSC_VERBOSE", "no", "Prints the measured rate."},
    {"GASNET_BACKTRACE", "no", "Errors show a backtrace."},
    {"GASNET_BACKTRACE_TYPE", "EXECINFO,GDB", "Mechanisms for backtraces, in order."},
    {"GASNET_BACKTRACE_MT", "yes", "Prefers mechanisms that support threads."},
    {"GASNET_BACKTRACE_NODES", "*", "Ranks that may print backtraces."},
    {"GASNET_BACKTRACE_SIGNAL", "", "A signal that shows a backtrace."},
    {"GASNET_FREEZE_ON_ERROR", "no", "Errors wait for a debugger."},
    {"GASNET_FREEZE_SIGNAL", "", "A signal that makes the program wait for a debugger."},
};

inline Json describe_gasnet_variables() {
  Json rows = Json::array();
  for (const GasnetVariable& variable : kGasnetVariables) {
    const char* set = std::getenv(variable.name);
    const bool is_set = set != nullptr && *set != '\0';
    const std::string note = is_set ? setting_note(variable.name, set) : "";
    rows.push_back({{"name", variable.name},
                    {"value", is_set ? set : variable.default_text},
                    {"origin", is_set ? "environment" : "default"},
                    {"note", note.empty() ? Json() : Json(note)},
                    {"default", variable.default_text},
                    {"effect", variable.effect}});
  }
  return rows;
}

inline Json describe_segments() {
  return {{"most", describe_max_segment()},
          {"huge_pages", describe_huge_pages()},
          {"gasnet_variables", describe_gasnet_variables()}};
}

}  // namespace hydrant::info
