// Runs hunts in rounds with different settings of the cache and the hunt.
#include "tests/stale/hunt/rounds.hpp"

#include <algorithm>
#include <iterator>

namespace hydrant::stale {
namespace {

constexpr double kRoundSeconds = 20;
constexpr uint64_t kRoundOperations = 500'000;
constexpr uint64_t kSmallBudget = uint64_t{2} << 20;

struct Round {
  HuntOptions hunt;
  HydrantCacheOptions cache;
};

void other_mode(Round& round) {
  round.cache.mode =
      round.cache.mode == HYDRANT_MODE_PAGE ? HYDRANT_MODE_REGION : HYDRANT_MODE_PAGE;
}
void few_places(Round& round) {
  round.hunt.sources.drop(Source::kHuge);
  round.hunt.threads += 2;
  round.hunt.slots = 12;
  round.hunt.blocks = 6;
  round.hunt.bystander_threads = 2;
  round.hunt.stopped = HuntOptions::Stopped::kBystanders;
}
void full_budget(Round& round) {
  round.hunt.sources.drop(Source::kHuge);
  round.cache.budget_bytes = kSmallBudget;
}
void as_said(Round&) {}

void add(const HuntResult& part, HuntResult* sum) {
  sum->counts.add(part.counts);
  sum->seconds += part.seconds;
  sum->findings.insert(sum->findings.end(), part.findings.begin(), part.findings.end());
  if (sum->skipped.empty()) sum->skipped = part.skipped;
  if (sum->failure.empty()) sum->failure = part.failure;
}

}  // namespace

HuntResult run_one_round(const HuntOptions& options, const HydrantCacheOptions& cache,
                         std::string* error) {
  const std::unique_ptr<Cache> subject = make_hydrant_cache(cache, error);
  return subject != nullptr ? run_hunt(options, *subject) : HuntResult();
}

HuntResult run_mixed_rounds(const HuntOptions& options, const HydrantCacheOptions& cache,
                            std::string* error) {
  constexpr void (*kKinds[])(Round&) = {as_said, few_places, other_mode, full_budget};
  HuntResult sum;
  for (size_t i = 0; error->empty() && sum.failure.empty(); ++i) {
    Round round{options, cache};
    if (options.seconds > 0) {
      round.hunt.seconds = std::min(options.seconds - sum.seconds, kRoundSeconds);
      if (round.hunt.seconds <= 0) break;
    }
    if (options.operations != 0) {
      if (sum.counts.operations >= options.operations) break;
      round.hunt.operations =
          std::min(options.operations - sum.counts.operations, kRoundOperations);
    }
    round.hunt.seed = options.seed + i;
    kKinds[i % std::size(kKinds)](round);
    round.cache.busy_mutex |= i / std::size(kKinds) % 2 != 0;
    if (options.progress) {
      round.hunt.progress = [&](const HuntCounts& counts) {
        HuntCounts all = sum.counts;
        all.add(counts);
        options.progress(all);
      };
    }
    add(run_one_round(round.hunt, round.cache, error), &sum);
  }
  return sum;
}

}  // namespace hydrant::stale
