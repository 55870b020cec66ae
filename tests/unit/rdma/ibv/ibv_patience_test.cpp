// How long a silent peer is waited for, and which idle peers are probed.
#include "rdma/config/job_knobs.hpp"
#include "rdma/ibv/connection/ibv_queue_pair.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"
#include "tests/unit/rdma/ibv/ibv_meeting.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

namespace hydrant {
namespace {

using testing::IbvRank;
using testing::IbvWorld;
using testing::Meeting;

class IbvPatience : public testing::VerbsTest {
 protected:
  // Whether rank 0 still has rank 1 after the network stood still for so long, with a message under way.
  static bool outlasts(IbvWorld& world, uint64_t ms) {
    fake_verbs::hold(true);
    EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kOk);
    fake_verbs::elapse(ms);
    fake_verbs::hold(false);
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(world.until(
        [&] { return world[1].inbox.count != 0 || world[0].transport->counts().lost != 0; }));
    (void)::testing::internal::GetCapturedStderr();
    world[1].inbox = testing::Inbox();
    return world[0].transport->counts().lost == 0;
  }
};

TEST_F(IbvPatience, OutageOfThreeSecondsIsOutlastedByDefault) {
  IbvWorld world(2);
  world.connect(0, 1);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(outlasts(world, 3000));
  EXPECT_FALSE(outlasts(world, 30'000));
}

TEST_F(IbvPatience, IsThatOfTheKnob) {
  const ScopedEnv knob("HYDRANT_IBV_PATIENCE", "1");
  IbvWorld world(2);
  world.connect(0, 1);
  EXPECT_TRUE(outlasts(world, 600));
  EXPECT_FALSE(outlasts(world, 1400));
}

uint64_t waited_ns(uint64_t patience_ns, uint32_t retries) {
  return (retries + uint64_t{1}) * (uint64_t{4096} << ibv::timeout_for(patience_ns, retries));
}

TEST_F(IbvPatience, TimeoutIsTheNearest) {
  EXPECT_EQ(ibv::timeout_for(8'000'000'000, 7), 18);
  EXPECT_EQ(ibv::timeout_for(8'000'000'000, 6), 18);
  EXPECT_EQ(ibv::timeout_for(1, 7), 1);
  EXPECT_EQ(ibv::timeout_for(UINT64_MAX / 2, 7), 31);
  for (const uint32_t retries : {6U, 7U}) {
    for (uint64_t patience_ns = 10'000'000; patience_ns < 3'600'000'000'000; patience_ns *= 3) {
      EXPECT_GE(3 * waited_ns(patience_ns, retries), 2 * patience_ns) << patience_ns;
      EXPECT_LE(3 * waited_ns(patience_ns, retries), 4 * patience_ns) << patience_ns;
    }
  }
}

// A probe and the patience behind it are all that reports a death where no launcher does.
TEST_F(IbvPatience, DeathIsKnownWithinTwentySecondsByDefault) {
  const IbvTransport::Options options = ibv::chosen_options();
  for (const uint32_t retries : {6U, 7U}) {
    EXPECT_LE(options.probe_ns + waited_ns(knob_number(JobKnob::kIbvPatience), retries),
              20'000'000'000U);
  }
}

// ---- probes ----

IbvTransport::Options probing() {
  IbvTransport::Options options = IbvWorld::single();
  options.probe_ns = 1'000'000;
  return options;
}

// Lets a rank that has nothing to do make this number of checks.
void check(IbvRank& rank, uint32_t checks) {
  for (uint32_t i = 0; i < checks; ++i) {
    usleep(static_cast<useconds_t>(probing().probe_ns / 1000 + 100));
    (void)rank.transport->notices().arm_events();
    for (int polls = 0; polls < 10; ++polls) rank.poll();
  }
}

TEST_F(IbvPatience, RanksWhoseDeathTheLauncherReportsAreNotProbed) {
  IbvWorld world(0);
  world.box.event_fd = STDIN_FILENO;
  for (Rank rank = 0; rank < 2; ++rank)
    world.ranks.push_back(std::make_unique<IbvRank>(world.box, rank, 2, probing()));
  world.connect(0, 1);
  check(world[0], 5);  // a probe may cover messages without a completion of their own
  const uint64_t probes = world[0].transport->counts().probes;
  check(world[0], 20);
  EXPECT_EQ(world[0].transport->counts().probes, probes);
}

TEST_F(IbvPatience, JoinedProcessesAreProbed) {
  Meeting meeting(1, 1, probing());
  meeting.a.box.event_fd = STDIN_FILENO;
  meeting.a.ranks[0] =
      std::make_unique<IbvRank>(meeting.a.box, 0, 1, testing::joining(1, probing()));
  meeting.join_all();
  ASSERT_EQ(meeting.send(meeting.a[0], 1, Lane::kRequest, "a"), Status::kOk) << last_error_text();
  check(meeting.a[0], 20);
  EXPECT_GE(meeting.a[0].transport->counts().probes, 5U);
}

}  // namespace
}  // namespace hydrant
