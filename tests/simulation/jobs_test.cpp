// Whole jobs by seed: each has to end as its faults allow, and to repeat exactly.
//
// HYDRANT_TEST_JOB=JOB runs one job and prints its events; HYDRANT_TEST_JOBS=N runs N seeds.
#include "firehose/base/planted_defect.hpp"
#include "firehose/watch/mutant.hpp"
#include "tests/simulation/shrinking.hpp"
#include "tests/simulation/simulated_job.hpp"
#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

namespace hydrant {
namespace {

using simulation::JobPlan;
using simulation::Outcome;
using simulation::run_job;

constexpr uint64_t kJobs = 2000;
// Each tenth job runs twice; all do if the number of jobs is set.
constexpr uint64_t kRepeated = 10;
constexpr uint32_t kShrinkingRuns = 300;

std::string replay_of(const JobPlan& plan) {
  return "HYDRANT_TEST_JOB=" + plan.text() +
         " " HYDRANT_BINARY_DIR "/tests/simulation/simulation_jobs";
}

// The sum of many jobs.
class Tally {
 public:
  void add(const Outcome& outcome) {
    ++jobs_;
    steps_ += outcome.steps;
    virtual_ns_ += outcome.virtual_ns;
    for (const auto& [what, times] : outcome.counts) counts_[what] += times;
  }
  void print(uint64_t real_ns) const {
    const double simulated = static_cast<double>(virtual_ns_) / 1e9;
    const double real = static_cast<double>(real_ns) / 1e9;
    std::printf("%" PRIu64 " jobs, %" PRIu64
                " steps: %.1f s of simulated time in %.1f s, %.1f times as fast\n",
                jobs_, steps_, simulated, real, simulated / real);
    for (const auto& [what, times] : counts_)
      std::printf("  %-24.*s %" PRIu64 "\n", static_cast<int>(what.size()), what.data(), times);
  }
  uint64_t of(std::string_view what) const {
    const auto found = counts_.find(what);
    return found != counts_.end() ? found->second : 0;
  }

 private:
  uint64_t jobs_ = 0, steps_ = 0, virtual_ns_ = 0;
  std::map<std::string_view, uint64_t> counts_;
};

void report(const JobPlan& plan, const Outcome& outcome) {
  const JobPlan smaller = simulation::shrink(plan, kShrinkingRuns);
  ADD_FAILURE() << outcome.failure << "\n  " << replay_of(plan) << "\nsmaller, with "
                << smaller.taking_part() << " ranks and " << smaller.count()
                << " actions: " << run_job(smaller).failure << "\n  " << replay_of(smaller);
}

// The jobs of as many seeds.
Tally run_jobs(uint64_t first, uint64_t jobs, uint64_t repeated) {
  const uint64_t start_ns = now_ns();
  Tally tally;
  ::testing::internal::CaptureStderr();
  for (uint64_t i = 0; i < jobs && !::testing::Test::HasFailure(); ++i) {
    const JobPlan plan = simulation::plan_job(first + i);
    const Outcome outcome = run_job(plan);
    tally.add(outcome);
    if (!outcome.failure.empty()) {
      report(plan, outcome);
    } else if (i % repeated == 0) {
      EXPECT_EQ(run_job(plan).hash, outcome.hash) << "a second run differs: " << replay_of(plan);
    }
  }
  (void)::testing::internal::GetCapturedStderr();
  tally.print(now_ns() - start_ns);
  return tally;
}

TEST(SimulatedJobs, EachEndsAsItsFaultsAllow) {
  if (const char* const text = std::getenv("HYDRANT_TEST_JOB")) {
    EXPECT_EQ(run_job(simulation::read_plan(text), true).failure, "");
    return;
  }
  const char* const chosen = std::getenv("HYDRANT_TEST_JOBS");
  const uint64_t jobs = chosen != nullptr ? std::strtoull(chosen, nullptr, 0) : kJobs;
  const Tally tally = run_jobs(testing::test_seed(), jobs, chosen != nullptr ? 1 : kRepeated);
  if (jobs < kJobs || HasFailure()) return;
  for (const char* const what :
       {"messages", "put", "get", "atomic", "striped operations", "control messages", "probes",
        "stalled cells", "failed operations", "lost peers", "barriers by words",
        "barriers by messages", "reductions by lines", "reductions by messages", "ended waits"})
    EXPECT_GE(tally.of(what), 10U) << what;
  for (const char* const what :
       {"remote pins", "remote hits", "declined pins", "evicted pins", "recalls"})
    EXPECT_GE(tally.of(what), 10U) << what;
  for (auto kind = simulation::Kind::kLoseDatagrams; kind != simulation::Kind::kEnd;
       kind = static_cast<simulation::Kind>(static_cast<uint32_t>(kind) + 1))
    EXPECT_GE(tally.of(simulation::name_of(kind)), 10U) << simulation::name_of(kind);
}

// Under a sanitizer the jobs of the gate show what it can find in their one thread.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kParts = 8, kJobsOfPart = 12'500;  // ./test --full

class ManyJobs : public ::testing::TestWithParam<uint64_t> {};

TEST_P(ManyJobs, EndAsTheirFaultsAllow) {
  (void)run_jobs(testing::test_seed() + kJobs + GetParam() * kJobsOfPart, kJobsOfPart, kRepeated);
}

INSTANTIATE_TEST_SUITE_P(All, ManyJobs, ::testing::Range(uint64_t{0}, kParts));
#endif

#if HYDRANT_MUTANTS
// Each planted defect fails a job: docs/testing.md has the seeds that it took.
class PlantedDefects : public ::testing::TestWithParam<int> {
 protected:
  static constexpr uint64_t kMostSeeds = 10'000;
  static void expect_found() {
    ::testing::internal::CaptureStderr();
    std::string failure;
    uint64_t seed = 0;
    while (failure.empty() && seed < kMostSeeds)
      failure = run_job(simulation::plan_job(++seed)).failure;
    (void)::testing::internal::GetCapturedStderr();
    EXPECT_FALSE(failure.empty()) << "no job shows it";
    std::printf("seed %" PRIu64 ": %s\n", seed, failure.c_str());
  }
  void TearDown() override {
    g_defect = Defect::kNone;
    set_mutant(Mutant::kNone, 0);
  }
};

TEST_P(PlantedDefects, IsFound) {
  g_defect = static_cast<Defect>(GetParam());
  expect_found();
}

INSTANTIATE_TEST_SUITE_P(All, PlantedDefects,
                         ::testing::Range(1, static_cast<int>(Defect::kCount)));

using PlantedDefectsOfRemotePins = PlantedDefects;

TEST_P(PlantedDefectsOfRemotePins, IsFound) {
  set_mutant(static_cast<Mutant>(GetParam()), 0);
  expect_found();
}

INSTANTIATE_TEST_SUITE_P(All, PlantedDefectsOfRemotePins,
                         ::testing::Values(static_cast<int>(Mutant::kDropRecall),
                                           static_cast<int>(Mutant::kEarlyAcknowledgement),
                                           static_cast<int>(Mutant::kNoQuarantine)));
#endif

}  // namespace
}  // namespace hydrant
