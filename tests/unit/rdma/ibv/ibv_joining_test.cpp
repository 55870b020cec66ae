// Endpoint addresses by which processes of another group become peers: their owners, refused addresses, and
// the limit on joined peers.
#include "tests/unit/rdma/ibv/ibv_meeting.hpp"
#include "tests/unit/rdma/ibv/verbs_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hydrant {
namespace {

using ::testing::AllOf;
using testing::Blob;
using testing::group_address_of;
using testing::group_addresses_of;
using ::testing::HasSubstr;
using testing::IbvRank;
using testing::IbvWorld;
using testing::join;
using testing::Meeting;
using testing::read_endpoint;
using testing::written;

class IbvJoining : public testing::VerbsTest {};

TEST_F(IbvJoining, AddressNamesItsRank) {
  IbvWorld world(3);
  const std::vector<Blob> endpoints = group_addresses_of(world);
  for (Rank rank = 0; rank < 3; ++rank) {
    const ibv::GroupAddress endpoint = read_endpoint(endpoints[rank]);
    EXPECT_EQ(endpoint.rank, rank);
    EXPECT_EQ(endpoint.ranks, 3U);
    EXPECT_EQ(endpoint.endpoint.group, read_endpoint(endpoints[0]).endpoint.address.nonce);
    EXPECT_EQ(endpoints[rank], group_address_of(world[rank])) << "always the same";
  }
  std::byte small[87];
  size_t bytes = 0;
  EXPECT_EQ(world[0].transport->group_address(small, &bytes), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("88 bytes, the buffer 87"));
  EXPECT_EQ(bytes, 0U);
}

// The group's name is in the endpoint address of rank 0, which the launcher provides.
TEST_F(IbvJoining, NoGroupAddressWithoutRank0) {
  IbvWorld world(2);
  world.box.endpoints.erase("ibv0");
  std::byte blob[IbvTransport::kMaxGroupAddressBytes];
  size_t bytes = 0;
  EXPECT_EQ(world[1].transport->group_address(blob, &bytes), Status::kBroken);
  EXPECT_THAT(last_error_text(),
              AllOf(HasSubstr("rank 0 has no verbs endpoint address"), HasSubstr("this group")));
  EXPECT_EQ(world[0].transport->group_address(blob, &bytes), Status::kOk) << "it knows itself";
}

TEST_F(IbvJoining, SameAddressGetsTheSameNumber) {
  Meeting meeting(1, 2);
  const std::vector<Blob> endpoints = group_addresses_of(meeting.b);
  std::vector<Rank> numbers;
  ASSERT_EQ(join(meeting.a[0], {endpoints[1], endpoints[0], endpoints[1], endpoints[1]}, &numbers),
            Status::kOk)
      << last_error_text();
  EXPECT_EQ(numbers, (std::vector<Rank>{1, 2, 1, 1}));
  ASSERT_EQ(join(meeting.a[0], {endpoints[0], endpoints[1]}, &numbers), Status::kOk)
      << "no room is needed: " << last_error_text();
  EXPECT_EQ(numbers, (std::vector<Rank>{2, 1}));
  ASSERT_EQ(join(meeting.a[0], {}, &numbers), Status::kOk);
  // An address of the same rank, but of another process, is refused.
  ibv::GroupAddress other = read_endpoint(endpoints[1]);
  ++other.endpoint.address.nonce;
  EXPECT_EQ(join(meeting.a[0], {written(other)}, &numbers), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("joined by another endpoint address"));
}

TEST_F(IbvJoining, OwnAddressesAreRejected) {
  Meeting meeting(2, 2);
  const std::vector<Blob> own = group_addresses_of(meeting.a);
  const std::vector<Blob> others = group_addresses_of(meeting.b);
  std::vector<Rank> numbers;
  for (Rank rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(join(meeting.a[1], {others[0], own[rank]}, &numbers), Status::kBadArg);
    EXPECT_THAT(
        last_error_text(),
        AllOf(HasSubstr("endpoint address of rank " + std::to_string(rank) + " of this group"),
              HasSubstr("leave it out"),
              HasSubstr("endpoint address 2 of 2, no process is joined")));
  }
  // No process was joined: the first number is still free.
  ASSERT_EQ(join(meeting.a[1], {others[1]}, &numbers), Status::kOk);
  EXPECT_EQ(numbers[0], 2U);
}

TEST_F(IbvJoining, JoinBeyondTheLimitIsRejected) {
  Meeting meeting(2, 2);
  IbvWorld third(1);  // which has room for no joined peer
  std::vector<Rank> numbers;
  ASSERT_EQ(join(meeting.a[0], {group_address_of(meeting.b[0])}, &numbers), Status::kOk);
  const Blob more = group_address_of(third[0]);
  EXPECT_EQ(join(meeting.a[0], {group_address_of(meeting.b[1]), more}, &numbers),
            Status::kResource);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("more than 2 processes"), HasSubstr("max_joined"),
                                       HasSubstr("endpoint address 2 of 2, no process is joined")));
  ASSERT_EQ(meeting.a[0].try_send(3, Lane::kRequest, 1, "a"), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("the job has 2, and 1 have been joined"));
  ASSERT_EQ(join(meeting.a[0], {more}, &numbers), Status::kOk) << last_error_text();
  EXPECT_EQ(numbers[0], 3U);
  EXPECT_EQ(join(third[0], {group_address_of(meeting.a[0])}, &numbers), Status::kResource);
  EXPECT_THAT(last_error_text(), HasSubstr("more than 0 processes"));
  const std::vector<std::span<const std::byte>> two(2, std::span<const std::byte>(more));
  EXPECT_EQ(meeting.a[1].transport->join(two, std::span(numbers).first(1)), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("2 endpoint addresses, and room for the numbers of 1"));
}

