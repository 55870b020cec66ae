// The transport activates the fork protection of libibverbs where the kernel needs it.
#include "firehose/base/log.hpp"
#include "rdma/ibv/network_agreement.hpp"
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/support/fake_bootstrap.hpp"
#include "tests/unit/firehose/base/scoped_env.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <memory>
#include <string>

namespace hydrant {
namespace {

using fake_verbs::Call;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class IbvForkSafety : public testing::VerbsTest {
 protected:
  struct Opened {
    bool unpins_before_release = false;  // the registrar of puts and gets
    std::string log;
  };
  static Opened open_transport() {
    testing::FakeBootstrap bootstrap;
    bootstrap.stands.size = 2;
    std::unique_ptr<IbvTransport> transport;
    set_log_level(LogLevel::kInfo);
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(IbvTransport::open(bootstrap, testing::IbvWorld::single(), &transport), Status::kOk)
        << last_error_text();
    Opened opened{.log = ::testing::internal::GetCapturedStderr()};
    reset_log_level();
    opened.unpins_before_release =
        transport->pinned()->make_registrar()->traits().unpin_before_release;
    return opened;
  }
};

// The stand-in refuses it after the first registration, and a transport registers memory at its start.
TEST_F(IbvForkSafety, ProtectionThatTheKernelNeedsIsActivatedFirst) {
  fake_verbs::set_fork_status(IBV_FORK_DISABLED);
  const Opened opened = open_transport();
  EXPECT_EQ(fake_verbs::calls(Call::kForkInit), 1u);
  EXPECT_TRUE(opened.unpins_before_release);
  EXPECT_THAT(opened.log, AllOf(HasSubstr("costs the cache of ordinary memory"),
                                HasSubstr("HYDRANT_IBV_FORK_SAFE")));
}

// The search for networks tries each device with a queue pair, before the transport is opened.
TEST_F(IbvForkSafety, ProtectionPrecedesTheSearchForNetworks) {
  fake_verbs::set_fork_status(IBV_FORK_DISABLED);
  testing::FakeBootstrap bootstrap;
  ASSERT_EQ(ibv::publish_networks(bootstrap), Status::kOk) << last_error_text();
  const Opened opened = open_transport();
  EXPECT_EQ(fake_verbs::calls(Call::kForkInit), 1u);
  EXPECT_TRUE(opened.unpins_before_release);
  EXPECT_THAT(opened.log, HasSubstr("costs the cache of ordinary memory"));
}

TEST_F(IbvForkSafety, KnobLeavesItOffInTheSearchForNetworks) {
  const ScopedEnv knob("HYDRANT_IBV_FORK_SAFE", "n");
  fake_verbs::set_fork_status(IBV_FORK_DISABLED);
  testing::FakeBootstrap bootstrap;
  ASSERT_EQ(ibv::publish_networks(bootstrap), Status::kOk) << last_error_text();
  EXPECT_EQ(fake_verbs::calls(Call::kForkInit), 0u);
}

TEST_F(IbvForkSafety, CostOfTheClientsOwnProtectionIsLogged) {
  fake_verbs::set_fork_status(IBV_FORK_ENABLED);
  const Opened opened = open_transport();
  EXPECT_EQ(fake_verbs::calls(Call::kForkInit), 0u);
  EXPECT_TRUE(opened.unpins_before_release);
  EXPECT_THAT(opened.log, HasSubstr("costs the cache of ordinary memory"));
}

TEST_F(IbvForkSafety, KernelThatCopiesPinnedPagesNeedsNothing) {
  const Opened opened = open_transport();
  EXPECT_EQ(fake_verbs::calls(Call::kForkInit), 0u);
  EXPECT_FALSE(opened.unpins_before_release);
  EXPECT_THAT(opened.log, Not(HasSubstr("fork")));
}

TEST_F(IbvForkSafety, KnobLeavesItOff) {
  const ScopedEnv knob("HYDRANT_IBV_FORK_SAFE", "n");
  fake_verbs::set_fork_status(IBV_FORK_DISABLED);
  const Opened opened = open_transport();
  EXPECT_EQ(fake_verbs::calls(Call::kForkInit), 0u);
  EXPECT_FALSE(opened.unpins_before_release);
}

TEST_F(IbvForkSafety, CallThatComesTooLateIsAWarning) {
  fake_verbs::set_fork_status(IBV_FORK_DISABLED);
  {
    testing::FakeBootstrap bootstrap;
    bootstrap.stands.size = 2;
    const ScopedEnv knob("HYDRANT_IBV_FORK_SAFE", "n");
    std::unique_ptr<IbvTransport> registers_memory;
    ASSERT_EQ(IbvTransport::open(bootstrap, testing::IbvWorld::single(), &registers_memory),
              Status::kOk);
  }
  const Opened opened = open_transport();
  EXPECT_FALSE(opened.unpins_before_release);
  EXPECT_THAT(opened.log,
              AllOf(HasSubstr("the adapter may not see what this process writes"),
                    HasSubstr("the program has registered memory before: call it earlier")));
}

TEST_F(IbvForkSafety, OtherFailuresAreWarningsWithTheirReason) {
  fake_verbs::set_fork_status(IBV_FORK_DISABLED);
  fake_verbs::fail_call(Call::kForkInit, ENOMEM);
  const Opened opened = open_transport();
  EXPECT_FALSE(opened.unpins_before_release);
  EXPECT_THAT(opened.log, AllOf(HasSubstr("ibv_fork_init() failed: Cannot allocate memory"),
                                Not(HasSubstr("registered memory before"))));
}

}  // namespace
}  // namespace hydrant
