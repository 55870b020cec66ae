#include "rdma/ibv/wire/ibv_wire.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

namespace hydrant::ibv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::byte kSpareFlags{0xf8};  // of the flags of a handshake, byte 6

EndpointAddress sample_endpoint() {
  EndpointAddress endpoint;
  endpoint.address = {{{}, 0x1234, IBV_MTU_1024, 1, 1, 2, 16, 1}, 0x1122334455667788, 0xabcdef};
  for (uint8_t i = 0; i < 16; ++i) endpoint.address.gid.raw[i] = i;
  endpoint.connection_parameters = {512, 16384, 32, 4};
  endpoint.group = 0x1112131415161718;
  return endpoint;
}

Handshake sample_handshake() {
  Handshake handshake;
  handshake.endpoint = sample_endpoint();
  handshake.to_nonce = 0x0102030405060708;
  handshake.from = 3;
  handshake.to = 9;
  handshake.queue_pair = 0x123456;
  handshake.sequence = 0x654321;
  handshake.slot_key = 0xdeadbeef;
  handshake.index_at_peer = 0x0a0b0c0d;
  handshake.receive_slot = 0x7f0012345000;
  handshake.can_receive = true;
  return handshake;
}

TEST(IbvWire, AddressLayoutIsFixed) {
  std::byte bytes[kEndpointBytes];
  encode_endpoint(sample_endpoint(), bytes);
  const unsigned char expected[kEndpointBytes] = {
      'H',  'Y',  'I',  'C', 3,    0,    0,    0,    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
      0xef, 0xcd, 0xab, 0,   0x34, 0x12, 3,    1,    0,    1,    2,    3,    4,    5,    6,    7,
      8,    9,    10,   11,  12,   13,   14,   15,   0,    2,    0,    0,    0,    0x40, 0,    0,
      32,   0,    4,    0,   0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 5,    16,   1,    0};
  EXPECT_EQ(std::memcmp(bytes, expected, sizeof bytes), 0);
  EndpointAddress endpoint;
  ASSERT_EQ(decode_endpoint(bytes, &endpoint), Status::kOk) << last_error_text();
  EXPECT_EQ(endpoint.address.nonce, 0x1122334455667788U);
  EXPECT_EQ(endpoint.address.datagram_queue, 0xabcdefU);
  EXPECT_EQ(endpoint.address.gid.raw[15], 15);
  EXPECT_EQ(endpoint.address.needs_grh, 1);
  EXPECT_EQ(endpoint.address.gid_version, 2);
  EXPECT_EQ(endpoint.address.reads_in, 16);
  EXPECT_EQ(endpoint.address.put_order(), PutOrder::kUnordered);
  EXPECT_EQ(endpoint.connection_parameters, sample_endpoint().connection_parameters);
}

TEST(IbvWire, OrderOfALaterVersionCountsAsRelaxed) {
  std::byte bytes[kEndpointBytes];
  EndpointAddress endpoint = sample_endpoint();
  endpoint.address.order = 3;
  encode_endpoint(endpoint, bytes);
  ASSERT_EQ(decode_endpoint(bytes, &endpoint), Status::kOk) << last_error_text();
  EXPECT_EQ(endpoint.address.put_order(), PutOrder::kRelaxed);
}

// Earlier versions send no flag; puts to their nodes have fences.
TEST(IbvWire, HandshakeWithoutTheFlagDoesNotSayThatItsNodeUsesOneAdapter) {
  std::byte bytes[kHandshakeBytes];
  Handshake handshake = sample_handshake();
  for (const bool is_one : {true, false}) {
    handshake.one_adapter = is_one;
    encode_handshake(handshake, bytes);
    EXPECT_EQ(bytes[6], std::byte{static_cast<uint8_t>(is_one ? 5 : 1)});
    Handshake read;
    ASSERT_EQ(decode_handshake(bytes, &read), Status::kOk) << last_error_text();
    EXPECT_EQ(read.one_adapter, is_one);
  }
}

