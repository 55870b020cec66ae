#include "rdma/ibv/ibv_wire.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

namespace hydrant::ibv {
namespace {

using ::testing::HasSubstr;

Card sample_card() {
  Card card;
  card.address = {0x1122334455667788, 0xabcdef, 0x1234, IBV_MTU_1024, 1, {}};
  for (uint8_t i = 0; i < 16; ++i) card.address.gid.raw[i] = i;
  card.geometry = {512, 16384, 32, 4};
  card.group = 0x1112131415161718;
  return card;
}

Greeting sample_greeting() {
  Greeting greeting;
  greeting.card = sample_card();
  greeting.to_nonce = 0x0102030405060708;
  greeting.from = 3;
  greeting.to = 9;
  greeting.queue_pair = 0x123456;
  greeting.sequence = 0x654321;
  greeting.landing_key = 0xdeadbeef;
  greeting.known_as = 0x0a0b0c0d;
  greeting.landing = 0x7f0012345000;
  greeting.heard = true;
  return greeting;
}

TEST(IbvWire, CardLayoutIsFixed) {
  std::byte bytes[kCardBytes];
  encode_card(sample_card(), bytes);
  const unsigned char expected[kCardBytes] = {
      'H',  'Y',  'I',  'C', 2,    0,    0,    0,    0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
      0xef, 0xcd, 0xab, 0,   0x34, 0x12, 3,    1,    0,    1,    2,    3,    4,    5,    6,    7,
      8,    9,    10,   11,  12,   13,   14,   15,   0,    2,    0,    0,    0,    0x40, 0,    0,
      32,   0,    4,    0,   0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, 0,    0,    0,    0};
  EXPECT_EQ(std::memcmp(bytes, expected, sizeof bytes), 0);
  Card card;
  ASSERT_EQ(decode_card(bytes, &card), Status::kOk) << last_error_text();
  EXPECT_EQ(card.address.nonce, 0x1122334455667788U);
  EXPECT_EQ(card.address.datagram_queue, 0xabcdefU);
  EXPECT_EQ(card.address.gid.raw[15], 15);
  EXPECT_EQ(card.geometry, sample_card().geometry);
}

TEST(IbvWire, GreetingComesBackAsItWas) {
  std::byte bytes[kGreetingBytes];
  encode_greeting(sample_greeting(), bytes);
  Greeting greeting;
  ASSERT_EQ(decode_greeting(bytes, &greeting), Status::kOk) << last_error_text();
  EXPECT_EQ(greeting.to_nonce, 0x0102030405060708U);
  EXPECT_EQ(greeting.from, 3U);
  EXPECT_EQ(greeting.to, 9U);
  EXPECT_EQ(greeting.queue_pair, 0x123456U);
  EXPECT_EQ(greeting.sequence, 0x654321U);
  EXPECT_EQ(greeting.landing_key, 0xdeadbeefU);
  EXPECT_EQ(greeting.known_as, 0x0a0b0c0dU);
  EXPECT_EQ(greeting.card.group, 0x1112131415161718U);
  EXPECT_EQ(greeting.landing, 0x7f0012345000U);
  EXPECT_TRUE(greeting.heard);
  EXPECT_FALSE(greeting.open);
  EXPECT_EQ(greeting.card.geometry, sample_card().geometry);
}

TEST(IbvWire, WrongLengthsVersionsAndMagicNumbersAreRefused) {
  std::byte bytes[kGreetingBytes + 1] = {};
  encode_greeting(sample_greeting(), bytes);
  Greeting greeting;
  for (const size_t length : {size_t{0}, kGreetingBytes - 1, kGreetingBytes + 1})
    EXPECT_EQ(decode_greeting({bytes, length}, &greeting), Status::kBadArg);
  Card card;
  EXPECT_EQ(decode_card({bytes, kCardBytes}, &card), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("magic"));
  encode_card(sample_card(), bytes);
  bytes[4] = std::byte{1};
  EXPECT_EQ(decode_card({bytes, kCardBytes}, &card), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("all ranks must run the same library"));
}

TEST(IbvWire, WhatCannotBeIsRefused) {
  std::byte bytes[kGreetingBytes];
  Card card = sample_card();
  Card read;
  card.address.mtu = 0;
  encode_card(card, bytes);
  EXPECT_EQ(decode_card({bytes, kCardBytes}, &read), Status::kBadArg);
  card = sample_card();
  card.address.datagram_queue = 0x1000000;
  encode_card(card, bytes);
  EXPECT_EQ(decode_card({bytes, kCardBytes}, &read), Status::kBadArg);
  Greeting greeting = sample_greeting();
  greeting.queue_pair = 0x1000000;
  encode_greeting(greeting, bytes);
  EXPECT_EQ(decode_greeting(bytes, &greeting), Status::kBadArg);
  EXPECT_EQ(read.address.nonce, 0U) << "unchanged on failure";
}

Greeting sample_of_rails(uint32_t rails) {
  Greeting greeting = sample_greeting();
  greeting.card.rail_count = rails;
  for (uint32_t i = 0; i < rails; ++i) {
    greeting.card.rails[i] = {{}, static_cast<uint16_t>(0x0a0b + i), IBV_MTU_2048, 1};
    greeting.card.rails[i].gid.raw[15] = static_cast<uint8_t>(i + 1);
    greeting.rails[i] = {0x111111 * (i + 1), 0x10 + i, 0xcafe0000 + i, 0x7f0000001000U * (i + 1),
                         i % 2 == 0};
  }
  return greeting;
}

TEST(IbvWire, RailsComeBackAsTheyWere) {
  for (uint32_t rails = 0; rails < kMostRails; ++rails) {
    std::byte bytes[greeting_bytes(kMostRails - 1)];
    const Greeting made = sample_of_rails(rails);
    encode_greeting(made, bytes);
    Greeting read;
    ASSERT_EQ(decode_greeting({bytes, greeting_bytes(rails)}, &read), Status::kOk)
        << last_error_text();
    EXPECT_EQ(read.card.rail_count, rails);
    for (uint32_t i = 0; i < rails; ++i) {
      EXPECT_EQ(read.card.rails[i].gid.raw[15], i + 1);
      EXPECT_EQ(read.card.rails[i].lid, 0x0a0b + i);
      EXPECT_EQ(read.card.rails[i].mtu, IBV_MTU_2048);
      EXPECT_EQ(read.card.rails[i].is_ethernet, 1);
      EXPECT_EQ(read.rails[i].queue_pair, made.rails[i].queue_pair);
      EXPECT_EQ(read.rails[i].sequence, made.rails[i].sequence);
      EXPECT_EQ(read.rails[i].fence_key, made.rails[i].fence_key);
      EXPECT_EQ(read.rails[i].fence, made.rails[i].fence);
      EXPECT_EQ(read.rails[i].is_ready, made.rails[i].is_ready);
    }
  }
}

TEST(IbvWire, LayoutOfARailIsFixed) {
  std::byte bytes[greeting_bytes(1)];
  encode_greeting(sample_of_rails(1), bytes);
  const unsigned char card[kCardRailBytes] = {0, 0, 0, 0, 0,    0,    0, 0, 0, 0, 0, 0,
                                              0, 0, 0, 1, 0x0b, 0x0a, 4, 1, 0, 0, 0, 0};
  const unsigned char rail[kGreetingRailBytes] = {0x11, 0x11, 0x11, 0,    0x10, 0,    0, 0,
                                                  0,    0,    0xfe, 0xca, 1,    0,    0, 0,
                                                  0,    0x10, 0,    0,    0,    0x7f, 0, 0};
  EXPECT_EQ(std::memcmp(bytes + 48 + kCardBytes, card, sizeof card), 0);
  EXPECT_EQ(std::memcmp(bytes + 48 + kCardBytes + sizeof card, rail, sizeof rail), 0);
}

TEST(IbvWire, RailsThatCannotBeAreRefused) {
  std::byte bytes[greeting_bytes(kMostRails)];
  Greeting read;
  Card card;
  encode_greeting(sample_of_rails(2), bytes);
  for (const size_t length : {greeting_bytes(0), greeting_bytes(1), greeting_bytes(2) - 1,
                              greeting_bytes(3), greeting_bytes(4)})
    EXPECT_EQ(decode_greeting({bytes, length}, &read), Status::kBadArg) << length;
  encode_card(sample_of_rails(2).card, bytes);
  EXPECT_EQ(decode_card({bytes, card_bytes(1)}, &card), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("3 ports"));
  bytes[6] = std::byte{kMostRails};
  EXPECT_EQ(decode_card({bytes, card_bytes(kMostRails)}, &card), Status::kBadArg);
  EXPECT_THAT(last_error_text(), HasSubstr("4 are the most"));
  // Any reserved bit, a packet size or a queue pair that cannot be.
  const auto refused = [&](size_t at, uint8_t value) {
    encode_greeting(sample_of_rails(2), bytes);
    bytes[at] = std::byte{value};
    return decode_greeting({bytes, greeting_bytes(2)}, &read) == Status::kBadArg;
  };
  constexpr size_t kSecond = 48 + kCardBytes + kCardRailBytes;
  EXPECT_TRUE(refused(kSecond + 18, 0));
  EXPECT_TRUE(refused(kSecond + 18, 6));
  EXPECT_TRUE(refused(kSecond + 19, 2));
  EXPECT_TRUE(refused(kSecond + 23, 1));
  constexpr size_t kEnds = 48 + card_bytes(2) + kGreetingRailBytes;
  EXPECT_TRUE(refused(kEnds + 3, 1));
  EXPECT_TRUE(refused(kEnds + 7, 1));
  EXPECT_TRUE(refused(kEnds + 12, 2));
  EXPECT_TRUE(refused(kEnds + 15, 1));
  EXPECT_FALSE(refused(kEnds + 12, 1));
}

TEST(IbvWire, AddressesAreCalledWhatPeopleCallThem) {
  Address address;
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

// Any bytes: a status, never anything else; and what is accepted is written again as it was read.
TEST(IbvWire, AnyBytesAreDecodedOrRefused) {
  std::mt19937 random(1);
  uint32_t accepted = 0;
  for (uint32_t round = 0; round < 40000; ++round) {
    const uint32_t rails = round % kMostRails;
    const size_t length = greeting_bytes(rails);
    std::byte bytes[greeting_bytes(kMostRails - 1)];
    encode_greeting(sample_of_rails(rails), bytes);
    const uint64_t changes = 1 + random() % 3;
    for (uint64_t i = 0; i < changes; ++i)
      bytes[random() % length] = static_cast<std::byte>(random());
    Greeting greeting;
    if (decode_greeting({bytes, length}, &greeting) != Status::kOk) continue;
    ++accepted;
    std::byte again[sizeof bytes];
    encode_greeting(greeting, again);
    ASSERT_EQ(std::memcmp(bytes, again, length), 0);
  }
  EXPECT_GT(accepted, 1000U);
}

}  // namespace
}  // namespace hydrant::ibv
