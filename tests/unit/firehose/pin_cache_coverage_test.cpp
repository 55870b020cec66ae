// hydrant_coverage() tells of the memory that is there now, whatever was there before.
#include <hydrant/pin_cache.h>

#include "tests/support/mapped_memory.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

namespace hydrant::testing {
namespace {

class PinCacheCoverage : public WatchedPinCache {
 protected:
  // As a client asks: without waiting for what was released before to be told.
  uint32_t coverage_at_once(size_t page) {
    uint32_t answer = ~0u;
    EXPECT_EQ(hydrant_coverage(domain_, arena_.page(page), kPage, &answer), GASNET_OK);
    return answer;
  }
};

TEST_F(PinCacheCoverage, FileInThePlaceOfWatchedMemoryIsNotWatched) {
  create(watching());
  const MemoryFile file(1);
  for (int i = 0; i < 500; ++i) {
    ASSERT_NE(coverage_at_once(8), HYDRANT_COVERAGE_NONE);
    unmap(8);
    map_file(8, file);
    ASSERT_EQ(coverage_at_once(8), HYDRANT_COVERAGE_NONE) << "time " << i;
    unmap(8);
    map(8);
  }
}

}  // namespace
}  // namespace hydrant::testing
