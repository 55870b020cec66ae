// The address that a group hands to another: its layout, and all ways in which it may be wrong.
#include "rdma/ibv/wire/ibv_group_address.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace hydrant::ibv {
namespace {

using ::testing::HasSubstr;

GroupAddress sample(uint32_t rails = 0) {
  GroupAddress made;
  made.rank = 3;
  made.ranks = 5;
  made.endpoint.address = {{{}, 0x1234, IBV_MTU_1024, 1}, 0x1122334455667788, 0xabcdef};
  made.endpoint.connection_parameters = {512, 16384, 32, 4};
  made.endpoint.group = 0x2122232425262728;
  made.endpoint.rail_count = rails;
  for (uint32_t i = 0; i < rails; ++i)
    made.endpoint.rails[i] = {{}, static_cast<uint16_t>(i + 1), IBV_MTU_2048, 1};
  return made;
}

std::vector<std::byte> bytes_of(const GroupAddress& endpoint) {
  std::vector<std::byte> bytes(group_address_bytes(endpoint.endpoint.rail_count));
  encode_group_address(endpoint, bytes.data());
  return bytes;
}

// The checksum that belongs to what stands before it.
void seal(std::vector<std::byte>& bytes) {
  uint64_t sum = 14695981039346656037U;
  for (size_t i = 0; i + 8 < bytes.size(); ++i) {
    sum ^= static_cast<uint8_t>(bytes[i]);
    sum *= 1099511628211U;
  }
  for (size_t i = 0; i < 8; ++i)
    bytes[bytes.size() - 8 + i] = static_cast<std::byte>(sum >> (8 * i));
}

// As it was written, but for one byte, under a checksum that fits.
::testing::AssertionResult is_refused(size_t at, uint8_t value, const char* text) {
  std::vector<std::byte> bytes = bytes_of(sample(1));
  bytes[at] = static_cast<std::byte>(value);
  seal(bytes);
  GroupAddress read;
  if (decode_group_address(bytes, &read) != Status::kBadArg || read.ranks != 0)
    return ::testing::AssertionFailure() << "byte " << at;
  if (std::strstr(last_error_text(), text) == nullptr)
    return ::testing::AssertionFailure() << "byte " << at << ": " << last_error_text();
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult is_refused(const GroupAddress& endpoint, const char* text) {
  GroupAddress read;
  if (decode_group_address(bytes_of(endpoint), &read) != Status::kBadArg || read.ranks != 0)
    return ::testing::AssertionFailure();
  if (std::strstr(last_error_text(), text) == nullptr)
    return ::testing::AssertionFailure() << last_error_text();
  return ::testing::AssertionSuccess();
}

TEST(IbvGroupAddress, LayoutIsFixed) {
  std::vector<std::byte> bytes = bytes_of(sample());
  ASSERT_EQ(bytes.size(), 88U);
  const unsigned char expected[16] = {'H', 'Y', 'I', 'M', 1, 0, 88, 0, 3, 0, 0, 0, 5, 0, 0, 0};
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof expected), 0);
  std::byte inner[kEndpointBytes];
  encode_endpoint(sample().endpoint, inner);
  EXPECT_EQ(std::memcmp(bytes.data() + 16, inner, sizeof inner), 0);
  const std::vector<std::byte> written = bytes;
  seal(bytes);
  EXPECT_EQ(bytes, written) << "FNV-1a of all before it";
}

TEST(IbvGroupAddress, RoundTrips) {
  for (uint32_t rails = 0; rails < kMaxRails; ++rails) {
    GroupAddress read;
    ASSERT_EQ(decode_group_address(bytes_of(sample(rails)), &read), Status::kOk)
        << last_error_text();
    EXPECT_EQ(read.rank, 3U);
    EXPECT_EQ(read.ranks, 5U);
    EXPECT_EQ(bytes_of(read), bytes_of(sample(rails)));
  }
}

