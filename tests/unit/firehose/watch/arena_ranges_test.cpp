// The announced memory of allocators alone, against a list.
#include "firehose/watch/arena_ranges.hpp"

#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <random>
#include <vector>

namespace hydrant {
namespace {

using testing::kPage;

struct Known {
  MemoryRange range;
  bool kept;
};

TEST(ArenaRanges, AgreeWithAList) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto arenas = std::make_unique<ArenaRanges>();
    std::vector<Known> known;
    const auto some = [&](size_t most) {
      return MemoryRange{(1 + random() % 60) * kPage, (1 + random() % most) * kPage};
    };
    for (int step = 0; step < 1000; ++step) {
      const MemoryRange range = some(8);
      const auto found = std::find_if(known.begin(), known.end(),
                                      [&](const Known& each) { return each.range == range; });
      if (found == known.end() && random() % 2 == 0) {
        const bool kept = random() % 2 == 0;
        ASSERT_TRUE(arenas->add(range, kept));
        known.push_back({range, kept});
      } else if (found != known.end() || known.empty()) {
        arenas->remove(range);  // of a range that was not announced: no effect
        if (found != known.end()) known.erase(found);
      } else {
        const auto at = std::next(known.begin(), static_cast<ptrdiff_t>(random() % known.size()));
        arenas->remove(at->range);
        known.erase(at);
      }
      const MemoryRange asked = some(3);
      for (const bool only_kept : {false, true}) {
        const bool expected = std::any_of(known.begin(), known.end(), [&](const Known& each) {
          return each.range.covers(asked) && (each.kept || !only_kept);
        });
        ASSERT_EQ(arenas->cover(asked, only_kept), expected) << step;
      }
    }
  }
}

TEST(ArenaRanges, RefuseWhatIsInvalidOrTooMuch) {
  const auto arenas = std::make_unique<ArenaRanges>();
  EXPECT_FALSE(arenas->add({kPage, 0}, false));
  EXPECT_FALSE(arenas->add({UINTPTR_MAX, 2}, false));
  size_t added = 0;
  while (arenas->add({(1 + 2 * added) * kPage, kPage}, false)) ++added;
  EXPECT_EQ(added, 4096u);
  arenas->remove({(1 + 2 * 77) * kPage, kPage});
  EXPECT_TRUE(arenas->add({(2 * added + 1) * kPage, kPage}, false));
}

}  // namespace
}  // namespace hydrant
