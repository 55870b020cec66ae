// The end of watching against sets of pages: what is registered, pinned and removed decides what stays.
#include "firehose/watch/unwatcher.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/fake_hooks.hpp"
#include "tests/unit/firehose/watch/parts/fake_mappings.hpp"
#include "tests/unit/firehose/watch/parts/fake_userfault.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"
#include "tests/unit/firehose/watch/parts/reading_parts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace hydrant::testing {
namespace {

constexpr size_t kUnwatchable = 40;
constexpr size_t kMappingPages = 4;  // then a page without a mapping
using PageSet = std::array<bool, kUnwatchable>;

bool any_of(const PageSet& in, size_t page, size_t n) {
  return std::any_of(&in[page], &in[page] + n, [](bool each) { return each; });
}

class UnwatcherTest : public UnwatchingParts {
 protected:
  void SetUp() override {
    fake_userfault() = {};
    fake_mappings() = {};
    for (size_t page = 0; page < kUnwatchable; page += kMappingPages + 1)
      fake_mappings().all.push_back({pages(page, kMappingPages), true, false});
    fake_userfault().unwatched = [this] {
      EXPECT_TRUE(unwatcher.is_at_work());
      EXPECT_FALSE(change_reader.mutex().try_lock()) << "the reader reads nothing meanwhile";
    };
    hydrant_monitor_client_t client{};
    client.context = this;
    client.forget = [](void* self, uintptr_t, size_t) { ++of(self).forgotten; };
    client.pinned = [](void* self, uintptr_t addr, size_t len) {
      return any_of(of(self).is_pinned, (addr - kPlace) / kPage, len / kPage) ? 1 : 0;
    };
    ASSERT_EQ(clients->subscribe(client), 0);
    ASSERT_TRUE(map_tables());
    ASSERT_TRUE(state.start_once(false, [](const char**) { return 0; }));
  }
  void TearDown() override {
    fake_mappings() = {};
    fake_userfault() = {};
  }
  static UnwatcherTest& of(void* self) { return *static_cast<UnwatcherTest*>(self); }
  void remove(MemoryRange range) {
    const RangesLock lock(watched.mutex());
    removals.add(lock, range, RemovedRanges::kCallerUnknown);
  }

