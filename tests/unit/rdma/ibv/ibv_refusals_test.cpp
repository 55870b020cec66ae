// A rank that cannot be connected says so, over the fake: what operations report, which refusals count, and
// what happens when the reason passes.
#include "tests/unit/rdma/ibv/ibv_world.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>

namespace hydrant {
namespace {

using ::testing::AllOf;
using testing::CardBox;
using ::testing::HasSubstr;
using testing::IbvRank;
using testing::IbvWorld;
using testing::kTarget;
using testing::PinnedMemory;
using testing::Told;

class IbvRefusals : public testing::VerbsTest {
 protected:
  static ibv::EndpointAddress endpoint_of(IbvWorld& world, Rank rank) {
    ibv::EndpointAddress endpoint;
    const std::string& bytes = world.box.endpoints.at("ibv" + std::to_string(rank));
    EXPECT_EQ(ibv::decode_endpoint(std::as_bytes(std::span(bytes)), &endpoint), Status::kOk);
    return endpoint;
  }
};

// Four ranks contact rank 0, whose receive queue has room for three.
TEST_F(IbvRefusals, FullTargetIsReportedToEveryOperation) {
  using Attempt = std::function<Status(IbvRank&, const PinnedOperations::Pinned&, PinnedMemory&)>;
  Told told;
  const std::pair<const char*, Attempt> operations[] = {
      {"message", [](IbvRank& from, const auto&,
                     auto&) { return from.try_send(0, Lane::kRequest, 1, "abcd"); }},
      {"message with a cell",
       [](IbvRank& from, const auto&, auto&) {
         return from.try_send_cell(0, Lane::kRequest, 1, "head", "cell");
       }},
      {"put",
       [&](IbvRank& from, const auto& there, auto& here) {
         return from.transport->pinned()->put(0, there, here.local(), 1024, &told);
       }},
      {"get",
       [&](IbvRank& from, const auto& there, auto& here) {
         return from.transport->pinned()->get(0, there, here.local(), 1024, &told);
       }},
      {"put of a barrier's word",
       [&](IbvRank& from, const auto& there, auto& here) {
         return from.transport->pinned()->put(0, there, {here.address(), nullptr}, 8, &told);
       }},
      {"atomic",
       [&](IbvRank& from, const auto& there, auto& here) {
         return from.transport->pinned()->start_atomic(0, there, here.local(), {}, &told);
       }},
  };
  const int room = static_cast<int>(3 * IbvTransport::Options().receives_per_peer());
  for (const auto& [name, attempt] : operations) {
    fake_verbs::reset();
    fake_verbs::add_device({.max_srq_wr = room});
    IbvWorld world(5);
    for (Rank peer = 1; peer <= 3; ++peer) world.connect(0, peer);
    ::testing::internal::CaptureStderr();
    {
      PinnedMemory here(*world[4].transport, Access::kLocalWrite, 4096);
      PinnedMemory there(*world[0].transport, kTarget, 4096);
      const PinnedOperations::Pinned remote = there.for_peer();
      EXPECT_EQ(world.insist([&] { return attempt(world[4], remote, here); }), Status::kResource)
          << name;
      EXPECT_THAT(last_error_text(),
                  AllOf(HasSubstr("rank 0 at 10.0.0.1 refuses the connection"),
                        HasSubstr("no room for another peer"), HasSubstr("HYDRANT_IBV_CREDITS")))
          << name;
    }
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("rank 4 cannot be connected"))
        << name;
    EXPECT_EQ(told.times, 0U) << name;
    EXPECT_EQ(world.send(1, 0, Lane::kRequest, 1, "abcd"), Status::kOk) << "others go on";
  }
}

// Handshakes are not repeated by time, so that exactly the first one is refused.
TEST_F(IbvRefusals, RankIsConnectedWhenTheReasonHasPassed) {
  IbvTransport::Options options = IbvWorld::single();
  options.handshakes.first_ns = 3'600'000'000'000;
  IbvWorld world(2, options);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  fake_verbs::fail_call(fake_verbs::Call::kRegMr, ENOMEM);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(world.send(0, 1, Lane::kRequest, 1, "abcd"), Status::kResource);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("rank 1 at"), HasSubstr("memlock")));
  EXPECT_TRUE(
      world.until([&] { return world[0].try_send(1, Lane::kRequest, 1, "abcd") == Status::kOk; }));
  EXPECT_TRUE(world.arrived(1, 1));
  (void)::testing::internal::GetCapturedStderr();
}

