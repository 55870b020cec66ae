// Hunts for stale data behind remote pins; mutants show that the hunts find it.
#include "tests/stale/remote/remote_hunt.hpp"

#include "firehose/watch/mutant.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace hydrant::stale {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kSlower = 20;
#elif defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kSlower = 8;
#else
constexpr uint64_t kSlower = 1;
#endif

uint64_t operations(uint64_t plain) {
  const bool is_long = std::getenv("HYDRANT_TEST_LONG") != nullptr;
  return plain * (is_long ? 10 : 1) / kSlower;
}

RemoteHuntResult hunt(const char* name, const RemoteHuntOptions& options) {
  RemoteStaleHunt of(options);
  const RemoteHuntResult result = of.run();
  std::printf(
      "%s: %zu operations, %zu hits, %zu moves, %zu recalls, %zu messages out of order; %zu "
      "replacements, %zu of them of exported pages; %zu values checked%s%s\n",
      name, size_t{result.operations}, size_t{result.hits}, size_t{result.moves},
      size_t{result.recalls}, size_t{result.reorderings}, size_t{result.replacements},
      size_t{result.opportunities}, size_t{result.checked}, result.violation.empty() ? "" : "; ",
      result.violation.c_str());
  return result;
}

void expect_clean(const RemoteHuntResult& result, uint64_t min_operations) {
  EXPECT_EQ(result.violation, "");
  EXPECT_GE(result.operations, min_operations);
  EXPECT_GT(result.opportunities, 0u);
  EXPECT_GT(result.checked, result.operations / 4);
  EXPECT_GT(result.recalls, 0u);
  EXPECT_GT(result.hits, 0u);
}

TEST(RemoteStaleHunt, AMillionWritesReachNoReplacedPage) {
  RemoteHuntOptions options;
  options.operations = operations(1'000'000);
  expect_clean(hunt("objects", options), options.operations);
}

TEST(RemoteStaleHunt, WithRoomForFewAndAFixedDivision) {
  RemoteHuntOptions options;
  options.operations = operations(150'000);
  options.budget_pages = 16;
  options.base_percent = 100;
  options.max_peer_regions = 4;
  options.seed = 2;
  expect_clean(hunt("few", options), options.operations);
}

TEST(RemoteStaleHunt, PagesThatAreReallyPinned) {
  RemoteHuntOptions options;
  options.operations = operations(60'000);
  options.real_pins = true;
  options.seed = 3;
  const RemoteHuntResult result = hunt("pinned pages", options);
  if (!result.skipped.empty()) GTEST_SKIP() << result.skipped;
  expect_clean(result, options.operations);
}

// Without calls of hydrant_invalidate(): the kernel reports releases.
TEST(RemoteStaleHunt, PagesThatTheKernelWatches) {
  RemoteHuntOptions options;
  options.operations = operations(40'000);
  options.real_pins = true;
  options.watch = HYDRANT_WATCH_AUTO;
  options.seed = 4;
  const RemoteHuntResult result = hunt("watched pages", options);
  if (!result.skipped.empty()) GTEST_SKIP() << result.skipped;
  expect_clean(result, options.operations);
}

#if HYDRANT_MUTANTS
class RemoteStaleHuntMutants : public ::testing::Test {
 protected:
  ~RemoteStaleHuntMutants() override { set_mutant(Mutant::kNone, 0); }

  static std::string find(Mutant mutant) {
    set_mutant(mutant, 0);
    RemoteHuntOptions options;
    options.operations = operations(2'000'000);
    const RemoteHuntResult result = hunt(mutant_info(mutant).name, options);
    set_mutant(Mutant::kNone, 0);
    return result.violation;
  }
};

TEST_F(RemoteStaleHuntMutants, ADroppedRecallIsFound) { EXPECT_NE(find(Mutant::kDropRecall), ""); }
TEST_F(RemoteStaleHuntMutants, AnEarlyAcknowledgementIsFound) {
  EXPECT_NE(find(Mutant::kEarlyAcknowledgement), "");
}
TEST_F(RemoteStaleHuntMutants, AMissingQuarantineIsFound) {
  EXPECT_NE(find(Mutant::kNoQuarantine), "");
}
#endif

}  // namespace
}  // namespace hydrant::stale
