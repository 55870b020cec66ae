// The marks of pinned memory against a set of blocks.
#include "firehose/watch/pinned_blocks.hpp"

#include <hydrant/monitor.h>

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace hydrant::testing {
namespace {

constexpr size_t kBlock = size_t{1} << HYDRANT_MONITOR_BLOCK_SHIFT;

bool is_marked(const PinnedBlocks& blocks, size_t block) {
  return (blocks.words()[block / 64] >> block % 64 & 1) != 0;
}

TEST(PinnedBlocks, KeepNoMarkBeforeTheyAreMapped) {
  PinnedBlocks blocks;
  blocks.note({kPlace, kPage});
  EXPECT_FALSE(blocks.is_mapped());
  EXPECT_EQ(blocks.words(), nullptr);
  ASSERT_TRUE(blocks.map());
  EXPECT_TRUE(blocks.is_mapped());
  EXPECT_FALSE(is_marked(blocks, kPlace / kBlock));
}

TEST(PinnedBlocks, AreMarkedForEachByteOfARange) {
  PinnedBlocks blocks;
  ASSERT_TRUE(blocks.map());
  constexpr size_t kBlocks = 300;
  const size_t first = kPlace / kBlock;
  std::set<size_t> model;
  Random random(test_seed());
  for (int step = 0; step < 400; ++step) {
    const uintptr_t addr = kPlace + random.below(kBlocks * kBlock);
    const size_t most = kPlace + kBlocks * kBlock - addr;
    const size_t len = 1 + random.below(std::min(most, (1 + random.below(3)) * kBlock));
    if (random.below(8) == 0) {
      blocks.note({addr, len});
      for (uintptr_t at = addr; at < addr + len; at += kPage) model.insert(at / kBlock);
      model.insert((addr + len - 1) / kBlock);
    }
    for (size_t block = first - 1; block <= first + kBlocks; ++block)
      ASSERT_EQ(is_marked(blocks, block), model.count(block) != 0) << step << ", " << block;
  }
}

TEST(PinnedBlocks, EndAtTheLastUserAddress) {
  PinnedBlocks blocks;
  ASSERT_TRUE(blocks.map());
  const uintptr_t end = uintptr_t{1} << 47;
  blocks.note({end - 1, 1 + 4 * kBlock});
  EXPECT_TRUE(is_marked(blocks, end / kBlock - 1));
}

}  // namespace
}  // namespace hydrant::testing
