#include "firehose/gasnet_compat/firehose_limits.hpp"

#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace hydrant {
namespace {

using testing::kMiB;

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kGiB = 1024 * kMiB;

CompatRequest region_ask() {
  return {.local_only = true, .max_bytes = kGiB, .max_regions = 1000, .max_region_bytes = 2 * kMiB};
}

CompatSetting set(uint64_t number) { return {number, true}; }

CompatLimits compute(const CompatRequest& ask, const CompatEnvironment& environment = {}) {
  CompatLimits limits;
  EXPECT_EQ(compute_compat_limits(ask, environment, &limits), Status::kOk) << last_error_text();
  return limits;
}

void expect_refused(const CompatRequest& ask, const CompatEnvironment& environment,
                    const char* text) {
  CompatLimits limits;
  EXPECT_EQ(compute_compat_limits(ask, environment, &limits), Status::kBadArg);
  EXPECT_NE(std::strstr(last_error_text(), text), nullptr) << last_error_text();
}

TEST(CompatLimits, LocalOnlyGivesEverythingButThePrepinnedToVictims) {
  CompatRequest ask = region_ask();
  ask.prepinned_bytes = 24 * kMiB;
  ask.prepinned_regions = 2;
  const CompatLimits limits = compute(ask);
  EXPECT_EQ(limits.m_bytes, 24 * kMiB);
  EXPECT_EQ(limits.victim_bytes, 1000 * kMiB);
  EXPECT_EQ(limits.victim_regions, 998u);
  EXPECT_EQ(limits.region_bytes, 2 * kMiB);
}

TEST(CompatLimits, PromisedRegionsMayAllBeOfTheLargestSize) {
  const CompatLimits limits = compute(region_ask());
  EXPECT_EQ(limits.victim_regions, 1000u);
  EXPECT_EQ(limits.local_regions, kGiB / (2 * kMiB));
}

TEST(CompatLimits, WithPeersVictimsGetTheirShareOfBytesAndRegions) {
  CompatRequest ask = region_ask();
  ask.local_only = false;
  const CompatLimits limits = compute(ask);
  EXPECT_EQ(limits.m_bytes, 768 * kMiB);
  EXPECT_EQ(limits.victim_bytes, 256 * kMiB);
  EXPECT_EQ(limits.victim_regions, 128u);
}

TEST(CompatLimits, TooFewRegionsAreDealtOutInProportion) {
  CompatRequest ask = region_ask();
  ask.local_only = false;
  ask.max_region_bytes = 128 * kKiB;  // 8192 regions would address the gibibyte
  const CompatLimits limits = compute(ask);
  EXPECT_EQ(limits.region_bytes, 128 * kKiB);
  EXPECT_EQ(limits.victim_regions, 250u);
}

TEST(CompatLimits, ExplicitZeroRegionSizeGrowsRegionsInstead) {
  CompatRequest ask = region_ask();
  ask.local_only = false;
  ask.max_region_bytes = 128 * kKiB;
  const CompatLimits limits = compute(ask, {.max_region_size = set(0)});
  EXPECT_GT(limits.region_bytes, kMiB);
  EXPECT_GE(limits.victim_regions, 240u);
  EXPECT_LE(limits.victim_regions, 250u);
}

TEST(CompatLimits, OneOfAPairDerivesTheOther) {
  CompatRequest ask = region_ask();
  ask.local_only = false;
  EXPECT_EQ(compute(ask, {.m = set(1000 * kMiB)}).victim_bytes, 24 * kMiB);
  EXPECT_EQ(compute(ask, {.max_victim_m = set(1000 * kMiB)}).m_bytes, 24 * kMiB);
  EXPECT_EQ(compute(ask, {.r = set(900)}).victim_regions, 100u);
  EXPECT_EQ(compute(ask, {.max_victim_r = set(900)}).victim_regions, 900u);
}

TEST(CompatLimits, BothOfAPairMayExceedTheClientsMaximum) {
  const CompatLimits limits = compute(
      region_ask(),
      {.m = set(kGiB), .max_victim_m = set(2 * kGiB), .r = set(5), .max_victim_r = set(2000)});
  EXPECT_EQ(limits.victim_bytes, 2 * kGiB);
  EXPECT_EQ(limits.victim_regions, 2000u);
}

TEST(CompatLimits, RegionSizeOfTheEnvironmentIsBoundedByTheClients) {
  EXPECT_EQ(compute(region_ask(), {.max_region_size = set(100 * kKiB + 5)}).region_bytes,
            100 * kKiB);
  EXPECT_EQ(compute(region_ask(), {.max_region_size = set(kGiB)}).region_bytes, 2 * kMiB);
}

TEST(CompatLimits, ZeroLiftsLimits) {
  const CompatLimits limits = compute({.local_only = true});
  EXPECT_EQ(limits.victim_bytes, 0u);
  EXPECT_EQ(limits.victim_regions, 0u);
  EXPECT_EQ(limits.region_bytes, 0u);
  EXPECT_EQ(limits.local_regions, 0u);
}

TEST(CompatLimits, PageModeHasNoRegions) {
  const CompatLimits limits = compute(
      {.page_mode = true, .local_only = true, .max_bytes = kMiB + 5000, .bucket_bytes = 8192});
  EXPECT_EQ(limits.victim_bytes, kMiB);
  EXPECT_EQ(limits.victim_regions, 0u);
  EXPECT_EQ(limits.region_bytes, 0u);
  expect_refused({.page_mode = true, .max_bytes = kMiB, .max_regions = 4}, {}, "not 4 and 0");
  expect_refused({.page_mode = true, .max_bytes = kMiB, .max_region_bytes = 4}, {}, "not 0 and 4");
}

TEST(CompatLimits, RejectsSettingsThatLeaveNoBudget) {
  CompatRequest ask = region_ask();
  expect_refused(ask, {.max_victim_m = set(2 * kGiB)}, "GASNET_FIREHOSE_MAXVICTIM_M");
  expect_refused(ask, {.m = set(2 * kGiB)}, "GASNET_FIREHOSE_M");
  expect_refused(ask, {.m = set(2 * kGiB)}, "is 2147483648 bytes, more than the 1073741824");
  expect_refused(ask, {.m = set(2 * kGiB)}, "max_pinnable_memory of firehose_init");
  expect_refused(ask, {.max_victim_r = set(1001)}, "is 1001 regions, more than the 1000");
  expect_refused(ask, {.m = set(kGiB)}, "less than a bucket");
  expect_refused(ask, {.r = set(1000)}, "too few");
  expect_refused(ask, {.max_victim_r = set(1001)}, "GASNET_FIREHOSE_MAXVICTIM_R");
  expect_refused(ask, {.max_region_size = set(100)}, "smaller than a bucket");
  ask.prepinned_bytes = 2 * kGiB;
  expect_refused(ask, {}, "prepinned");
  ask.prepinned_bytes = kMiB;
  ask.prepinned_regions = 1000;
  expect_refused(ask, {}, "1000 regions are prepinned");
}

TEST(CompatLimits, SplitFollowsRatioOrEnvironment) {
  uint64_t m = 0;
  uint64_t victims = 0;
  EXPECT_EQ(split_compat_memory(kGiB, 0.125, {}, true, &m, &victims), Status::kOk);
  EXPECT_EQ(m, 896 * kMiB);
  EXPECT_EQ(victims, 128 * kMiB);
  EXPECT_EQ(split_compat_memory(kGiB, 0.125, {.m = set(kMiB)}, true, &m, &victims), Status::kOk);
  EXPECT_EQ(m, kMiB);
  EXPECT_EQ(victims, kGiB - kMiB);
  EXPECT_EQ(split_compat_memory(kMiB, 0.125, {.m = set(kGiB)}, true, &m, &victims),
            Status::kBadArg);
}

CompatRequest ask_with_peers() {
  CompatRequest ask = region_ask();
  ask.local_only = false;
  ask.sends = true;
  return ask;
}

CompatPeerLimits split(const CompatRequest& ask, uint32_t peers, uint64_t domain_bytes = 0) {
  CompatPeerLimits of_one;
  EXPECT_EQ(split_for_peers(ask, compute(ask), domain_bytes, peers, &of_one), Status::kOk)
      << last_error_text();
  return of_one;
}

TEST(CompatLimits, PeersShareMAndREvenly) {
  const CompatPeerLimits of_one = split(ask_with_peers(), 3);
  EXPECT_EQ(of_one.budget_bytes, 768 * kMiB);
  EXPECT_EQ(of_one.pin_bytes, 2 * kMiB);
  EXPECT_EQ(of_one.regions, 128u);  // 256 MiB of each
  EXPECT_EQ(of_one.max_firehoses, 384u / 3);
}

TEST(CompatLimits, NoRemoteBudgetWithoutASender) {
  CompatRequest ask = ask_with_peers();
  EXPECT_EQ(compute(ask).remote_bytes, 768 * kMiB);
  EXPECT_EQ(compute(ask).remote_regions, 384u);
  ask.sends = false;
  EXPECT_EQ(compute(ask).remote_bytes, 0u);
  EXPECT_EQ(compute(ask).remote_regions, 0u);
  ask.sends = ask.local_only = true;
  EXPECT_EQ(compute(ask).remote_bytes, 0u);
}

TEST(CompatLimits, PrepinnedMemoryIsNoPartOfAQuota) {
  CompatRequest ask = ask_with_peers();
  ask.prepinned_bytes = 168 * kMiB;
  EXPECT_EQ(split(ask, 1).budget_bytes, 600 * kMiB);
}

// The text names M as it was set, without prepinned memory subtracted.
TEST(CompatLimits, PrepinnedMemoryThatExceedsMIsNamed) {
  CompatRequest ask = ask_with_peers();
  ask.prepinned_bytes = 900 * kMiB;
  CompatPeerLimits of_one;
  EXPECT_EQ(split_for_peers(ask, compute(ask), 0, 1, &of_one), Status::kBadArg);
  for (const char* word : {"M is 805306368 bytes", "943718400 bytes are prepinned", "prepin less",
                           "GASNET_FIREHOSE_M", "LOCAL_ONLY"}) {
    EXPECT_NE(std::strstr(last_error_text(), word), nullptr) << word << ": " << last_error_text();
  }
}

// A job of many ranks prints the warning once.
TEST(CompatLimits, OtherRanksDoNotWarn) {
  CompatRequest ask = ask_with_peers();
  const CompatEnvironment unwise = {.m = set(kGiB),
                                    .max_victim_m = set(kGiB),
                                    .max_region_size = set(ask.max_region_bytes + kMiB)};
  for (const bool warns : {true, false}) {
    ask.warns = warns;
    ::testing::internal::CaptureStderr();
    (void)compute(ask, unwise);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("GASNET_FIREHOSE_MAXVICTIM_M") != std::string::npos, warns) << said;
    EXPECT_EQ(said.find("GASNET_FIREHOSE_MAXREGION_SIZE") != std::string::npos, warns) << said;
  }
}

