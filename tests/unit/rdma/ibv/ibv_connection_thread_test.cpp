// The thread that answers handshakes, over the fake: ranks that never poll are connected to, and what their
// program would notice is left to its polls.
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sched.h>
#include <string>

namespace hydrant {
namespace {

using fake_verbs::Call;
using ::testing::HasSubstr;
using testing::IbvWorld;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

class IbvConnectionThread : public testing::VerbsTest {
 protected:
  // Each rank has the thread, as a program of one thread does.
  static IbvTransport::Options with_thread() {
    IbvTransport::Options options = IbvWorld::single();
    options.handshakes.has_thread = true;
    return options;
  }
  // Polls one rank until the attempt is decided; the others compute.
  static Status insist(testing::IbvRank& polling, const std::function<Status()>& attempt) {
    const uint64_t deadline = testing::in_seconds(10);
    Status status = Status::kNotReady;
    while ((status = attempt()) == Status::kNotReady && now_ns() < deadline) polling.poll();
    return status;
  }
};

TEST_F(IbvConnectionThread, RankThatNeverPollsIsConnectedTo) {
  IbvWorld world(2, with_thread());
  EXPECT_EQ(insist(world[0], [&] { return world[0].try_send(1, Lane::kRequest, 1, "abcd"); }),
            Status::kOk)
      << last_error_text();
  // The message waits for a poll: the thread runs no handlers.
  for (int i = 0; i < 100; ++i) world[0].poll();
  EXPECT_EQ(world[1].inbox.count, 0U);
  ASSERT_TRUE(world.arrived(1, 1));
  EXPECT_EQ(world[1].inbox.letters[0].head, "abcd");
}

TEST_F(IbvConnectionThread, ManyRanksThatNeverPollAreConnectedTo) {
  constexpr Rank kRanks = 8;
  IbvWorld world(kRanks, with_thread());
  for (Rank to = 1; to < kRanks; ++to) {
    EXPECT_EQ(insist(world[0], [&] { return world[0].try_send(to, Lane::kRequest, to, "abcd"); }),
              Status::kOk)
        << to;
  }
  for (Rank to = 1; to < kRanks; ++to) ASSERT_TRUE(world.arrived(to, 1));
}

TEST_F(IbvConnectionThread, RankThatComputesRepeatsItsHandshakes) {
  IbvWorld world(2, with_thread());
  fake_verbs::lose_datagrams(3);
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  EXPECT_EQ(insist(world[1],
                   [&] {
                     return world[1].transport->counts().connected == 1 ? Status::kOk
                                                                        : Status::kNotReady;
                   }),
            Status::kOk);
  EXPECT_EQ(world[1].try_send(0, Lane::kRequest, 1, "abcd"), Status::kOk);
}

bool are_threads_asleep() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "stat");
    std::string stat;
    std::getline(file, stat);
    if (stat.find("(hydrant connect)") != std::string::npos &&
        stat.find("(hydrant connect) S") == std::string::npos)
      return false;
  }
  return true;
}

// No completion wakes the thread, because no handshake has left.
TEST_F(IbvConnectionThread, RankThatComputesSendsTheHandshakeThatCouldNotLeave) {
  IbvWorld world(2, with_thread());
  const auto have_looked = [] {
    return fake_verbs::calls(Call::kNotifyCq) >= 2 ? Status::kOk : Status::kNotReady;
  };
  ASSERT_EQ(insist(world[1], have_looked), Status::kOk);
  const uint64_t deadline = testing::in_seconds(10);
  while (!are_threads_asleep() && now_ns() < deadline) sched_yield();
  CaptureStderr();
  fake_verbs::fail_always(Call::kCreateAh, ENOMEM);
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  fake_verbs::fail_always(Call::kCreateAh, 0);
  EXPECT_EQ(insist(world[1],
                   [&] {
                     return world[1].transport->counts().connected == 1 ? Status::kOk
                                                                        : Status::kNotReady;
                   }),
            Status::kOk);
  (void)GetCapturedStderr();
}

TEST_F(IbvConnectionThread, HandshakesThatCrossMakeOneConnection) {
  IbvWorld world(2, with_thread());
  fake_verbs::hold(true);
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  ASSERT_EQ(world[1].try_send(0, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  fake_verbs::hold(false);
  world.connect(0, 1);
  EXPECT_EQ(fake_verbs::connected_pairs().size(), 2U);
}

std::atomic<uint32_t> failed_peers{0};

TEST_F(IbvConnectionThread, ConnectionThatFailsIsReportedByAPollAlone) {
  IbvWorld world(2, with_thread());
  failed_peers = 0;
  world[1].transport->set_peer_failed_callback(
      [](Rank, const char*) noexcept { failed_peers.fetch_add(1); });
  CaptureStderr();
  fake_verbs::hold(true);
  ASSERT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  // Rank 1 initialises its queue pair, and cannot connect it.
  fake_verbs::fail_call(Call::kModifyQp, EINVAL, 2);
  fake_verbs::hold(false);
  EXPECT_EQ(insist(world[0], [&] { return world[0].try_send(1, Lane::kRequest, 1, "abcd"); }),
            Status::kBroken);
  (void)GetCapturedStderr();
  EXPECT_EQ(failed_peers.load(), 0U);
  EXPECT_EQ(world[1].transport->counts().lost, 0U);
  world[1].poll();
  EXPECT_EQ(failed_peers.load(), 1U);
  EXPECT_EQ(world[1].transport->counts().lost, 1U);
}

TEST_F(IbvConnectionThread, ThreadEndsWithATransportThatWasNeverUsed) {
  for (int i = 0; i < 20; ++i) IbvWorld world(3, with_thread());
}

TEST_F(IbvConnectionThread, ThreadHasAChannelOfItsOwn) {
  { IbvWorld world(1, with_thread()); }
  const uint64_t with = fake_verbs::calls(Call::kCreateChannel);
  { IbvWorld world(1); }
  EXPECT_EQ(fake_verbs::calls(Call::kCreateChannel) - with, 1U);
  EXPECT_EQ(with, 2U);
  fake_verbs::fail_call(Call::kCreateChannel, ENOMEM, 2);
  testing::CardBox box;
  const testing::IbvRank rank(box, 0, 2, with_thread());
  EXPECT_EQ(rank.opened, Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("completion channel"));
}

}  // namespace
}  // namespace hydrant
