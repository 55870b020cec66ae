// hydrant_coverage() reports on the memory that is mapped now, whatever was mapped before.
#include <hydrant/pin_cache.h>

#include "tests/support/mapped_memory.hpp"
#include "tests/unit/firehose/watched_pin_cache.hpp"

#include <gtest/gtest.h>

#include <sys/mman.h>

namespace hydrant::testing {
namespace {

class PinCacheCoverage : public WatchedPinCache {
 protected:
  // Queries as a client does: without waiting for reports of earlier releases.
  uint32_t coverage_at_once(size_t page) {
    uint32_t answer = ~0u;
    EXPECT_EQ(hydrant_coverage(domain_, arena_.page(page), kPage, &answer), GASNET_OK);
    return answer;
  }
};

TEST_F(PinCacheCoverage, FileMappedOverWatchedMemoryIsNotWatched) {
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

// Initialised variables of the program are mapped from its file, and neighbours of others that are not.
std::byte g_initialised[40 * kPage] = {std::byte{1}};
std::byte g_zeroed[40 * kPage];

TEST_F(PinCacheCoverage, VariablesOfTheProgramAreCached) {
  create(watching());
  for (std::byte* const variable : {g_initialised, g_zeroed}) {
    variable[17 * kPage] = std::byte{2};
    uint32_t answer = ~0u;
    ASSERT_EQ(hydrant_coverage(domain_, variable, sizeof g_zeroed, &answer), GASNET_OK);
    EXPECT_TRUE(answer == HYDRANT_COVERAGE_CHECKED || answer == HYDRANT_COVERAGE_WATCHED)
        << hydrant_coverage_name(answer);
  }
}

// Constants, the code, and what other files are mapped there or elsewhere are not.
TEST_F(PinCacheCoverage, OtherPartsOfTheProgramAreNot) {
  create(watching());
  static const std::byte constant[4 * kPage] = {std::byte{1}};
  uint32_t answer = ~0u;
  ASSERT_EQ(hydrant_coverage(domain_, constant, sizeof constant, &answer), GASNET_OK);
  EXPECT_EQ(answer, HYDRANT_COVERAGE_NONE);
  ASSERT_EQ(hydrant_coverage(domain_, reinterpret_cast<const void*>(&hydrant_coverage), 1, &answer),
            GASNET_OK);
  EXPECT_EQ(answer, HYDRANT_COVERAGE_NONE);
  // Shared memory in the place of a variable is seen by others.
  alignas(kPage) static std::byte place[3 * kPage] = {std::byte{1}};
  const MemoryFile file(1);
  ASSERT_EQ(
      mmap(place + kPage, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.fd(), 0),
      place + kPage);
  ASSERT_EQ(hydrant_coverage(domain_, place, sizeof place, &answer), GASNET_OK);
  EXPECT_EQ(answer, HYDRANT_COVERAGE_NONE);
}

}  // namespace
}  // namespace hydrant::testing
