// The blob of a key of shared memory: its layout, and what is not one.
#include "rdma/shm/memory/shm_key.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace hydrant::shm {
namespace {

ShmBlob some() {
  ShmBlob key;
  key.process = 0x1234;
  key.descriptor = 7;
  key.start_time = 0x1122334455667788;
  key.device = 0x15;
  key.inode = 0xabcdef;
  key.offset = 0x7000;
  key.range = {0x123456789000, 0x2000};
  key.access = Access::kRemoteRead | Access::kRemoteWrite;
  return key;
}

Status decode(const ShmBlob& key, ShmBlob* decoded) {
  std::byte blob[kShmBlobBytes];
  encode_shm_blob(key, blob);
  return decode_shm_blob(blob, sizeof blob, decoded);
}

TEST(ShmKey, LayoutIsFixed) {
  std::byte blob[kShmBlobBytes];
  encode_shm_blob(some(), blob);
  const unsigned char expected[kShmBlobBytes] = {
      'H', 'Y',  'S',  'M',  1,    0,    0,    0,    0x34, 0x12, 0,    0,    7,    0, 0,
      0,   0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x15, 0,    0,    0,    0, 0,
      0,   0,    0xef, 0xcd, 0xab, 0,    0,    0,    0,    0,    0x00, 0x70, 0,    0, 0,
      0,   0,    0,    0x00, 0x90, 0x78, 0x56, 0x34, 0x12, 0,    0,    0x00, 0x20, 0, 0,
      0,   0,    0,    0,    6,    0,    0,    0,    0,    0,    0,    0};
  EXPECT_EQ(std::memcmp(blob, expected, sizeof blob), 0);
  ShmBlob decoded;
  ASSERT_EQ(decode_shm_blob(blob, sizeof blob, &decoded), Status::kOk);
  std::byte again[kShmBlobBytes];
  encode_shm_blob(decoded, again);
  EXPECT_EQ(std::memcmp(blob, again, sizeof blob), 0);
}

TEST(ShmKey, WrongLengthIsRefused) {
  std::byte blob[kShmBlobBytes + 1] = {};
  encode_shm_blob(some(), blob);
  ShmBlob decoded;
  for (const size_t len : {size_t{0}, kShmBlobBytes - 1, kShmBlobBytes + 1, SIZE_MAX})
    EXPECT_EQ(decode_shm_blob(blob, len, &decoded), Status::kBadArg) << len;
  EXPECT_EQ(decode_shm_blob(nullptr, kShmBlobBytes, &decoded), Status::kBadArg);
}

TEST(ShmKey, InvalidInputIsRejected) {
  constexpr uint64_t kPages = ~uint64_t{4095};
  const auto expect_bad = [](const char* what, auto&& change) {
    ShmBlob key = some();
    change(key);
    ShmBlob decoded;
    EXPECT_EQ(decode(key, &decoded), Status::kBadArg) << what;
    EXPECT_EQ(decoded.inode, 0u) << what;
  };
  expect_bad("no process", [](ShmBlob& key) { key.process = 0; });
  expect_bad("a negative process", [](ShmBlob& key) { key.process = 0x80000000; });
  expect_bad("a negative descriptor", [](ShmBlob& key) { key.descriptor = UINT32_MAX; });
  expect_bad("no length", [](ShmBlob& key) { key.range.len = 0; });
  expect_bad("half a page", [](ShmBlob& key) { key.range.len = 0x800; });
  expect_bad("half a page on", [](ShmBlob& key) { key.range.addr += 0x800; });
  expect_bad("off a page", [](ShmBlob& key) { key.offset += 1; });
  expect_bad("wraps", [](ShmBlob& key) { key.range.len = kPages; });
  expect_bad("wraps in the file", [](ShmBlob& key) { key.offset = kPages; });
  expect_bad("beyond any file", [](ShmBlob& key) { key.offset = INT64_MAX & kPages; });
  expect_bad("unknown rights", [](ShmBlob& key) { key.access = static_cast<Access>(16); });
}

// Only the bytes that name the file and the offset may change and still decode.
TEST(ShmKey, EveryFlippedBitOfTheFrameIsDetected) {
  std::byte blob[kShmBlobBytes];
  encode_shm_blob(some(), blob);
  for (size_t i = 0; i < kShmBlobBytes; ++i) {
    if (i >= 8 && i < 68) continue;
    for (unsigned bit = 0; bit < 8; ++bit) {
      blob[i] ^= static_cast<std::byte>(1U << bit);
      ShmBlob decoded;
      EXPECT_EQ(decode_shm_blob(blob, sizeof blob, &decoded), Status::kBadArg) << i << " " << bit;
      blob[i] ^= static_cast<std::byte>(1U << bit);
    }
  }
}

TEST(ShmKey, RandomBytesAreReadOrRefused) {
  std::mt19937_64 random(7);
  int read = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::byte blob[kShmBlobBytes];
    encode_shm_blob(some(), blob);
    for (int flips = static_cast<int>(random() % 4); flips >= 0; --flips)
      blob[8 + random() % 60] = static_cast<std::byte>(random());
    ShmBlob decoded;
    if (decode_shm_blob(blob, sizeof blob, &decoded) != Status::kOk) continue;
    ++read;
    ASSERT_TRUE(decoded.range.valid());
    ASSERT_GT(decoded.range.end(), decoded.range.addr);
    ASSERT_LE(decoded.offset + decoded.range.len, uint64_t{INT64_MAX});
  }
  EXPECT_GT(read, 1000);
}

TEST(ShmKey, FindsCoveredRangesOnly) {
  ShmKey key;
  key.range = {0x10000, 0x2000};
  key.here = 0x50000;
  EXPECT_EQ(key.find(0x10000, 1), nullptr) << "no key at all";
  key.kind = ShmKey::kImported;
  EXPECT_EQ(key.find(0x10010, 0x1ff0), reinterpret_cast<std::byte*>(uintptr_t{0x50010}));
  EXPECT_EQ(key.find(0x10010, 0x1ff1), nullptr);
  EXPECT_EQ(key.find(0xffff, 2), nullptr);
  EXPECT_EQ(key.find(0x10000, 0), nullptr);
  EXPECT_EQ(key.find(0x11000, SIZE_MAX), nullptr);
}

}  // namespace
}  // namespace hydrant::shm
