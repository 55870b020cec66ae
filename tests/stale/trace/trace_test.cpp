// Completeness: an invalidation follows every system call that releases memory which the cache keeps, from
// whichever library the call comes. A mutant shows that the judge detects violations.
#include "tests/stale/hunt/hunt.hpp"
#include "tests/stale/hunt/hydrant_cache.hpp"
#include "tests/stale/hunt/mutants.hpp"
#include "tests/stale/trace/call_watch.hpp"
#include "tests/stale/trace/recording_cache.hpp"
#include "tests/stale/trace/verdict.hpp"
#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

namespace hydrant::stale {
namespace {

constexpr size_t kMaxRecords = size_t{1} << 21;
constexpr uint64_t kOperations = 60'000;
constexpr int kNoCache = 80;
constexpr int kDirty = 81;

class StaleTrace : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers manage their own address space";
#endif
    log_ = TraceLog::make(kMaxRecords);
    ASSERT_NE(log_, nullptr);
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed_));
  }
  void TearDown() override {
    if (log_ != nullptr) TraceLog::unmake(log_);
  }

  // Runs in the child, whose calls are watched.
  int hunt(const std::string& mutant) {
    std::string error;
    const std::unique_ptr<Cache> cache = make_hydrant_cache({}, &error);
    if (cache == nullptr) return kNoCache;
    if (!mutant.empty()) set_mutant_by_name(mutant, 0);
    const std::unique_ptr<Cache> recorder = make_recording_cache(*cache, *log_);
    HuntOptions options;
    options.seed = seed_;
    options.operations = kOperations;
    if (!mutant.empty()) options.sources = {Source::kMmap, Source::kMadvise};
    options.stop_when_stale = !mutant.empty();
    return run_hunt(options, *recorder).clean() ? 0 : kDirty;
  }
  void watch(const std::string& mutant) {
    int status = 0;
    bool refused = false;
    const std::string problem = run_watched(
        *log_, [&] { return hunt(mutant); }, &status, &refused);
    if (refused) GTEST_SKIP() << problem;
    ASSERT_EQ(problem, "");
    if (status == kNoCache) GTEST_SKIP() << "no io_uring here";
    EXPECT_EQ(status == kDirty, !mutant.empty());
    EXPECT_EQ(log_->lost(), 0u);
    verdict_ = judge(*log_);
    std::printf(
        "%zu pins, %zu invalidations; %zu calls, %zu of them on kept memory: %zu explained, %zu "
        "not; %zu undecided\n",
        verdict_.pins, verdict_.invalidations, verdict_.calls, verdict_.calls_on_kept,
        verdict_.explained, verdict_.calls_on_kept - verdict_.explained, verdict_.undecided);
  }

  const uint64_t seed_ = testing::test_seed();
  TraceLog* log_ = nullptr;
  TraceVerdict verdict_;
};

TEST_F(StaleTrace, EveryCallOnKeptMemoryIsFollowedByAnInvalidation) {
  watch("");
  if (IsSkipped()) return;
  EXPECT_GT(verdict_.calls_on_kept, 1000u);
  EXPECT_EQ(verdict_.incomplete, 0u);
  for (const std::string& text : verdict_.unexplained) ADD_FAILURE() << text;
}

TEST_F(StaleTrace, AMissingInvalidationIsListed) {
  if (!has_mutants()) GTEST_SKIP() << "this build has no mutants (HYDRANT_MUTANTS)";
  watch("drop-unmap");
  if (IsSkipped()) return;
  EXPECT_FALSE(verdict_.unexplained.empty());
}

}  // namespace
}  // namespace hydrant::stale