TEST(IbvWire, HandshakeRoundTrips) {
  std::byte bytes[kHandshakeBytes];
  encode_handshake(sample_handshake(), bytes);
  Handshake handshake;
  ASSERT_EQ(decode_handshake(bytes, &handshake), Status::kOk) << last_error_text();
  EXPECT_EQ(handshake.to_nonce, 0x0102030405060708U);
  EXPECT_EQ(handshake.from, 3U);
  EXPECT_EQ(handshake.to, 9U);
  EXPECT_EQ(handshake.queue_pair, 0x123456U);
  EXPECT_EQ(handshake.sequence, 0x654321U);
  EXPECT_EQ(handshake.slot_key, 0xdeadbeefU);
  EXPECT_EQ(handshake.index_at_peer, 0x0a0b0c0dU);
  EXPECT_EQ(handshake.endpoint.group, 0x1112131415161718U);
  EXPECT_EQ(handshake.receive_slot, 0x7f0012345000U);
  EXPECT_TRUE(handshake.can_receive);
  EXPECT_FALSE(handshake.open);
  EXPECT_EQ(handshake.endpoint.connection_parameters, sample_endpoint().connection_parameters);
}

TEST(IbvWire, WrongLengthsVersionsAndMagicNumbersAreRefused) {
  std::byte bytes[kHandshakeBytes + 1] = {};
  encode_handshake(sample_handshake(), bytes);
  Handshake handshake;
  for (const size_t length : {size_t{0}, kHandshakeBytes - 1, kHandshakeBytes + 1})
    EXPECT_EQ(decode_handshake({bytes, length}, &handshake), Status::kBadArg);
  EndpointAddress endpoint;
  EXPECT_EQ(decode_endpoint({bytes, kEndpointBytes}, &endpoint), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("magic"));
  encode_endpoint(sample_endpoint(), bytes);
  bytes[4] = std::byte{1};
  EXPECT_EQ(decode_endpoint({bytes, kEndpointBytes}, &endpoint), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("all ranks must run the same library"));
}

// The layout of another version is not known, so its length does not matter.
TEST(IbvWire, OtherVersionsAreNamedWithThisOne) {
  std::byte bytes[kHandshakeBytes];
  const auto names_both = AllOf(HasSubstr("version 2"), HasSubstr("version 3"));
  for (const size_t length : {size_t{8}, kEndpointBytes - 8, kEndpointBytes}) {
    encode_endpoint(sample_endpoint(), bytes);
    bytes[4] = std::byte{2};
    EndpointAddress endpoint;
    EXPECT_EQ(decode_endpoint({bytes, length}, &endpoint), Status::kBadArg);
    EXPECT_THAT(last_error_text(), names_both) << length;
  }
  for (const size_t length : {size_t{8}, kHandshakeBytes - 8, kHandshakeBytes}) {
    encode_handshake(sample_handshake(), bytes);
    bytes[4] = std::byte{2};
    Handshake handshake;
    EXPECT_EQ(decode_handshake({bytes, length}, &handshake), Status::kBadArg);
    EXPECT_THAT(last_error_text(), names_both) << length;
  }
}

TEST(IbvWire, RefusalsRoundTripAndUnknownFlagsAreIgnored) {
  std::byte bytes[kHandshakeBytes];
  Handshake made = sample_handshake();
  made.refusal = Refusal::kNoMemory;
  encode_handshake(made, bytes);
  EXPECT_EQ(bytes[7], std::byte{2});
  Handshake read;
  ASSERT_EQ(decode_handshake(bytes, &read), Status::kOk) << last_error_text();
  EXPECT_EQ(read.refusal, Refusal::kNoMemory);
  bytes[7] = std::byte{200};  // a reason of a later version
  ASSERT_EQ(decode_handshake(bytes, &read), Status::kOk) << last_error_text();
  EXPECT_EQ(static_cast<uint8_t>(read.refusal), 200);
  bytes[7] = std::byte{0};
  bytes[6] |= kSpareFlags;
  ASSERT_EQ(decode_handshake(bytes, &read), Status::kOk) << last_error_text();
  EXPECT_EQ(read.refusal, Refusal::kNone);
  EXPECT_TRUE(read.can_receive);
  EXPECT_FALSE(read.open);
}

