// Over the profiles of all adapters: those that carry the transport do, also to each other; the others are
// refused by what they lack. HYDRANT_TEST_ADAPTER runs all other tests over one of them.
#include "tests/fakes/adapter_profiles.hpp"
#include "tests/fakes/fake_ibverbs.hpp"
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

namespace hydrant {
namespace {

using fake_verbs::adapter_profiles;
using fake_verbs::AdapterProfile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IbvRank;
using testing::IbvWorld;
using testing::PinnedMemory;
using testing::Told;

class IbvAdapters : public testing::VerbsTest {
 protected:
  void SetUp() override { fake_verbs::reset(); }
  static bool is_fit(const AdapterProfile& profile) { return *profile.refusal == '\0'; }
  static void add_rank(IbvWorld& world, const char* device) {
    IbvTransport::Options options = IbvWorld::single();
    options.ports = device;
    world.ranks.push_back(
        std::make_unique<IbvRank>(world.box, static_cast<Rank>(world.ranks.size()), 2, options));
    ASSERT_EQ(world.ranks.back()->opened, Status::kOk) << last_error_text();
  }
  // The reason that hydrant-info shows why the adapter is not used; "": it can be used.
  static std::string reason_shown_for(const AdapterProfile& profile) {
    for (const ibv::PortReport& report : ibv::report_ports("", ibv::kMaxRails).all) {
      if (std::strcmp(report.port.name, profile.name) == 0) return report.reason;
    }
    return "not listed";
  }
  // Messages with and without cells, and more reads at once than any adapter takes.
  static void communicate(IbvWorld& world) {
    world.connect(0, 1);
    for (uint32_t i = 0; i < 100; ++i) {
      ASSERT_EQ(world.send(0, 1, Lane::kRequest, 1, std::string(i, 'x')), Status::kOk);
      ASSERT_EQ(world.send_cell(1, 0, Lane::kReply, 1, "reply", std::string(1000, 'y')),
                Status::kOk);
    }
    ASSERT_TRUE(world.arrived(1, 100));
    ASSERT_TRUE(world.arrived(0, 100));
    PinnedMemory here(*world[0].transport, Access::kLocalWrite, 4096);
    PinnedMemory there(*world[1].transport, testing::kTarget, 4096);
    Told told[200];
    for (Told& one : told) {
      ASSERT_EQ(world.insist([&] {
        return world[0].transport->pinned()->get(1, there.for_peer(), here.local(), 64, &one);
      }),
                Status::kOk);
    }
    for (const Told& one : told) {
      ASSERT_TRUE(world.until([&] { return one.times != 0; }));
      EXPECT_EQ(one.status, Status::kOk);
    }
    EXPECT_EQ(world[0].transport->counts().lost, 0U);
  }
};

TEST_F(IbvAdapters, FitAdaptersReachEachOther) {
  for (const AdapterProfile& one : adapter_profiles()) {
    for (const AdapterProfile& other : adapter_profiles()) {
      if (!is_fit(one) || !is_fit(other) || one.device.ethernet != other.device.ethernet) continue;
      SCOPED_TRACE(std::string(one.name) + " and " + other.name);
      fake_verbs::reset();
      fake_verbs::add_device(one.device);
      if (one.name != other.name) fake_verbs::add_device(other.device);
      IbvWorld world(0);
      ASSERT_NO_FATAL_FAILURE(add_rank(world, one.name));
      ASSERT_NO_FATAL_FAILURE(add_rank(world, other.name));
      ASSERT_NO_FATAL_FAILURE(communicate(world));
    }
  }
}

TEST_F(IbvAdapters, UnfitAdaptersAreRefusedByWhatTheyLackAndTheNextPortIsUsed) {
  for (const AdapterProfile& profile : adapter_profiles()) {
    if (is_fit(profile)) continue;
    SCOPED_TRACE(profile.name);
    fake_verbs::reset();
    fake_verbs::add_device(profile.device);
    testing::CardBox box;
    EXPECT_NE(IbvRank(box, 0, 2, IbvWorld::single()).opened, Status::kOk);
    EXPECT_THAT(last_error_text(), AllOf(HasSubstr(profile.name), HasSubstr(profile.refusal)));
    EXPECT_THAT(reason_shown_for(profile), HasSubstr(profile.refusal));
    fake_verbs::add_device({.name = "next0", .width = 1});  // no better by its rate
    ::testing::internal::CaptureStderr();
    const IbvRank rank(box, 0, 2, IbvWorld::single());
    (void)::testing::internal::GetCapturedStderr();
    ASSERT_EQ(rank.opened, Status::kOk) << last_error_text();
    EXPECT_STREQ(rank.transport->port().name, "next0");
    EXPECT_THAT(reason_shown_for(profile), HasSubstr(profile.refusal));
  }
}

}  // namespace
}  // namespace hydrant
