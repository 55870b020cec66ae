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
  greeting.landing = 0x7f0012345000;
  greeting.heard = true;
  return greeting;
}

TEST(IbvWire, CardLayoutIsFixed) {
  std::byte bytes[kCardBytes];
  encode_card(sample_card(), bytes);
  const unsigned char expected[kCardBytes] = {
      'H',  'Y',  'I',  'C', 1,    0,    0,  0,  0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,
      0xef, 0xcd, 0xab, 0,   0x34, 0x12, 3,  1,  0,    1,    2,    3,    4,    5,    6,    7,
      8,    9,    10,   11,  12,   13,   14, 15, 0,    2,    0,    0,    0,    0x40, 0,    0,
      32,   0,    4,    0,   0,    0,    0,  0,  0,    0,    0,    0,    0,    0,    0,    0};
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
  bytes[4] = std::byte{2};
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
  std::byte good[kGreetingBytes];
  encode_greeting(sample_greeting(), good);
  uint32_t accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::byte bytes[kGreetingBytes];
    std::memcpy(bytes, good, sizeof bytes);
    const uint64_t changes = 1 + random() % 3;
    for (uint64_t i = 0; i < changes; ++i)
      bytes[random() % sizeof bytes] = static_cast<std::byte>(random());
    Greeting greeting;
    if (decode_greeting(bytes, &greeting) != Status::kOk) continue;
    ++accepted;
    std::byte again[kGreetingBytes];
    encode_greeting(greeting, again);
    ASSERT_EQ(std::memcmp(bytes, again, sizeof bytes), 0);
  }
  EXPECT_GT(accepted, 1000U);
}

}  // namespace
}  // namespace hydrant::ibv