TEST(IbvWire, InvalidInputIsRejected) {
  std::byte bytes[kHandshakeBytes];
  EndpointAddress endpoint = sample_endpoint();
  EndpointAddress read;
  endpoint.address.mtu = 0;
  encode_endpoint(endpoint, bytes);
  EXPECT_EQ(decode_endpoint({bytes, kEndpointBytes}, &read), Status::kBadArg);
  endpoint = sample_endpoint();
  endpoint.address.datagram_queue = 0x1000000;
  encode_endpoint(endpoint, bytes);
  EXPECT_EQ(decode_endpoint({bytes, kEndpointBytes}, &read), Status::kBadArg);
  Handshake handshake = sample_handshake();
  handshake.queue_pair = 0x1000000;
  encode_handshake(handshake, bytes);
  EXPECT_EQ(decode_handshake(bytes, &handshake), Status::kBadArg);
  EXPECT_EQ(read.address.nonce, 0U) << "unchanged on failure";
}

Handshake sample_of_rails(uint32_t rails) {
  Handshake handshake = sample_handshake();
  handshake.endpoint.rail_count = rails;
  for (uint32_t i = 0; i < rails; ++i) {
    handshake.endpoint.rails[i] = {{}, static_cast<uint16_t>(0x0a0b + i), IBV_MTU_2048, 1, 1, 1, 4};
    handshake.endpoint.rails[i].gid.raw[15] = static_cast<uint8_t>(i + 1);
    handshake.rails[i] = {0x111111 * (i + 1), 0x10 + i, 0xcafe0000 + i, 0x7f0000001000U * (i + 1),
                          i % 2 == 0};
  }
  return handshake;
}

TEST(IbvWire, RailsRoundTrip) {
  for (uint32_t rails = 0; rails < kMaxRails; ++rails) {
    std::byte bytes[handshake_bytes(kMaxRails - 1)];
    const Handshake made = sample_of_rails(rails);
    encode_handshake(made, bytes);
    Handshake read;
    ASSERT_EQ(decode_handshake({bytes, handshake_bytes(rails)}, &read), Status::kOk)
        << last_error_text();
    EXPECT_EQ(read.endpoint.rail_count, rails);
    for (uint32_t i = 0; i < rails; ++i) {
      EXPECT_EQ(read.endpoint.rails[i].gid.raw[15], i + 1);
      EXPECT_EQ(read.endpoint.rails[i].lid, 0x0a0b + i);
      EXPECT_EQ(read.endpoint.rails[i].mtu, IBV_MTU_2048);
      EXPECT_EQ(read.endpoint.rails[i].is_ethernet, 1);
      EXPECT_EQ(read.endpoint.rails[i].needs_grh, 1);
      EXPECT_EQ(read.endpoint.rails[i].gid_version, 1);
      EXPECT_EQ(read.endpoint.rails[i].reads_in, 4);
      EXPECT_EQ(read.rails[i].queue_pair, made.rails[i].queue_pair);
      EXPECT_EQ(read.rails[i].sequence, made.rails[i].sequence);
      EXPECT_EQ(read.rails[i].fence_key, made.rails[i].fence_key);
      EXPECT_EQ(read.rails[i].fence, made.rails[i].fence);
      EXPECT_EQ(read.rails[i].is_ready, made.rails[i].is_ready);
    }
  }
}

TEST(IbvWire, LayoutOfARailIsFixed) {
  std::byte bytes[handshake_bytes(1)];
  encode_handshake(sample_of_rails(1), bytes);
  const unsigned char endpoint[kEndpointRailBytes] = {0, 0, 0, 0, 0,    0,    0, 0, 0, 0, 0, 0,
                                                      0, 0, 0, 1, 0x0b, 0x0a, 4, 1, 3, 4, 0, 0};
  const unsigned char rail[kHandshakeRailBytes] = {0x11, 0x11, 0x11, 0,    0x10, 0,    0, 0,
                                                   0,    0,    0xfe, 0xca, 1,    0,    0, 0,
                                                   0,    0x10, 0,    0,    0,    0x7f, 0, 0};
  EXPECT_EQ(std::memcmp(bytes + 48 + kEndpointBytes, endpoint, sizeof endpoint), 0);
  EXPECT_EQ(std::memcmp(bytes + 48 + kEndpointBytes + sizeof endpoint, rail, sizeof rail), 0);
}