TEST_F(IbvJoining, TooManyJoinedPeersIsABadOption) {
  testing::CardBox box;
  const IbvRank rank(box, 0, 2, testing::joining(65537, IbvWorld::single()));
  EXPECT_EQ(rank.opened, Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("65536 are the most"));
}

TEST_F(IbvJoining, CorruptAddressFailsTheWholeJoin) {
  Meeting meeting(1, 2);
  const std::vector<Blob> endpoints = group_addresses_of(meeting.b);
  std::vector<Rank> numbers;
  Blob damaged = endpoints[1];
  damaged[30] ^= std::byte{1};
  EXPECT_EQ(join(meeting.a[0], {endpoints[0], damaged}, &numbers), Status::kBadArg);
  EXPECT_THAT(last_error_text(),
              AllOf(HasSubstr("checksum"), HasSubstr("endpoint address 2 of 2")));
  EXPECT_EQ(meeting.a[0].try_send(1, Lane::kRequest, 1, "a"), Status::kBadArg);
  EXPECT_EQ(join(meeting.a[0], {{}}, &numbers), Status::kBadArg);
}

TEST_F(IbvJoining, OtherSettingsAndLinksAreRefusedWhenJoining) {
  Meeting meeting(1, 1);
  ibv::GroupAddress endpoint = read_endpoint(group_address_of(meeting.b[0]));
  std::vector<Rank> numbers;
  endpoint.endpoint.connection_parameters.credits = 7;
  EXPECT_EQ(join(meeting.a[0], {written(endpoint)}, &numbers), Status::kBroken);
  EXPECT_THAT(last_error_text(), AllOf(HasSubstr("peer 1 (rank 0 of group"),
                                       HasSubstr("7 credits, not 32"), HasSubstr("on all ranks)")));
  endpoint = read_endpoint(group_address_of(meeting.b[0]));
  endpoint.endpoint.address.is_ethernet ^= 1;
  EXPECT_EQ(join(meeting.a[0], {written(endpoint)}, &numbers), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("InfiniBand"));
  EXPECT_EQ(meeting.a[0].try_send(1, Lane::kRequest, 1, "a"), Status::kBadArg);
}

// The launcher's endpoint addresses bear no group.
TEST_F(IbvJoining, AddressOfAnotherGroupIsNotALauncherRank) {
  IbvWorld world(2);
  IbvWorld other(1);
  Blob endpoint(ibv::kEndpointBytes);
  ibv::encode_endpoint(read_endpoint(group_address_of(other[0])).endpoint, endpoint.data());
  world.box.endpoints["ibv1"] = {reinterpret_cast<const char*>(endpoint.data()), endpoint.size()};
  EXPECT_EQ(world[0].try_send(1, Lane::kRequest, 1, "a"), Status::kBroken);
  EXPECT_THAT(last_error_text(), HasSubstr("rank 1 has the endpoint address of another job"));
}

}  // namespace
}  // namespace hydrant