// The endpoint address of rank 1 hides that its credits differ; rank 1 sees those of rank 0.
TEST_F(IbvRefusals, OtherSettingsAreBroken) {
  CardBox box;
  IbvTransport::Options options = IbvWorld::single();
  IbvRank first(box, 0, 2, options);
  options.credits = 16;
  IbvRank second(box, 1, 2, options);
  std::string& bytes = box.endpoints.at("ibv1");
  ibv::EndpointAddress endpoint;
  ASSERT_EQ(ibv::decode_endpoint(std::as_bytes(std::span(bytes)), &endpoint), Status::kOk);
  endpoint.connection_parameters.credits = 32;
  ibv::encode_endpoint(endpoint, reinterpret_cast<std::byte*>(bytes.data()));
  ::testing::internal::CaptureStderr();
  Status status = Status::kNotReady;
  const uint64_t deadline = testing::in_seconds(10);
  while (status == Status::kNotReady && now_ns() < deadline) {
    status = first.try_send(1, Lane::kRequest, 1, "abcd");
    first.poll();
    second.poll();
  }
  EXPECT_EQ(status, Status::kBroken);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("rank 1 at"), HasSubstr("other settings")));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("32 credits, not 16"));
}

TEST_F(IbvRefusals, RefusalOfAStrangerIsIgnored) {
  IbvWorld world(2);
  const ibv::EndpointAddress own = endpoint_of(world, 0);
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "abcd"), Status::kNotReady);
  ibv::Handshake refusal;
  refusal.endpoint = endpoint_of(world, 1);
  refusal.to_nonce = own.address.nonce;
  refusal.from = 1;
  refusal.refusal = ibv::Refusal::kFull;
  const auto send = [&] {
    std::byte bytes[ibv::kHandshakeBytes];
    ibv::encode_handshake(refusal, bytes);
    fake_verbs::send_stray(own.address.datagram_queue, bytes, sizeof bytes);
    // Rank 1 does not poll.
    for (int i = 0; i < 16; ++i) world[0].poll();
    return world[0].try_send(1, Lane::kRequest, 1, "abcd");
  };
  ++refusal.endpoint.address.nonce;  // of a process that is not rank 1
  EXPECT_EQ(send(), Status::kNotReady);
  EXPECT_EQ(world[0].transport->counts().strangers, 1U);
  --refusal.endpoint.address.nonce;
  ++refusal.to_nonce;  // to another process
  EXPECT_EQ(send(), Status::kNotReady);
  EXPECT_EQ(world[0].transport->counts().strangers, 2U);
  --refusal.to_nonce;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(send(), Status::kResource);
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr(std::string("rank 1 at ") + text_of(refusal.endpoint.address).text + " refuses"));
  refusal.refusal = static_cast<ibv::Refusal>(200);
  EXPECT_EQ(send(), Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("a later version"));
  // The handshake that rank 1 answers at last is stronger than what was said in its name.
  EXPECT_TRUE(
      world.until([&] { return world[0].try_send(1, Lane::kRequest, 1, "abcd") == Status::kOk; }));
  // A connection that is open cannot be refused.
  EXPECT_EQ(send(), Status::kOk);
  EXPECT_EQ(world[0].transport->counts().strangers, 3U);
}

}  // namespace
}  // namespace hydrant
