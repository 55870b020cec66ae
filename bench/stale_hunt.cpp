// Is any pin ever stale? Threads get, change and give back memory in every way, pin it, and move data
// through the pins; tests/stale/hunt/hunt.hpp says how a stale pin shows and why only the cache can be
// at fault. This is the long run of what the tests do for seconds, and the same with mutants of the
// library.
//
// The last line says: operations N, opportunities N, stale N, mutants N caught of N.
// Exit status: 0 clean; 1 not clean, or too few opportunities; 2 usage; 77 this machine has no io_uring.
#include "tests/stale/hunt/hunt.hpp"
#include "tests/stale/hunt/hydrant_cache.hpp"
#include "tests/stale/hunt/mutants.hpp"
#include "tests/stale/hunt/programs.hpp"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cinttypes>
#include <cstdio>
#include <random>
#include <string>

namespace hydrant::stale {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kDirty = 1;
constexpr int kUsage = 2;
constexpr int kSkipped = 77;
constexpr double kDefaultSeconds = 30;

struct Arguments {
  HuntOptions hunt;
  HydrantCacheOptions cache;
  double minutes = 0, mutant_seconds = 10;
  std::string watch = "auto", mode = "region", sources = "all";
  std::string mutant, mutants = "all";
  std::string preload;
  bool hooks = false, no_hunt = false, json = false, list = false, quiet = false;
  // Of 1000 operations, pins of an address that had been cached in an earlier life.
  uint32_t least_opportunities = 10;
};

void add_hunt_options(CLI::App& app, Arguments& a) {
  app.add_option("--minutes", a.minutes, "How long");
  app.add_option("--seconds", a.hunt.seconds, "How long; 30 if nothing is said");
  app.add_option("--operations", a.hunt.operations, "How many operations, by all threads together");
  app.add_option("--threads", a.hunt.threads, "Threads")->check(CLI::Range(1, 64));
  app.add_option("--seed", a.hunt.seed, "Seed of the random numbers; chosen and printed if absent");
  app.add_option("--watch", a.watch, "The domain's watch option")
      ->check(CLI::IsMember({"auto", "client", "none", "default"}));
  app.add_option("--mode", a.mode, "region or page")->check(CLI::IsMember({"region", "page"}));
  app.add_option("--budget", a.cache.budget_bytes, "The domain's budget in bytes")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--sources", a.sources, "Kinds of memory: see --list; 'all', 'a,b', or '-a,-b'");
  app.add_option("--slots", a.hunt.slots, "Places for mappings")->check(CLI::Range(1, 16384));
  app.add_option("--blocks", a.hunt.blocks, "Blocks that a thread owns at most")
      ->check(CLI::Range(1, 4096));
  app.add_option("--forks-one-in", a.hunt.forks_one_in, "Operations to one fork")
      ->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--forget", a.hunt.forget_per_mille,
                 "With --watch=client: forget so many of 1000 announcements, on purpose")
      ->check(CLI::Range(0, 1000));
  app.add_option("--least-opportunities", a.least_opportunities,
                 "Per 1000 operations; fewer are a failure");
}