  PageSet is_pinned{};
  int forgotten = 0;
};

TEST_F(UnwatcherTest, RandomRequestsAgreeWithPages) {
  PageSet is_watched{};
  PageSet is_removed{};
  // Ends watching between two pages: each run of watched pages without a removal, if none of it is pinned.
  const auto unwatch = [&](size_t from, size_t end) {
    for (size_t page = from; page < end;) {
      size_t n = 0;
      while (page + n < end && is_watched[page + n] && !is_removed[page + n]) ++n;
      if (n != 0 && !any_of(is_pinned, page, n)) std::fill_n(&is_watched[page], n, false);
      page += n + 1;
    }
  };
  Random random(test_seed());
  for (int step = 0; step < 3000; ++step) {
    const size_t page = random.below(kUnwatchable);
    const size_t n = 1 + random.below(std::min<size_t>(kUnwatchable - page, 8));
    const bool is_mapped = page % (kMappingPages + 1) != kMappingPages;
    switch (random.below(8)) {
      case 0:
      case 1:
      case 2:
        ASSERT_EQ(mappings.watch(pages(page, 1)), is_mapped);
        if (is_mapped && !is_watched[page])
          std::fill_n(&is_watched[page - page % (kMappingPages + 1)], kMappingPages, true);
        break;
      case 3: is_pinned[page] = is_mapped && !is_pinned[page]; break;
      case 4: {
        if (random.below(4) == 0) remove(pages(page, 1));
        const RangesLock lock(watched.mutex());
        is_removed[page] = removals.first_in(lock, pages(page, 1)).len != 0;
        if (random.below(2) == 0) break;
        removals.replace(lock, pages(page, 1));
        is_removed[page] = false;
        break;
      }
      case 5:
        random.below(2) == 0 ? unwatcher.unwatch_unused() : unwatcher.unwatch_idle();
        unwatch(0, kUnwatchable);
        break;
      default: {
        forgotten = 0;
        const bool succeeds = unwatcher.unwatch_range(pages(page, n), 0);
        ASSERT_NE(forgotten, 0);
        if (!any_of(is_watched, page, n)) {
          for (size_t i = page; i < page + n; ++i)
            is_watched[i] = i % (kMappingPages + 1) != kMappingPages;
        }
        const bool any_pinned = any_of(is_pinned, page, n);
        if (!any_pinned) unwatch(page, page + n);
        ASSERT_EQ(succeeds, !any_pinned && !any_of(is_watched, page, n)) << step;
      }
    }
    ASSERT_FALSE(unwatcher.is_at_work());
    const RangesLock lock(watched.mutex());
    for (size_t i = 0; i < kUnwatchable; ++i) {
      ASSERT_EQ(watched.ranges(lock).covers(pages(i, 1)), is_watched[i]) << step << ", " << i;
      ASSERT_EQ(fake_userfault().is_registered(pages(i, 1)), is_watched[i]) << step << ", " << i;
    }
  }
}

TEST_F(UnwatcherTest, NothingIsUnwatchedWhileItWouldBeWrong) {
  ASSERT_TRUE(mappings.watch(pages(0, 1)));
  const auto still_watched = [&] { return fake_userfault().is_registered(pages(0, 4)); };
  {
    const MutexLock lock(mappings.mutex());  // as in a handler that interrupted a miss
    EXPECT_FALSE(unwatcher.unwatch_range(pages(0, 4), 0));
    EXPECT_TRUE(still_watched());
  }
  FakeHooks fake;
  calls.set_hooks(&fake.hooks);
  unwatcher.unwatch_idle();
  EXPECT_TRUE(still_watched()) << "complete hooks make room on demand";
  deferred.push({MemoryChange::Kind::kRemoved, pages(20, 1), {}}, 1);
  EXPECT_FALSE(unwatcher.unwatch_range(pages(0, 4), 0));
  EXPECT_TRUE(still_watched()) << "the reader is late";
  deferred.clear();
  fake_userfault().is_usable = false;
  unwatcher.unwatch_unused();
  EXPECT_TRUE(still_watched());
  fake_userfault().is_usable = true;
  state.end(userfault, "closed");
  EXPECT_FALSE(unwatcher.unwatch_range(pages(0, 4), 0));
  unwatcher.unwatch_unused();
  EXPECT_TRUE(still_watched());
}

// A removal at the end of the request, in a watched range that goes on behind it.
TEST_F(UnwatcherTest, MemoryOutsideOfTheRequestStaysWatched) {
  ASSERT_TRUE(mappings.watch(pages(0, 1)));
  ASSERT_TRUE(mappings.watch(pages(5, 1)));
  remove(pages(6, 1));
  EXPECT_FALSE(unwatcher.unwatch_range(pages(6, 1), 0));
  EXPECT_TRUE(fake_userfault().is_registered(pages(0, 4)));
  EXPECT_TRUE(fake_userfault().is_registered(pages(5, 4)));
  EXPECT_FALSE(unwatcher.unwatch_range(pages(5, 2), 0));
  EXPECT_TRUE(fake_userfault().is_registered(pages(0, 4)));
  EXPECT_FALSE(fake_userfault().is_registered(pages(5, 1)));
  EXPECT_TRUE(fake_userfault().is_registered(pages(6, 3)));
}

// The kernel may refuse the end of a registration; what it did until then is undone.
TEST_F(UnwatcherTest, ARefusedRangeStaysWatched) {
  ASSERT_TRUE(mappings.watch(pages(0, 1)));
  fake_userfault().refused.insert(pages(2, 1).addr);
  const MemoryRange all = pages(0, kMappingPages);
  fake_userfault().unwatched = [] { FAIL(); };
  unwatcher.unwatch_unused();
  EXPECT_TRUE(fake_userfault().is_registered(all));
}

}  // namespace
}  // namespace hydrant::testing