TEST(CompatLimits, FirehosesOfAllPeersFitIntoM) {
  CompatRequest ask = ask_with_peers();
  ask.max_regions = 0;
  EXPECT_EQ(split(ask, 3).max_firehoses, 128u);  // regions of 2 MiB in 256 MiB
  ask.max_regions = 120;                         // 90 of them for peers
  EXPECT_EQ(split(ask, 3).max_firehoses, 30u);
  EXPECT_EQ(split(ask, 3).regions, 30u);
}

TEST(CompatLimits, PagesArePromisedByBytes) {
  const CompatRequest ask = {
      .page_mode = true, .max_bytes = kMiB, .bucket_bytes = 8192, .sends = true};
  const CompatPeerLimits of_one = split(ask, 5);
  EXPECT_EQ(of_one.pin_bytes, 155648u);  // 768 KiB / 5 in whole buckets
  EXPECT_EQ(of_one.regions, 0u);
  EXPECT_EQ(of_one.max_firehoses, 19u);
}

TEST(CompatLimits, PeersOfAClientWithoutLimitsShareThatOfTheCache) {
  const CompatPeerLimits of_one = split({.sends = true}, 2, 4 * kGiB);
  EXPECT_EQ(of_one.budget_bytes, 3 * kGiB);
  EXPECT_EQ(of_one.pin_bytes, 3 * kGiB / 2);
}

TEST(CompatLimits, RejectsTooLittleForThePeers) {
  CompatPeerLimits of_one;
  const CompatRequest ask = ask_with_peers();
  EXPECT_EQ(split_for_peers(ask, compute(ask), 0, 1'000'000, &of_one), Status::kBadArg);
  EXPECT_NE(std::strstr(last_error_text(), "less than a bucket"), nullptr) << last_error_text();
  EXPECT_EQ(split_for_peers(ask, compute(ask), 0, 1000, &of_one), Status::kBadArg);
  EXPECT_NE(std::strstr(last_error_text(), "less than one for each"), nullptr) << last_error_text();
}

}  // namespace
}  // namespace hydrant
