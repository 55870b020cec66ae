#include "firehose/registrars/ibv/ibv_key_blob.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace hydrant {
namespace {

constexpr MemoryRange kKeyRange{0x10000, 0x4000};

TEST(IbvKeyBlob, LayoutIsFixed) {
  std::byte blob[kIbvBlobBytes];
  encode_ibv_key({{0x123456789000, 0x2000}, 0xaabbccdd}, blob);
  const unsigned char expected[kIbvBlobBytes] = {
      'H',  'Y',  'I', 'B', 1, 0, 0, 0, 0x00, 0x90, 0x78, 0x56, 0x34, 0x12, 0, 0,
      0x00, 0x20, 0,   0,   0, 0, 0, 0, 0xdd, 0xcc, 0xbb, 0xaa, 0,    0,    0, 0};
  EXPECT_EQ(std::memcmp(blob, expected, sizeof blob), 0);
  IbvKeyBlob decoded;
  ASSERT_EQ(decode_ibv_key(blob, sizeof blob, &decoded), Status::kOk);
  EXPECT_EQ(decoded.range, (MemoryRange{0x123456789000, 0x2000}));
  EXPECT_EQ(decoded.rkey, 0xaabbccddU);
}

TEST(IbvKeyBlob, WrongLengthIsRefused) {
  std::byte blob[kIbvBlobBytes + 1] = {};
  encode_ibv_key({kKeyRange, 1}, blob);
  IbvKeyBlob decoded;
  for (const size_t len : {size_t{0}, size_t{31}, size_t{33}, SIZE_MAX}) {
    EXPECT_EQ(decode_ibv_key(blob, len, &decoded), Status::kBadArg) << len;
  }
  EXPECT_EQ(decode_ibv_key(nullptr, kIbvBlobBytes, &decoded), Status::kBadArg);
}

TEST(IbvKeyBlob, RangesThatCannotBeAreRefused) {
  const MemoryRange bad[] = {{0x1000, 0},
                             {0x1001, 0x1000},
                             {0x1000, 0x1001},
                             {UINTPTR_MAX & ~uintptr_t{4095}, 0x2000},
                             {0x1000, SIZE_MAX & ~size_t{4095}}};
  for (const MemoryRange range : bad) {
    std::byte blob[kIbvBlobBytes];
    encode_ibv_key({range, 1}, blob);
    IbvKeyBlob decoded;
    EXPECT_EQ(decode_ibv_key(blob, sizeof blob, &decoded), Status::kBadArg) << range.addr;
    EXPECT_EQ(decoded.rkey, 0U);
  }
}

// Bytes that carry an address, a length or a key may change and still make sense; no other may.
TEST(IbvKeyBlob, EveryFlippedBitOfTheFrameIsDetected) {
  std::byte blob[kIbvBlobBytes];
  encode_ibv_key({kKeyRange, 1}, blob);
  for (size_t i = 0; i < kIbvBlobBytes; ++i) {
    if (i >= 8 && i < 28) continue;
    for (unsigned bit = 0; bit < 8; ++bit) {
      blob[i] ^= static_cast<std::byte>(1U << bit);
      IbvKeyBlob decoded;
      EXPECT_EQ(decode_ibv_key(blob, sizeof blob, &decoded), Status::kBadArg) << i << " " << bit;
      blob[i] ^= static_cast<std::byte>(1U << bit);
    }
  }
}

}  // namespace
}  // namespace hydrant
