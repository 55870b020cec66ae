// hydrant-info: reports what works on this machine, what would be chosen, why the rest is unusable, and
// remedies. machine_report.hpp collects the facts as one JSON document; this file prints them as tables.
#include "bench/support/option_error.hpp"
#include "bench/tools/machine_report.hpp"
#include "firehose/base/config/config_grammar.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace hydrant::info {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitOutput = 1;
constexpr size_t kWidth = 100;

void heading(const char* text) { std::printf("\n%s\n", text); }

// Prints `text` from column `indent` on, broken at blanks; the first line continues the current one.
void print_wrapped(std::string_view text, size_t indent) {
  while (text.size() > kWidth - indent) {
    size_t cut = text.rfind(' ', kWidth - indent);
    if (cut == std::string_view::npos) cut = text.find(' ');
    if (cut == std::string_view::npos) break;
    std::printf("%.*s\n%*s", static_cast<int>(cut), text.data(), static_cast<int>(indent), "");
    text.remove_prefix(cut + 1);
  }
  std::printf("%.*s\n", static_cast<int>(text.size()), text.data());
}

// Two columns: a name padded to `name_width`, and text that may take several lines.
void print_row(const std::string& name, size_t name_width, const std::string& text) {
  std::printf("  %-*s  ", static_cast<int>(name_width), name.c_str());
  print_wrapped(text, name_width + 4);
}

std::string size_text(const Json& bytes) {
  char text[32];
  return format_size_rounded(bytes.is_null() ? kUnlimited : bytes.get<uint64_t>(), text,
                             sizeof text);
}

// For memory sizes, where null means unknown, not unlimited.
std::string known_size_text(const Json& bytes) {
  return bytes.is_null() ? "not known" : size_text(bytes);
}

std::string text_of(const Json& row, const char* field) { return row.at(field).get<std::string>(); }

// "regions up to 256 GiB, at most 348160 of them; keys of 12 bytes": lists only existing limits.
std::string describe_usable(const Json& row) {
  const Json& traits = row.at("traits");
  std::string text = row.at("chosen").get<bool>() ? "usable, the default" : "usable";
  if (row.contains("device")) text += "; device " + text_of(row, "device");
  if (!traits.at("max_region_bytes").is_null()) {
    text += "; regions up to " + size_text(traits.at("max_region_bytes"));
  }
  if (!traits.at("max_regions").is_null()) {
    text += "; at most " + std::to_string(traits.at("max_regions").get<uint64_t>()) + " regions";
  }
  if (!traits.at("max_charge_bytes").is_null()) {
    text += "; charges at most " + size_text(traits.at("max_charge_bytes")) + " per " +
            text_of(traits, "charge_scope");
  }
  const auto key_bytes = traits.at("key_bytes").get<uint32_t>();
  text += key_bytes == 0 ? "; no keys" : "; keys of " + std::to_string(key_bytes) + " bytes";
  if (traits.value("charge_comes_back_late", false)) {
    text += "; this kernel returns charges with a delay";
  }
  return text;
}

void print_registrars(const Json& rows) {
  heading("Registrars (ways to pin memory)");
  for (const Json& row : rows) {
    const bool usable = row.at("usable").get<bool>();
    print_row(text_of(row, "name"), 8,
              usable ? describe_usable(row) : "not usable: " + text_of(row, "reason"));
  }
}

std::string rate_text(uint32_t mbps) {
  char text[32];
  std::snprintf(text, sizeof text, "%g Gbit/s", mbps / 1000.0);
  return text;
}

