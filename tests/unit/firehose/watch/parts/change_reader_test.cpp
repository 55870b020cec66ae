// Readings of changes against sets of pages, also with the mutex of the ranges held, as in a signal handler
// that interrupted its holder.
#include "firehose/watch/change_reader.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/fake_userfault.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"
#include "tests/unit/firehose/watch/parts/reading_parts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <vector>

namespace hydrant::testing {
namespace {

using Kind = MemoryChange::Kind;

constexpr size_t kChangeable = 48;

// The calls of a client: which range, and whether it was unmapped.
struct ForgottenRange {
  MemoryRange range;
  bool is_unmapped;
};

class ChangeReaderTest : public ReadingParts {
 protected:
  void SetUp() override {
    fake_userfault() = {};
    hydrant_monitor_client_t client{};
    client.context = this;
    client.forget = [](void* self, uintptr_t addr, size_t len) {
      of(self).note({addr, len}, false);
    };
    const int number = clients->subscribe(client);
    ASSERT_TRUE(clients->set_unmapped(number, [](void* self, uintptr_t addr, size_t len) {
      of(self).note({addr, len}, true);
    }));
    ASSERT_TRUE(map_tables());
  }
  static ChangeReaderTest& of(void* self) { return *static_cast<ChangeReaderTest*>(self); }
  void note(MemoryRange range, bool is_unmapped) {
    EXPECT_FALSE(sequence.settle(0)) << "the reading is under way";
    forgotten.push_back({range, is_unmapped});
  }

  std::vector<ForgottenRange> forgotten;
};

TEST_F(ChangeReaderTest, TablesAndCachesAgreeWithPages) {
  std::array<bool, kChangeable> is_watched{};
  std::array<bool, kChangeable> is_removed{};
  bool is_outdated = false;
  std::deque<MemoryChange> late;
  const auto page_of = [](MemoryRange range) { return (range.addr - kPlace) / kPage; };
  const auto set = [&](std::array<bool, kChangeable>& in, MemoryRange range, bool to) {
    std::fill_n(&in[page_of(range)], range.len / kPage, to);
  };
  const auto enter = [&](const MemoryChange& change) {
    set(is_removed, change.range, change.kind == Kind::kRemoved);
    if (change.kind == Kind::kRemoved) return;
    set(is_watched, change.range, false);
    if (change.kind == Kind::kMoved) set(is_watched, change.to, false);
  };
  const auto enter_late = [&] {
    for (const MemoryChange& each : late) enter(each);
    late.clear();
  };
  Random random(test_seed());
  const auto any_pages = [&random] {
    const size_t page = random.below(kChangeable);
    return pages(page, 1 + random.below(std::min<size_t>(kChangeable - page, 4)));
  };
  for (int step = 0; step < 1500; ++step) {
    const bool is_held = random.below(16) == 0;
    std::optional<RangesLock> held;
    if (is_held) held.emplace(watched.mutex());
    std::vector<MemoryChange> changes;
    for (size_t n = 1 + random.below(3); n != 0; --n) {
      const auto kind = static_cast<Kind>(random.below(3));
      const MemoryRange range = any_pages();
      const size_t to = random.below(kChangeable - range.len / kPage + 1);
      changes.push_back({kind, range, pages(to, range.len / kPage)});
    }
    fake_userfault().pending = changes;
    forgotten.clear();
    change_reader.read();
    ASSERT_TRUE(sequence.settle(0));

    size_t notes = 0;
    if (!is_held) {
      enter_late();
      if (is_outdated) is_watched.fill(false);
      is_outdated = false;
    }
    for (const MemoryChange& each : changes) {
      if (is_held) {
        is_outdated = is_outdated || each.kind != Kind::kRemoved;
        late.push_back(each);
      } else {
        enter(each);
      }
      ASSERT_LT(notes, forgotten.size());
      ASSERT_EQ(forgotten[notes].range, each.range);
      ASSERT_EQ(forgotten[notes++].is_unmapped, each.kind != Kind::kRemoved);
      if (each.kind == Kind::kMoved) {
        ASSERT_EQ(forgotten.at(notes++).range, each.to);
      }
    }
    ASSERT_EQ(notes, forgotten.size());
    held.reset();
    ASSERT_EQ(deferred.any(), !late.empty());
    if (random.below(2) == 0 && !late.empty()) {
      ASSERT_TRUE(change_reader.enter_deferred(false));
      enter_late();
    }
    if (!late.empty()) continue;
    const MemoryRange looked_at = any_pages();
    const auto all = [&](const std::array<bool, kChangeable>& in) {
      const bool* first = &in[page_of(looked_at)];
      return std::count(first, first + looked_at.len / kPage, true);
    };
    ASSERT_EQ(removals.under_way(looked_at), all(is_removed) != 0) << step;
    const RangesLock lock(watched.mutex());
    watched.forget_after_loss(lock);
    if (is_outdated) is_watched.fill(false);
    is_outdated = false;
    ASSERT_EQ(watched.ranges(lock).overlaps(looked_at), all(is_watched) != 0) << step;
    const MemoryRange added = any_pages();
    watched.add(lock, added);
    set(is_watched, added, true);
  }
}

TEST_F(ChangeReaderTest, DeferredChangesWaitWhileTheMutexIsHeld) {
  const RangesLock lock(watched.mutex());
  fake_userfault().pending = {{Kind::kRemoved, pages(0, 1), {}}};
  change_reader.read();
  EXPECT_TRUE(deferred.any());
  EXPECT_FALSE(change_reader.enter_deferred(true));
  EXPECT_EQ(forgotten.size(), 1u) << "the caches have forgotten it all the same";
}

}  // namespace
}  // namespace hydrant::testing
