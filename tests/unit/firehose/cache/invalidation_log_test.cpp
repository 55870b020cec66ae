#include "firehose/cache/coherence/invalidation_log.hpp"

#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <algorithm>

namespace hydrant::testing {
namespace {

// The ring against a list of all ranges: a reader that comes too late takes all memory for released.
TEST(InvalidationLogModel, AgreesWithAListOfAllRanges) {
  constexpr MemoryRange kAll{0, SIZE_MAX};
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    InvalidationLog log;
    std::vector<MemoryRange> model;
    for (int step = 0; step < 700; ++step) {
      model.push_back(at(random.below(400), 1 + random.below(4)));
      log.add(model.back());
      const size_t count = model.size();
      ASSERT_EQ(log.count(), count);
      const size_t lost = count - std::min<size_t>(count, InvalidationLog::kKept);
      const auto expected_at = [&](size_t n) { return n < lost ? kAll : model[n]; };
      for (const size_t n :
           {size_t{0}, lost - std::min<size_t>(lost, 1), lost, count - 1, random.below(count)}) {
        if (n >= count) continue;
        ASSERT_EQ(log.at(n), expected_at(n)) << n << " of " << count;
      }
      // Readers that follow closely, and some that have missed ranges.
      size_t from = count - random.below(std::min<size_t>(count, 300) + 1);
      if (random.below(2) == 0) from = std::max(from, lost);
      size_t to = from + random.below(count - from + 1);
      if (random.below(4) == 0) {  // one that has missed none of the ranges that are kept
        from = lost;
        to = count;
      }
      const MemoryRange asked = at(random.below(400), 1 + random.below(2));
      bool overlaps = false;
      for (size_t n = from; n < to; ++n) overlaps = overlaps || expected_at(n).overlaps(asked);
      ASSERT_EQ(log.overlaps(asked, from, to), overlaps) << from << " to " << to << " of " << count;
    }
  }
}

}  // namespace
}  // namespace hydrant::testing