std::string describe_usable_port(const Json& row) {
  const std::string at = row.at("link") == "ethernet"
                             ? "RoCE, GID " + std::to_string(row.at("gid_index").get<uint32_t>()) +
                                   " (" + text_of(row, "gid") + ")"
                             : "InfiniBand, LID " + std::to_string(row.at("lid").get<uint32_t>());
  const auto peers = row.at("most_peers").get<uint64_t>();
  const auto peers_by_memlock = row.at("most_peers_by_memlock").get<uint64_t>();
  const uint64_t most = std::min(peers, peers_by_memlock);
  const bool is_further = row.at("chosen").get<bool>() && row.at("place").get<uint32_t>() != 0;
  std::string text = is_further ? "chosen, for long puts and gets beside the first"
                     : row.at("chosen").get<bool>() ? "chosen"
                     : row.at("left_out").is_null()
                         ? "usable"
                         : "usable, not chosen: " + text_of(row, "left_out");
  text += "; distance " + (row.at("distance").is_null()
                               ? "not known"
                               : std::to_string(row.at("distance").get<uint32_t>()));
  if (peers_by_memlock == 0)
    text +=
        "; memlock is too small, and jobs that use it fail: seven eighths of the limit (ulimit "
        "-l) have to hold what is registered for a peer and at the start";
  text += "; " + at;
  if (!row.at("rate_mbps").is_null()) text += "; " + rate_text(row.at("rate_mbps").get<uint32_t>());
  text +=
      "; MTU " + std::to_string(row.at("mtu_bytes").get<uint32_t>()) + "; " +
      (row.at("atomics").is_null() ? "no atomics" : "atomics (" + text_of(row, "atomics") + ")") +
      "; a process can connect to " + std::to_string(most) + (most == 1 ? " peer" : " peers") +
      " through it, and registers " + size_text(row.at("bytes_at_start")) + " at the start and " +
      size_text(row.at("bytes_per_peer")) + " for each";
  if (row.at("on_demand_paging").get<bool>())
    text += "; uses on-demand paging for memory that cannot be pinned (HYDRANT_IBV_ODP)";
  if (peers_by_memlock != 0 && peers_by_memlock < peers)
    text += "; more with a higher memlock limit (ulimit -l)";
  return text;
}

void print_transports(const Json& report) {
  constexpr size_t kNames = 16;
  heading("Transports (between ranks)");
  const Json& near = report.at("near");
  const Json& far = report.at("far");
  const std::string reason = report.at("reason").is_null() ? "" : text_of(report, "reason");
  print_row("within a node", kNames, near.is_null() ? "none: " + reason : near.get<std::string>());
  print_row("between nodes", kNames, far.is_null() ? "none: " + reason : far.get<std::string>());
  for (const Json& row : report.at("ports")) {
    const auto number = row.at("port").get<uint32_t>();
    std::string name = text_of(row, "device");
    if (number != 0) name += ":" + std::to_string(number);
    print_row(name, kNames,
              row.at("usable").get<bool>() ? describe_usable_port(row)
                                           : "not usable: " + text_of(row, "reason"));
  }
  for (const Json& row : report.at("passed_by")) {
    if (row.at("reason") == report.at("reason")) continue;  // printed above
    print_row(text_of(row, "item"), kNames,
              "skipped, although HYDRANT_IBV_PORTS lists it: " + text_of(row, "reason"));
  }
}

std::string cgroup_text(const Json& limits) {
  const auto version = limits.at("cgroup_version").get<uint32_t>();
  if (!limits.at("cgroup_known").get<bool>()) return "not known: /proc/self/cgroup cannot be read";
  if (version == 0) return "no control group limits memory";
  return size_text(limits.at("cgroup_limit_bytes")) + ", in use " +
         size_text(limits.at("cgroup_used_bytes")) + " (version " + std::to_string(version) + ", " +
         text_of(limits, "cgroup_path") + ")";
}