void add_options(CLI::App& app, Arguments& a) {
  add_hunt_options(app, a);
  app.add_flag("--hooks", a.hooks, "With libfirehose_hooks.so preloaded")->disable_flag_override();
  app.add_option("--preload", a.preload,
                 "With these libraries preloaded, an allocator for example (separated by blanks)");
  app.add_option(
      "--mutants", a.mutants,
      "Which defects of the library to switch on afterwards, one by one, each in a process of "
      "its own: 'all', 'none' or 'a,b'");
  app.add_option("--mutant-seconds", a.mutant_seconds, "How long each defect may stay unnoticed");
  app.add_flag("--only-mutants", a.no_hunt, "No hunt of the library as it is")
      ->disable_flag_override();
  app.add_option("--mutant", a.mutant,
                 "Switch this defect on in this process, and run the hunt that must find it");
  app.add_flag("--json", a.json, "One JSON document before the last line")->disable_flag_override();
  app.add_flag("--quiet", a.quiet, "No progress")->disable_flag_override();
  app.add_flag("--list", a.list, "Say which sources and mutants there are, and end")
      ->disable_flag_override();
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

void show_progress(const HuntCounts& counts) {
  std::fprintf(stderr, "\r%" PRIu64 " operations, %" PRIu64 " opportunities, %" PRIu64 " stale   ",
               counts.operations, counts.opportunities, counts.stale);
}

Json to_json(const Arguments& a, const HuntResult& result) {
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
  return {{"seed", a.hunt.seed},
          {"watch", a.watch},
          {"mode", a.mode},
          {"threads", a.hunt.threads},
          {"seconds", result.seconds},
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
          {"children", c.children},
          {"pins_by_coverage", coverage},
          {"sources", sources},
          {"findings", result.findings},
          {"skipped", result.skipped},
          {"failure", result.failure}};
}

void print(const HuntResult& result) {
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
  std::printf("pins by coverage:");
  for (size_t i = 0; i < kCoverages; ++i) {
    std::printf(" %s %" PRIu64, coverage_name(static_cast<Coverage>(i)), c.pins_by_coverage[i]);
  }
  std::printf("\n");
  for (const std::string& text : result.findings) std::printf("FOUND %s\n", text.c_str());
  if (c.unwatched_kept != 0)
    std::printf("%" PRIu64 " times unwatched memory was kept\n", c.unwatched_kept);
  if (c.broken != 0) std::printf("%" PRIu64 " broken pins, moves or children\n", c.broken);
  if (!result.failure.empty()) std::printf("The hunt failed: %s\n", result.failure.c_str());
}

// The figures of the last line, and whether all is well.
struct Outcome {
  HuntCounts counts;
  uint32_t mutants = 0, caught = 0;
  bool good = true;
  int finish() const {
    std::printf("operations %" PRIu64 ", opportunities %" PRIu64 ", stale %" PRIu64
                ", mutants %u caught of %u\n",
                counts.operations, counts.opportunities, counts.stale, caught, mutants);
    return good ? 0 : kDirty;
  }
};

// False: this machine cannot hunt.
bool hunt(Arguments& a, Outcome* outcome) {
  std::string error;
  const std::unique_ptr<Cache> cache = make_hydrant_cache(a.cache, &error);
  if (cache == nullptr) {
    std::printf("skipped: %s\n", error.c_str());
    return false;
  }
  if (!a.quiet && !a.json) a.hunt.progress = show_progress;
  const HuntResult result = run_hunt(a.hunt, *cache);
  if (a.hunt.progress) std::fprintf(stderr, "\n");
  if (a.json) {
    std::printf("%s\n", to_json(a, result).dump(2).c_str());
  } else {
    print(result);
  }
  outcome->counts = result.counts;
  outcome->good = result.clean();
  if (outcome->counts.opportunities * 1000 <
      outcome->counts.operations * uint64_t{a.least_opportunities}) {
    std::printf("too few opportunities: the run proves little\n");
    outcome->good = false;
  }
  return true;
}

bool is_chosen(const std::string& name, const std::string& list) {
  return list == "all" || ("," + list + ",").find("," + name + ",") != std::string::npos;
}

void hunt_mutants(const Arguments& a, Outcome* outcome) {
  const std::string program = program_with_mutants();
  for (const MutantHunt& mutant : mutant_hunts()) {
    if (!is_chosen(mutant.name, a.mutants)) continue;
    const MutantRun run = run_mutant(program, mutant, a.hunt.seed, a.mutant_seconds);
    const char* end[] = {"caught", "SURVIVED", "skipped", "FAILED"};
    std::printf("mutant %s (%s): %s after %.1f s\n", mutant.name.c_str(), mutant.what.c_str(),
                end[static_cast<size_t>(run.end)], run.seconds);
    if (run.end != MutantEnd::kCaught || !a.quiet) std::printf("    %s\n", run.text.c_str());
    std::fflush(stdout);
    if (run.end == MutantEnd::kSkipped) continue;
    ++outcome->mutants;
    if (run.end == MutantEnd::kCaught) {
      ++outcome->caught;
    } else {
      outcome->good = false;
    }
  }
}

// Makes this process the hunt of one defect. Answers an exit status, or -1 to go on.
int become_mutant(Arguments& a) {
  const MutantHunt* mutant = find_mutant_hunt(a.mutant);
  if (mutant == nullptr || !has_mutants()) {
    std::fprintf(stderr, "--mutant: no such defect in this build\n");
    return kUsage;
  }
  std::string reason;
  if (!has_needed(mutant->needs, &reason)) {
    std::printf("skipped: %s\n", reason.c_str());
    return kSkipped;
  }
  const HuntOptions given = a.hunt;
  a.hunt = mutant->hunt;
  a.hunt.seed = given.seed;
  a.hunt.seconds = given.seconds;
  a.hunt.operations = given.operations;
  a.mutants = "none";
  set_mutant_by_name(mutant->name, mutant->delay_us);
  return -1;
}

// What CLI11 cannot check. Answers an exit status, or -1 to go on.
int prepare(Arguments& a, char** argv) {
  std::string error;
  if (!parse_sources(a.sources, &a.hunt.sources, &error)) {
    std::fprintf(stderr, "--sources: %s\n", error.c_str());
    return kUsage;
  }
  if (a.hooks) a.preload = hooks_library() + " " + a.preload;
  if (!a.preload.empty()) error = restart_with(a.preload, argv);
  if (!error.empty()) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return kUsage;
  }
  parse_watch(a.watch, &a.cache.watch);
  a.cache.mode = a.mode == "page" ? HYDRANT_MODE_PAGE : HYDRANT_MODE_REGION;
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
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  if (a.list) return list();
  const int status = prepare(a, argv);
  if (status >= 0) return status;
  std::printf("seed %" PRIu64 ", watch %s, %s mode, %u threads, sources %s\n", a.hunt.seed,
              a.watch.c_str(), a.mode.c_str(), a.hunt.threads,
              format_sources(a.hunt.sources).c_str());
  std::fflush(nullptr);
  Outcome outcome;
  if (!a.no_hunt && !hunt(a, &outcome)) return kSkipped;
  if (a.mutants != "none") hunt_mutants(a, &outcome);
  return outcome.finish();
}

}  // namespace
}  // namespace hydrant::stale

int main(int argc, char** argv) { return hydrant::stale::main_of(argc, argv); }