TEST(IbvWire, RailsThatCannotBeAreRefused) {
  std::byte bytes[handshake_bytes(kMaxRails)];
  Handshake read;
  EndpointAddress endpoint;
  encode_handshake(sample_of_rails(2), bytes);
  for (const size_t length : {handshake_bytes(0), handshake_bytes(1), handshake_bytes(2) - 1,
                              handshake_bytes(3), handshake_bytes(4)})
    EXPECT_EQ(decode_handshake({bytes, length}, &read), Status::kBadArg) << length;
  encode_endpoint(sample_of_rails(2).endpoint, bytes);
  EXPECT_EQ(decode_endpoint({bytes, endpoint_bytes(1)}, &endpoint), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("3 ports"));
  bytes[6] = std::byte{kMaxRails};
  EXPECT_EQ(decode_endpoint({bytes, endpoint_bytes(kMaxRails)}, &endpoint), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("4 are the most"));
  // Any reserved bit, a packet size or a queue pair that cannot be.
  const auto refused = [&](size_t at, uint8_t value) {
    encode_handshake(sample_of_rails(2), bytes);
    bytes[at] = std::byte{value};
    return decode_handshake({bytes, handshake_bytes(2)}, &read) == Status::kBadArg;
  };
  constexpr size_t kSecond = 48 + kEndpointBytes + kEndpointRailBytes;
  EXPECT_TRUE(refused(kSecond + 18, 0));
  EXPECT_TRUE(refused(kSecond + 18, 6));
  EXPECT_TRUE(refused(kSecond + 19, 2));
  EXPECT_TRUE(refused(kSecond + 20, 6));
  EXPECT_TRUE(refused(kSecond + 23, 1));
  constexpr size_t kEnds = 48 + endpoint_bytes(2) + kHandshakeRailBytes;
  EXPECT_TRUE(refused(kEnds + 3, 1));
  EXPECT_TRUE(refused(kEnds + 7, 1));
  EXPECT_TRUE(refused(kEnds + 12, 2));
  EXPECT_TRUE(refused(kEnds + 15, 1));
  EXPECT_FALSE(refused(kEnds + 12, 1));
}

TEST(IbvWire, AddressTextsAreLidsOrIpAddresses) {
  PortAddress address;
  address.lid = 5;
  EXPECT_STREQ(text_of(address).text, "LID 5");
  address.is_ethernet = 1;
  const uint8_t four[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 78, 0, 2};
  std::memcpy(address.gid.raw, four, sizeof four);
  EXPECT_STREQ(text_of(address).text, "10.78.0.2");
  const uint8_t six[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 0, 0, 0xff};
  std::memcpy(address.gid.raw, six, sizeof six);
  EXPECT_STREQ(text_of(address).text, "fe80::1234:0:0:ff");
}

// Decoding any bytes returns a status; accepted bytes are encoded to the same bytes, but for unknown flags.
TEST(IbvWire, AnyBytesAreDecodedOrRefused) {
  std::mt19937 random(1);
  uint32_t accepted = 0;
  for (uint32_t round = 0; round < 40000; ++round) {
    const uint32_t rails = round % kMaxRails;
    const size_t length = handshake_bytes(rails);
    std::byte bytes[handshake_bytes(kMaxRails - 1)];
    encode_handshake(sample_of_rails(rails), bytes);
    const uint64_t changes = 1 + random() % 3;
    for (uint64_t i = 0; i < changes; ++i)
      bytes[random() % length] = static_cast<std::byte>(random());
    Handshake handshake;
    if (decode_handshake({bytes, length}, &handshake) != Status::kOk) continue;
    ++accepted;
    std::byte again[sizeof bytes];
    encode_handshake(handshake, again);
    again[6] |= bytes[6] & kSpareFlags;
    ASSERT_EQ(std::memcmp(bytes, again, length), 0);
  }
  EXPECT_GT(accepted, 1000U);
}

}  // namespace
}  // namespace hydrant::ibv