void print_limits(const Json& limits) {
  constexpr size_t kNames = 16;
  heading("Limits of this process and machine");
  std::string memlock = size_text(limits.at("memlock_bytes"));
  if (limits.at("memlock_hard_bytes") != limits.at("memlock_bytes"))
    memlock += ", can be raised to " + size_text(limits.at("memlock_hard_bytes"));
  memlock += " (ulimit -l)";
  if (limits.at("memlock_lifted").get<bool>()) memlock += "; lifted: this process has CAP_IPC_LOCK";
  print_row("memlock", kNames, memlock);
  print_row("control group", kNames, cgroup_text(limits));
  print_row("memory", kNames,
            known_size_text(limits.at("memory_total_bytes")) + ", available " +
                known_size_text(limits.at("memory_available_bytes")));
  print_row("file size", kNames, size_text(limits.at("file_size_bytes")) + " (ulimit -f)");
  print_row("address space", kNames, size_text(limits.at("address_space_bytes")) + " (ulimit -v)");
  print_row("pages", kNames,
            size_text(limits.at("page_bytes")) + ", huge " +
                known_size_text(limits.at("huge_page_bytes")) +
                ", transparent huge pages: " + text_of(limits, "transparent_huge_pages"));
  print_row("processors", kNames, std::to_string(limits.at("cpus").get<uint32_t>()));
  print_row("kernel", kNames, text_of(limits, "kernel"));
  print_row("membarrier", kNames,
            limits.at("membarrier").get<bool>() ? "offered: hits need no memory fence"
                                                : "not offered: hits pay for a memory fence");
}

void print_budget(const Json& budget) {
  heading("Budget of a domain that sets none");
  print_row(size_text(budget.at("bytes")), 8, text_of(budget, "text"));
}

void print_segments(const Json& segments) {
  constexpr size_t kNames = 16;
  heading("Segments of a job");
  const Json& most = segments.at("most");
  print_row("largest", kNames,
            most.at("bytes").is_null() ? "none: " + text_of(most, "text")
                                       : size_text(most.at("bytes")) +
                                             " for a single rank here: " + text_of(most, "text"));
  print_row("huge pages", kNames, text_of(segments.at("huge_pages"), "text"));
}

// Width of a column of values; longer ones shift the columns after them.
constexpr size_t kMaxValue = 16;

void print_gasnet_variables(const Json& rows, bool explain) {
  heading("Other variables with GASNet's names");
  const auto value_of = [](const Json& row) {
    const std::string value = text_of(row, "value");
    return value.empty() ? "not set" : value;
  };
  size_t names = 0;
  size_t values = 0;
  for (const Json& row : rows) {
    names = std::max(names, text_of(row, "name").size());
    values = std::max(values, std::min(value_of(row).size(), kMaxValue));
  }
  for (const Json& row : rows) {
    std::string value = value_of(row);
    value.resize(std::max(values, value.size()), ' ');
    print_row(text_of(row, "name"), names,
              value + "  " + text_of(row, "origin") +
                  (row.at("note").is_null() ? "" : ": " + text_of(row, "note")) +
                  (explain ? "; " + text_of(row, "effect") : ""));
  }
}

// Display names for the kinds of memory in the document.
const char* memory_name(const std::string& memory) {
  if (memory == "anonymous") return "mmap, anonymous";
  if (memory == "malloc") return "malloc";
  if (memory == "malloc_in_threads") return "malloc in threads";
  if (memory == "arena") return "libhydrant_alloc";
  return memory == "files" ? "files, shared" : memory.c_str();
}

const char* coverage_text(const Json& coverage) {
  if (coverage.is_null()) return "not known";
  if (coverage == "none") return "not cached";
  if (coverage == "checked") return "cached, each use queries the kernel";
  if (coverage == "watched" || coverage == "arena") return "cached, hits free of checks";
  return coverage.get_ref<const std::string&>().c_str();
}

void print_watching(const Json& watching) {
  constexpr size_t kNames = 18;
  heading(("Caching of memory if the program does not choose (watch = " +
           text_of(watching, "watch") + ")")
              .c_str());
  constexpr size_t kColumn = 37;  // the longest text and two blanks
  print_row("", kNames, "without the hooks library            with it");
  for (const Json& row : watching.at("coverage")) {
    std::string text = coverage_text(row.at("without_hooks"));
    text.resize(kColumn, ' ');
    print_row(memory_name(text_of(row, "memory")), kNames,
              text + coverage_text(row.at("with_hooks")));
  }
  const Json& userfault = watching.at("userfaultfd");
  print_row("userfaultfd", kNames,
            userfault.at("available").get<bool>() ? "works" : text_of(userfault, "reason"));
  const Json& hooks = watching.at("hooks");
  std::string text = hooks.at("present").get<bool>() ? "in this process" : "not in this process";
  text += !hooks.at("untried").is_null()  ? "; not tried: " + text_of(hooks, "untried")
          : hooks.at("library").is_null() ? "; not found"
                                          : "; " + text_of(hooks, "library");
  print_row("hooks library", kNames, text);
  for (const Json& advice : watching.at("advice")) {
    print_row("advice", kNames, advice.get<std::string>());
  }
}

