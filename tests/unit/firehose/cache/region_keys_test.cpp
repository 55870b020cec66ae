// The keys of registrations: a place for each region, shown to clients only if registrations have keys.
#include "firehose/cache/region/region_keys.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace hydrant {
namespace {

constexpr uint32_t kRegions = 40;

TEST(RegionKeys, EachRegionHasBytesOfItsOwn) {
  for (size_t bytes = 1; bytes <= 70; ++bytes) {
    RegionKeys keys(bytes, 0);
    ASSERT_TRUE(keys.map(kRegions));
    for (RegionIndex r = 0; r < kRegions; ++r) std::memset(keys.of(r), static_cast<int>(r), bytes);
    for (RegionIndex r = 0; r < kRegions; ++r) {
      const std::vector<std::byte> expected(bytes, static_cast<std::byte>(r));
      EXPECT_EQ(std::memcmp(keys.shown(r), expected.data(), bytes), 0) << bytes;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(keys.of(r)) % (bytes >= 16 ? 16 : 8), 0u) << bytes;
    }
    EXPECT_GE(keys.stride(), bytes);
    EXPECT_LT(keys.stride(), bytes + 16);
  }
}

TEST(RegionKeys, NotesAreNotShown) {
  RegionKeys notes(0, 8);
  ASSERT_TRUE(notes.map(kRegions));
  EXPECT_NE(notes.of(1), nullptr);
  EXPECT_EQ(notes.shown(1), nullptr);
}

TEST(RegionKeys, NoneTakeNoMemory) {
  RegionKeys none(0, 0);
  ASSERT_TRUE(none.map(kRegions));
  EXPECT_EQ(none.stride(), 0u);
  EXPECT_EQ(none.of(1), nullptr);
  EXPECT_EQ(none.shown(1), nullptr);
}

}  // namespace
}  // namespace hydrant
