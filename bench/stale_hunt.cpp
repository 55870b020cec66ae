// Is any pin ever stale? Threads allocate, change and release memory in every way, pin it, and move data
// through the pins. tests/stale/hunt/hunt.hpp explains how a stale pin shows and why only the cache can cause
// it. This program runs for long what the tests run for seconds, also with mutants of the library.
//
// The last line is: operations N, opportunities N, stale N, mutants N caught of N. With --json standard
// output is one JSON document with the same under "summary", and the line goes to standard error.
// Exit status: 0 clean; 1 not clean, or too few opportunities; 2 usage, or --hooks without the hooks; 77 no
// io_uring, or no verbs device.
#include "bench/support/hunt_report.hpp"
#include "bench/support/option_error.hpp"
#include "tests/stale/hunt/hydrant_cache.hpp"
#include "tests/stale/hunt/mutants.hpp"
#include "tests/stale/hunt/programs.hpp"
#include "tests/stale/hunt/rounds.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <random>
#include <string>
#include <unistd.h>

namespace hydrant::stale {
namespace {

constexpr int kDirty = 1;
constexpr int kUsage = 2;
constexpr int kSkipped = 77;
constexpr double kDefaultSeconds = 30;

struct Arguments {
  HuntOptions hunt;
  HydrantCacheOptions cache;
  double minutes = 0;
  uint64_t mutant_operations = 200'000;
  std::string watch = "auto", mode = "region", sources = "all";
  std::string mutant, mutants = "all";
  std::string preload;
  std::string raw = "no";
  bool hooks = false, no_hunt = false, mixed = false, peer = false;
  bool json = false, list = false, quiet = false;
  // Pins of an address that was cached before an earlier unmapping, per 1000 operations.
  uint32_t min_opportunities = 10;
  uint32_t max_checked = 1000;
};

void add_hunt_options(CLI::App& app, Arguments& a) {
  app.add_option("--minutes", a.minutes, "Length of the hunt in minutes")
      ->check(CLI::PositiveNumber);
  app.add_option("--seconds", a.hunt.seconds, "Length of the hunt in seconds; default 30")
      ->check(CLI::PositiveNumber);
  app.add_option("--operations", a.hunt.operations, "Number of operations of all threads together")
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", a.hunt.threads, "Number of threads")->check(CLI::Range(1, 64));
  app.add_option("--seed", a.hunt.seed,
                 "Seed of the random numbers; chosen and printed by default");
  app.add_option("--watch", a.watch, "The domain's watch option")
      ->check(CLI::IsMember({"auto", "client", "none", "default"}));
  app.add_option("--registrar", a.cache.registrar,
                 "uring, or ibv: RDMA through the first verbs device then shows stale pins")
      ->check(CLI::IsMember({"uring", "ibv"}));
  app.add_option("--mode", a.mode, "region or page")->check(CLI::IsMember({"region", "page"}));
  app.add_option("--budget", a.cache.budget_bytes, "The domain's budget in bytes")
      ->transform(CLI::AsSizeValue(false));
  app.add_flag(
         "--busy-mutex", a.cache.busy_mutex,
         "Let invalidations find the cache's mutex held, as under load or in a signal handler")
      ->disable_flag_override();
  app.add_option("--sources", a.sources, "Kinds of memory: see --list; 'all', 'a,b', or '-a,-b'");
  app.add_option("--slots", a.hunt.slots, "Number of address slots for mappings")
      ->check(CLI::Range(1, 16384));
  app.add_option("--blocks", a.hunt.blocks, "Most blocks that a thread owns")
      ->check(CLI::Range(1, 4096));
  app.add_option("--forks-one-in", a.hunt.forks_one_in, "Operations per fork")
      ->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--forget", a.hunt.forget_per_mille,
                 "With --watch=client: deliberately skip this many of 1000 announcements")
      ->check(CLI::Range(0, 1000));
  app.add_option("--raw", a.raw,
                 "Map and unmap also by system calls that the hooks do not see: in turns, so that "
                 "no two overlap; or racing, where stale pins before the library's first detection "
                 "are counted separately")
      ->check(CLI::IsMember({"no", "turns", "racing"}));
  app.add_option("--least-opportunities", a.min_opportunities,
                 "Required opportunities per 1000 operations; fewer are a failure");
  app.add_option("--most-checked", a.max_checked,
                 "Allowed number of 1000 pins whose hits ask the kernel; more are a failure");
}

void add_options(CLI::App& app, Arguments& a) {
  add_hunt_options(app, a);
  app.add_flag("--mixed", a.mixed,
               "Run rounds of at most 20 s: as given, in the other mode, with few slots and "
               "bystanders that are stopped anywhere, with a budget that is always full; then, "
               "in builds with mutants, these again with --busy-mutex")
      ->disable_flag_override();
  app.add_flag("--peer", a.peer,
               "Afterwards hunt as long in UCX's cache, with the kinds of memory that "
               "UCX supports")
      ->disable_flag_override();
  app.add_flag("--hooks", a.hooks, "Run with libfirehose_hooks.so preloaded")
      ->disable_flag_override();
  app.add_option("--preload", a.preload,
                 "Preload these libraries, for example an allocator (separated by blanks)");
  app.add_option(
      "--mutants", a.mutants,
      "Defects of the library to enable after the hunt, one at a time, each in its own process: "
      "'all' (default), 'none' or 'a,b'");
  app.add_option("--mutant-operations", a.mutant_operations,
                 "Number of operations in which each defect must be detected")
      ->check(CLI::PositiveNumber);
  app.add_flag("--only-mutants", a.no_hunt, "Skip the hunt in the unmodified library")
      ->disable_flag_override();
  app.add_option("--mutant", a.mutant,
                 "Enable this defect in this process and run the hunt that must find it");
  app.add_flag("--json", a.json, "Write one JSON document in place of all other output")
      ->disable_flag_override();
  app.add_flag("--quiet", a.quiet, "Suppress the progress line on standard error")
      ->disable_flag_override();
  app.add_flag("--list", a.list, "List the sources and mutants, and exit")->disable_flag_override();
}

int list() {
  for (size_t i = 0; i < kSources; ++i) {
    const auto source = static_cast<Source>(i);
    std::printf("%-20s %s\n", source_name(source), source_text(source));
  }
  std::printf("\n");
  for (const MutantHunt& mutant : mutant_hunts()) {
    std::printf("%-20s %s; hunted in: %s\n", mutant.name.c_str(), mutant.what.c_str(),
                format_sources(mutant.hunt.sources).c_str());
  }
  return 0;
}

// The contents of the last line, and the verdict.
struct Outcome {
  HuntCounts counts;
  unsigned mutants = 0, caught = 0;
  bool good = true;
  Json document = Json::object();
};

void say_skipped(const Arguments& a, const std::string& reason) {
  if (a.json) {
    std::printf("%s\n", Json{{"skipped", reason}}.dump(2).c_str());
  } else {
    std::printf("skipped: %s\n", reason.c_str());
  }
}

Json summary(const Outcome& outcome) {
  return {{"operations", outcome.counts.operations},
          {"opportunities", outcome.counts.opportunities},
          {"stale", outcome.counts.stale},
          {"mutants", outcome.mutants},
          {"caught", outcome.caught},
          {"clean", outcome.good}};
}

// False if this machine cannot run the hunt.
bool hunt(Arguments& a, Outcome* outcome) {
  if (!a.quiet && isatty(STDERR_FILENO) != 0) a.hunt.progress = show_progress;
  std::string error;
  const HuntResult result =
      a.mixed ? run_mixed_rounds(a.hunt, a.cache, &error) : run_one_round(a.hunt, a.cache, &error);
  if (!error.empty()) {
    say_skipped(a, error);
    return false;
  }
  if (a.hunt.progress) std::fprintf(stderr, "\n");
  if (!a.json) print(result);
  outcome->document["hydrant"] = to_json(result);
  outcome->counts = result.counts;
  outcome->good = result.clean();
  if (result.counts.opportunities * 1000 <
      result.counts.operations * uint64_t{a.min_opportunities}) {
    outcome->document["too_few_opportunities"] = true;
    if (!a.json) std::printf("too few opportunities: the run proves little\n");
    outcome->good = false;
  }
  const uint64_t checked = result.counts.pins_by_coverage[static_cast<size_t>(Coverage::kChecked)];
  if (checked * 1000 > result.counts.pins * uint64_t{a.max_checked}) {
    outcome->document["too_many_checked"] = true;
    if (!a.json) std::printf("too many pins whose hits ask the kernel\n");
    outcome->good = false;
  }
  return true;
}

bool is_chosen(const std::string& name, const std::string& list) {
  return list == "all" || ("," + list + ",").find("," + name + ",") != std::string::npos;
}

void hunt_mutants(const Arguments& a, Outcome* outcome) {
  constexpr const char* kEnds[] = {"caught", "SURVIVED", "skipped", "FAILED"};
  const std::string program = program_with_mutants();
  for (const MutantHunt& mutant : mutant_hunts()) {
    if (!is_chosen(mutant.name, a.mutants)) continue;
    const MutantRun run = run_mutant(program, mutant, a.hunt.seed, a.mutant_operations);
    const char* end = kEnds[static_cast<size_t>(run.end)];
    outcome->document["mutants"][mutant.name] = {{"what", mutant.what},
                                                 {"end", end},
                                                 {"operations", run.operations},
                                                 {"seconds", run.seconds},
                                                 {"text", run.text}};
    if (!a.json) {
      std::printf("mutant %s (%s): %s after %" PRIu64 " operations, %.1f s\n", mutant.name.c_str(),
                  mutant.what.c_str(), end, run.operations, run.seconds);
      if (run.end != MutantEnd::kCaught || !a.quiet) std::printf("    %s\n", run.text.c_str());
      std::fflush(stdout);
    }
    if (run.end == MutantEnd::kSkipped) continue;
    ++outcome->mutants;
    if (run.end == MutantEnd::kCaught) ++outcome->caught;
    if (run.end != MutantEnd::kCaught) outcome->good = false;
  }
}

// The result of a peer's cache changes neither the last line nor the exit status.
void hunt_peer(const Arguments& a, Outcome* outcome) {
  SourceSet sources = a.hunt.sources;
  for (const Source ours :
       {Source::kMemfd, Source::kVouched, Source::kOwner, Source::kArena, Source::kFork}) {
    sources.drop(ours);
  }
  const ProgramEnd peer = run_program(
      {beside_this_program("stale_hunt_ucx"), "--seed", std::to_string(a.hunt.seed), "--seconds",
       std::to_string(a.hunt.seconds), "--operations", std::to_string(a.hunt.operations),
       "--threads", std::to_string(a.hunt.threads), "--slots", std::to_string(a.hunt.slots),
       "--blocks", std::to_string(a.hunt.blocks), "--sources", format_sources(sources)},
      "", a.hunt.seconds + static_cast<double>(a.hunt.operations) * 1e-3);
  outcome->document["ucx"] = peer.output;
  if (!a.json) {
    std::printf("\nUCX's cache, sources %s:\n%s\n", format_sources(sources).c_str(),
                peer.output.c_str());
  }
}

// Turns this process into the hunt for one defect. Returns an exit status, or -1 to continue.
int become_mutant(Arguments& a) {
  const MutantHunt* mutant = find_mutant_hunt(a.mutant);
  if (mutant == nullptr || !has_mutants()) {
    std::fprintf(stderr, "stale_hunt: --mutant: this build has no such defect: see --list\n");
    return kUsage;
  }
  std::string reason;
  if (!has_needed(mutant->needs, &reason)) {
    say_skipped(a, reason);
    return kSkipped;
  }
  const HuntOptions given = a.hunt;
  a.hunt = mutant->hunt;
  a.cache = mutant->cache;
  a.hunt.seed = given.seed;
  a.hunt.seconds = given.seconds;
  a.hunt.operations = given.operations;
  a.mutants = "none";
  set_mutant_by_name(mutant->name, mutant->delay_us);
  return -1;
}

// The first name of a comma-separated list that is not a defect; "" if all are.
std::string unknown_mutant(const std::string& names) {
  if (names == "all" || names == "none") return "";
  for (size_t from = 0; from <= names.size();) {
    const size_t end = std::min(names.find(',', from), names.size());
    const std::string name = names.substr(from, end - from);
    if (find_mutant_hunt(name) == nullptr) return name.empty() ? "(empty)" : name;
    from = end + 1;
  }
  return "";
}

// The conflict between arguments; "" if there is none.
std::string wrong_arguments(const Arguments& a) {
  const std::string unknown = unknown_mutant(a.mutants);
  if (!unknown.empty()) return "--mutants: " + unknown + " is unknown: see --list";
  if (a.no_hunt && a.mutants == "none") return "--only-mutants with --mutants=none hunts nothing";
  if (a.cache.busy_mutex && !has_mutants()) return "--busy-mutex: this build cannot simulate it";
  if (a.hunt.forget_per_mille != 0 && a.watch != "client") return "--forget needs --watch=client";
  return "";
}

// Checks that CLI11 cannot do. Returns an exit status, or -1 to continue.
int prepare(Arguments& a, char** argv) {
  std::string error;
  if (!parse_sources(a.sources, &a.hunt.sources, &error)) {
    std::fprintf(stderr, "stale_hunt: --sources: %s\n", error.c_str());
    return kUsage;
  }
  error = wrong_arguments(a);
  if (!error.empty()) {
    std::fprintf(stderr, "stale_hunt: %s\n", error.c_str());
    return kUsage;
  }
  if (a.hooks) a.preload = hooks_library() + " " + a.preload;
  if (!a.preload.empty()) error = restart_with(a.preload, argv);
  // ld.so only warns of what it cannot preload.
  if (error.empty() && a.hooks && !has_hooks())
    error = "--hooks: " + hooks_library() + " was not preloaded: build it, or copy it to this path";
  if (!error.empty()) {
    std::fprintf(stderr, "stale_hunt: %s\n", error.c_str());
    return kUsage;
  }
  parse_watch(a.watch, &a.cache.watch);
  a.cache.mode = a.mode == "page" ? HYDRANT_MODE_PAGE : HYDRANT_MODE_REGION;
  if (a.raw != "no") a.hunt.raw = a.raw == "turns" ? RawCalls::kInTurn : RawCalls::kRacing;
  if (a.minutes > 0) a.hunt.seconds = a.minutes * 60;
  if (a.hunt.seconds <= 0 && a.hunt.operations == 0) a.hunt.seconds = kDefaultSeconds;
  if (a.hunt.seed == 0) a.hunt.seed = std::random_device{}() | 1;
  return a.mutant.empty() ? -1 : become_mutant(a);
}

int main_of(int argc, char** argv) {
  CLI::App app{"Hunts for stale pins.", "stale_hunt"};
  Arguments a;
  a.hunt.seed = 0;
  add_options(app, a);
  app.failure_message(bench::option_error);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (a.list) return list();
  const int status = prepare(a, argv);
  if (status >= 0) return status;
  const std::string sources = format_sources(a.hunt.sources);
  Outcome outcome;
  outcome.document = {{"seed", a.hunt.seed},       {"watch", a.watch},   {"mode", a.mode},
                      {"threads", a.hunt.threads}, {"sources", sources}, {"hooks", a.hooks}};
  if (!a.json) {
    std::printf("seed %" PRIu64 ", watch %s, %s mode, %u threads, sources %s\n", a.hunt.seed,
                a.watch.c_str(), a.mode.c_str(), a.hunt.threads, sources.c_str());
    std::fflush(stdout);
  }
  if (!a.no_hunt && !hunt(a, &outcome)) return kSkipped;
  if (a.mutants != "none") hunt_mutants(a, &outcome);
  if (a.peer) hunt_peer(a, &outcome);
  if (a.json) {
    outcome.document["summary"] = summary(outcome);
    std::printf("%s\n", outcome.document.dump(2).c_str());
  }
  print_last_line(a.json ? stderr : stdout, outcome.counts, outcome.mutants, outcome.caught);
  return outcome.good ? 0 : kDirty;
}

}  // namespace
}  // namespace hydrant::stale

int main(int argc, char** argv) { return hydrant::stale::main_of(argc, argv); }