// "environment" or "default", and why a setting has no effect.
std::string origin_of(const Json& row) {
  if (!row.at("rejected").is_null()) {
    return "default, because \"" + text_of(row, "rejected") + "\" is not accepted: it takes " +
           text_of(row, "accepted");
  }
  return text_of(row, "origin") + (row.at("note").is_null() ? "" : ": " + text_of(row, "note"));
}

void print_unknown_variables(const Json& rows) {
  if (rows.empty()) return;
  heading("Environment variables that are unknown and ignored");
  for (const Json& row : rows) {
    const Json& nearest = row.at("did_you_mean");
    std::string note;
    if (!nearest.is_null()) note = "did you mean " + nearest.get<std::string>() + "?";
    if (!row.at("reason").is_null()) note = "no effect: " + text_of(row, "reason");
    print_row(text_of(row, "name"), 0, note);
  }
}

void print_knobs(const Json& rows, bool explain) {
  heading("Environment variables");
  size_t names = 0;
  size_t values = 0;
  for (const Json& row : rows) {
    names = std::max(names, text_of(row, "name").size());
    values = std::max(values, std::min(text_of(row, "value").size(), kMaxValue));
  }
  for (const Json& row : rows) {
    std::string value = text_of(row, "value");
    value.resize(std::max(values, value.size()), ' ');
    print_row(text_of(row, "name"), names, value + "  " + origin_of(row));
    if (!explain) continue;
    std::printf("      ");
    print_wrapped(text_of(row, "effect"), 6);
    std::printf("      ");
    print_wrapped(
        "Takes " + text_of(row, "accepted") + "; default " + text_of(row, "default") + ".", 6);
  }
  if (!explain) std::printf("  (--verbose explains each)\n");
}

void print_for_people(const Json& report, bool explain) {
  std::printf("Hydrant %s\n", text_of(report, "version").c_str());
  print_registrars(report.at("registrars"));
  print_transports(report.at("transports"));
  print_limits(report.at("limits"));
  print_budget(report.at("default_budget"));
  print_segments(report.at("segments"));
  print_watching(report.at("watching"));
  print_knobs(report.at("knobs"), explain);
  print_gasnet_variables(report.at("segments").at("gasnet_variables"), explain);
  print_unknown_variables(report.at("unknown_variables"));
}

int run(int argc, char** argv) {
  CLI::App app{
      "Reports which registrars work on this machine and why the others do not, the transports "
      "between ranks, "
      "limits, which memory is cached and how to improve that, and the value and origin of "
      "every "
      "environment variable.",
      "hydrant-info"};
  bool json = false;
  bool verbose = false;
  app.add_flag("--json", json, "One JSON document instead of tables")->disable_flag_override();
  app.add_flag("-v,--verbose", verbose, "Explain the effect and values of each variable")
      ->disable_flag_override();
  bool probing = false;  // internal: this program as a child with, or without, the hooks
  app.add_flag(kProbeFlag, probing)->group("");
  app.set_version_flag("--version", std::string("hydrant-info ") + HYDRANT_VERSION);
  app.failure_message(bench::option_error);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 has a different code for each error; shells and scripts expect 2 for all.
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  const Json report = probing ? probe() : collect(HYDRANT_VERSION);
  if (json || probing) {
    std::printf("%s\n", report.dump(2).c_str());
  } else {
    print_for_people(report, verbose);
  }
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return written ? 0 : kExitOutput;
}

}  // namespace
}  // namespace hydrant::info

int main(int argc, char** argv) { return hydrant::info::run(argc, argv); }
