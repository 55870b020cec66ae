// Starts the workers of a hunt, watches their progress, and collects the result.
#include "tests/stale/hunt/hunt.hpp"

#include "tests/stale/hunt/stacks.hpp"
#include "tests/stale/hunt/worker.hpp"
#include "tests/support/patience.hpp"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <unistd.h>

namespace hydrant::stale {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{20};
constexpr std::chrono::seconds kMaxSilence{60};
constexpr std::chrono::seconds kBetweenReports{1};

void add_supplies(Ground& ground, HuntResult* result) {
  const SourceSet sources = ground.options.sources;
  struct Row {
    Source source;
    std::unique_ptr<Supply> supply;
  };
  Row rows[] = {
      {Source::kSmall, make_small_supply(sources)},
      {Source::kLarge, make_large_supply(sources)},
      {Source::kHeap, make_heap_supply(sources)},
      {Source::kMmap, make_window_supply(sources, &ground.windows)},
      {Source::kMmap,
       make_window_supply(sources, &ground.windows)},  // chosen twice as often as others
      {Source::kMemfd, make_file_supply(sources, &ground.windows)},
      {Source::kVouched, make_vouched_supply(sources, &ground.vouched_windows)},
      {Source::kOwner, make_owner_supply(sources, &ground.owner_windows)},
      {Source::kBrk, make_break_supply(sources)},
      {Source::kHuge, make_huge_supply(sources)},
      {Source::kHugetlb, make_hugetlb_supply(sources)},
      {Source::kLoader, make_loader_supply(sources, ground.options.threads)},
      {Source::kArena, make_arena_supply(sources)},
  };
  for (Row& row : rows) {
    if (row.supply == nullptr) continue;
    const std::string reason = row.supply->unusable();
    if (reason.empty()) {
      ground.supplies.push_back(std::move(row.supply));
    } else {
      result->skipped.push_back(std::string(source_name(row.source)) + ": " + reason);
    }
  }
  ground.stacks = sources.has(Source::kStack);
  ground.signals = sources.has(Source::kSignal) && ground.cache.survives_handlers();
  ground.trims = sources.has(Source::kTrim);
  ground.forks = sources.has(Source::kFork) && ground.cache.survives_fork();
}

class Party {
 public:
  Party(Ground& ground, const HuntOptions& options) : ground_(ground), options_(options) {
    for (uint32_t i = 0; i < options.threads; ++i) {
      workers_.push_back(std::make_unique<Worker>(ground, i));
    }
  }

  bool usable() const {
    return std::all_of(workers_.begin(), workers_.end(), [](auto& w) { return w->usable(); });
  }

  void run() {
    prepare_stacks();
    std::vector<std::thread> threads;
    const uint64_t each = (options_.operations + options_.threads - 1) / options_.threads;
    for (auto& worker : workers_) {
      threads.emplace_back([this, &worker, each] {
        worker->run(each);
        ++ended_;
      });
    }
    watch();
    for (std::thread& thread : threads) thread.join();
    for (auto& worker : workers_) worker->clean_up();
  }

  HuntCounts counts() const {
    HuntCounts sum;
    for (auto& worker : workers_) worker->add_counts(&sum);
    return sum;
  }

 private:
  // Watches until all have ended. Must not allocate: see supply_break.cpp.
  void watch() {
    const auto begun = Clock::now();
    auto reported = begun, moved = begun;
    uint64_t done = 0;
    while (ended_.load() < workers_.size()) {
      std::this_thread::sleep_for(kLook);
      const auto now = Clock::now();
      if (options_.seconds > 0 && now - begun >= std::chrono::duration<double>(options_.seconds)) {
        ground_.stop = true;
      }
      if (options_.stop_when_checked && ground_.cache.hits_are_checked()) ground_.stop = true;
      uint64_t sum = 0;
      for (auto& worker : workers_) sum += worker->done();
      if (sum != done) moved = now;
      done = sum;
      if (now - moved > testing::patiently(kMaxSilence)) give_up();
      if (options_.progress && now - reported >= kBetweenReports) {
        reported = now;
        options_.progress(counts());
      }
    }
  }

  [[noreturn]] void give_up() {
    std::fprintf(stderr, "No progress in the hunt with seed %" PRIu64 " for a minute:\n",
                 options_.seed);
    for (auto& worker : workers_) {
      std::fprintf(stderr, "  operation %" PRIu64 ", doing: %s\n", worker->operations(),
                   worker->doing());
    }
    show_stacks(getpid());
    std::abort();
  }

  Ground& ground_;
  const HuntOptions& options_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<size_t> ended_{0};
};

}  // namespace

void HuntCounts::add(const HuntCounts& other) {
  operations += other.operations;
  opportunities += other.opportunities;
  stale += other.stale;
  stale_before_checked += other.stale_before_checked;
  raw_calls += other.raw_calls;
  unwatched_kept += other.unwatched_kept;
  broken += other.broken;
  pins += other.pins;
  not_now += other.not_now;
  refused += other.refused;
  checks += other.checks;
  late_checks += other.late_checks;
  contests += other.contests;
  children += other.children;
  for (size_t i = 0; i < kSources; ++i) {
    lives[i] += other.lives[i];
    opportunities_by_source[i] += other.opportunities_by_source[i];
    stale_by_source[i] += other.stale_by_source[i];
  }
  for (size_t i = 0; i < kCoverages; ++i) pins_by_coverage[i] += other.pins_by_coverage[i];
}

HuntResult run_hunt(const HuntOptions& options, Cache& cache) {
  HuntResult result;
  if (options.threads == 0 || (options.operations == 0 && options.seconds <= 0)) {
    result.failure = "a hunt needs threads, and a limit of operations or seconds";
    return result;
  }
  Ground ground(options, cache);
  const uint32_t fewer = options.slots / 4 + 1;
  if (!ground.windows.reserve(options.slots, options.slot_bytes, 0) ||
      !ground.vouched_windows.reserve(fewer, options.slot_bytes, size_t{1} << 30) ||
      !ground.owner_windows.reserve(fewer, options.slot_bytes, size_t{2} << 30)) {
    result.failure = "cannot reserve address space for the windows";
    return result;
  }
  add_supplies(ground, &result);
  Party party(ground, options);
  if (!party.usable()) {
    result.failure = "cannot open file descriptors for the pipes";
    return result;
  }
  choose_map_calls(options.raw);
  const uint64_t raw_before = raw_calls_made();
  const auto begun = Clock::now();
  party.run();
  result.seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  result.counts = party.counts();
  result.counts.raw_calls = raw_calls_made() - raw_before;
  result.findings = std::move(ground.findings);
  return result;
}

}  // namespace hydrant::stale