TEST(IbvGroupAddress, EveryOtherLengthIsRefused) {
  const std::vector<std::byte> bytes = bytes_of(sample(2));
  std::vector<std::byte> longer = bytes;
  longer.resize(kMaxGroupAddressBytes + 1);
  GroupAddress read;
  for (size_t length = 0; length <= longer.size(); ++length) {
    if (length == bytes.size()) continue;
    const std::vector<std::byte> cut(longer.begin(),
                                     longer.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_EQ(decode_group_address(cut, &read), Status::kBadArg) << length;
    EXPECT_THAT(last_error_text(), HasSubstr("pass all bytes that group_address() returned"))
        << length;
  }
}

TEST(IbvGroupAddress, EveryChangedByteIsFound) {
  const std::vector<std::byte> bytes = bytes_of(sample(1));
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const unsigned change : {0x01U, 0x80U, 0xffU}) {
      std::vector<std::byte> changed = bytes;
      changed[at] ^= static_cast<std::byte>(change);
      GroupAddress read;
      EXPECT_EQ(decode_group_address(changed, &read), Status::kBadArg) << at;
    }
  }
}

TEST(IbvGroupAddress, EachFieldThatCannotBeIsRefusedWithItsText) {
  EXPECT_TRUE(is_refused(0, 'x', "magic"));
  EXPECT_TRUE(is_refused(4, 9, "version 9; this side speaks version 1"));
  EXPECT_TRUE(is_refused(4, 9, "the same library"));
  EXPECT_TRUE(is_refused(6, 111, "111 bytes in 112"));
  // The endpoint address inside is refused with texts of its own.
  EXPECT_TRUE(is_refused(16, 'x', "an endpoint address of verbs has the wrong magic"));
  EXPECT_TRUE(is_refused(20, 1, "version 1; this side"));
  EXPECT_TRUE(is_refused(22, 4, "5 ports"));
  EXPECT_TRUE(is_refused(22, 0, "1 ports has 64 bytes, this one 88"));
  EXPECT_TRUE(is_refused(35, 1, "queue pair"));
  EXPECT_TRUE(is_refused(38, 0, "packet size"));
  EXPECT_TRUE(is_refused(39, 2, "reserved"));
  EXPECT_TRUE(is_refused(76, 6, "reserved"));
  EXPECT_TRUE(is_refused(79, 1, "reserved"));
  EXPECT_TRUE(is_refused(16 + 64 + 18, 6, "packet size of rail 1"));
  EXPECT_TRUE(is_refused(16 + 64 + 19, 2, "reserved bytes of rail 1"));
  EXPECT_TRUE(is_refused(16 + 64 + 23, 1, "reserved bytes of rail 1"));
}

TEST(IbvGroupAddress, ImpossibleRanksAndGroupsAreRejected) {
  GroupAddress endpoint = sample();
  endpoint.rank = 5;
  EXPECT_TRUE(is_refused(endpoint, "rank 5 of a group of 5"));
  endpoint = sample();
  endpoint.ranks = 0;
  EXPECT_TRUE(is_refused(endpoint, "of a group of 0"));
  endpoint = sample();
  endpoint.endpoint.group = 0;
  EXPECT_TRUE(is_refused(endpoint, "names no group"));
  endpoint = sample();
  endpoint.endpoint.address.nonce = 0;
  EXPECT_TRUE(is_refused(endpoint, "names no group"));
  endpoint = sample();  // a group bears the nonce of its rank 0, and of no other rank
  endpoint.endpoint.group = endpoint.endpoint.address.nonce;
  EXPECT_TRUE(is_refused(endpoint, "rank 3 that names no group"));
  endpoint.rank = 0;
  GroupAddress read;
  EXPECT_EQ(decode_group_address(bytes_of(endpoint), &read), Status::kOk);
  endpoint.endpoint.group = 7;
  EXPECT_TRUE(is_refused(endpoint, "rank 0 that names no group"));
}

// Any bytes under a checksum that fits: refused, or written again as they were read.
TEST(IbvGroupAddress, AnyBytesAreDecodedOrRefused) {
  std::mt19937 random(1);
  uint32_t accepted = 0;
  for (uint32_t round = 0; round < 40000; ++round) {
    std::vector<std::byte> bytes = bytes_of(sample(round % kMaxRails));
    const uint64_t changes = 1 + random() % 3;
    for (uint64_t i = 0; i < changes; ++i)
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    seal(bytes);
    GroupAddress read;
    if (decode_group_address(bytes, &read) != Status::kOk) continue;
    ++accepted;
    ASSERT_EQ(bytes_of(read), bytes);
  }
  EXPECT_GT(accepted, 1000U);
  EXPECT_LT(accepted, 39000U);
}

}  // namespace
}  // namespace hydrant::ibv
