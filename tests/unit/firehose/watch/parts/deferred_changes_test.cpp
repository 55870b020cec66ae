// Changes that wait to be entered: none is lost but those of which memory stays removed.
#include "firehose/watch/deferred_changes.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace hydrant::testing {
namespace {

using Kind = MemoryChange::Kind;

struct DeferredChange {
  MemoryChange change;
  uint64_t removal;
};

TEST(DeferredChanges, AreTakenInOrderAndCoverAllRemovals) {
  DeferredChanges deferred;
  std::vector<DeferredChange> pushed;
  Random random(test_seed());
  for (int step = 0; step < 20000; ++step) {
    if (random.below(400) != 0) {
      const Kind kind = random.below(2) == 0 ? Kind::kRemoved : Kind::kUnmapped;
      const DeferredChange next{{kind, pages(random.below(5000), 1 + random.below(9)), {}},
                                static_cast<uint64_t>(step)};
      deferred.push(next.change, next.removal);
      pushed.push_back(next);
      ASSERT_TRUE(deferred.any());
      continue;
    }
    std::vector<DeferredChange> taken;
    deferred.take_all([&](const MemoryChange& change, uint64_t removal) {
      taken.push_back({change, removal});
    });
    ASSERT_FALSE(deferred.any());
    ASSERT_TRUE(deferred.wait_until_taken());
    ASSERT_EQ(taken.size(), std::min(pushed.size(), DeferredChanges::kMax));
    // The last place of a full list has what comes after.
    const size_t exact = pushed.size() > DeferredChanges::kMax ? taken.size() - 1 : taken.size();
    for (size_t i = 0; i < exact; ++i) {
      ASSERT_EQ(taken[i].change.kind, pushed[i].change.kind);
      ASSERT_EQ(taken[i].change.range, pushed[i].change.range);
      ASSERT_EQ(taken[i].removal, pushed[i].removal);
    }
    for (size_t i = exact; i < pushed.size(); ++i) {
      if (pushed[i].change.kind != Kind::kRemoved) continue;
      ASSERT_EQ(taken.back().change.kind, Kind::kRemoved);
      ASSERT_TRUE(taken.back().change.range.covers(pushed[i].change.range));
      ASSERT_GE(taken.back().removal, pushed[i].removal);
    }
    pushed.clear();
  }
}

TEST(DeferredChanges, AWaitThatNoReaderEndsIsBounded) {
  DeferredChanges deferred;
  deferred.push({MemoryChange::Kind::kRemoved, pages(0, 1), {}}, 1);
  EXPECT_FALSE(deferred.wait_until_taken());
  deferred.clear();
  EXPECT_TRUE(deferred.wait_until_taken());
}

}  // namespace
}  // namespace hydrant::testing
