#include "firehose/cache/plan/refusal_list.hpp"

#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <algorithm>
#include <deque>

namespace hydrant {
namespace {

using testing::at;
using testing::Random;

constexpr uint64_t kNow = 5'000'000'000;

TEST(RefusalList, RefusesWhatContainsARefusedRangeWithAllItsRights) {
  RefusalList list;
  list.add(at(4, 2), Access::kLocalWrite, kNow);
  EXPECT_TRUE(list.refuses(at(4, 2), Access::kLocalWrite, kNow));
  EXPECT_TRUE(list.refuses(at(3, 4), Access::kLocalWrite | Access::kRemoteRead, kNow));
  EXPECT_FALSE(list.refuses(at(4), Access::kLocalWrite, kNow)) << "a part may be granted";
  EXPECT_FALSE(list.refuses(at(4, 2), Access::kLocalRead, kNow)) << "fewer rights may be granted";
  EXPECT_TRUE(list.overlaps(at(5, 8), kNow));
}

TEST(RefusalList, EntriesLapse) {
  RefusalList list;
  list.add(at(4), Access::kLocalWrite, kNow);
  EXPECT_TRUE(list.refuses(at(4), Access::kLocalWrite, kNow + RefusalList::kLifeNs - 1));
  EXPECT_FALSE(list.refuses(at(4), Access::kLocalWrite, kNow + RefusalList::kLifeNs));
  EXPECT_FALSE(list.overlaps(at(4), kNow + RefusalList::kLifeNs));
}

TEST(RefusalList, ForgetsNewMemoryAndTheOldestEntry) {
  RefusalList list;
  for (size_t i = 0; i <= RefusalList::kMax; ++i) list.add(at(2 * i), Access::kLocalWrite, kNow);
  EXPECT_FALSE(list.refuses(at(0), Access::kLocalWrite, kNow));
  EXPECT_TRUE(list.refuses(at(2), Access::kLocalWrite, kNow));
  list.forget(at(1, 3));
  EXPECT_FALSE(list.refuses(at(2), Access::kLocalWrite, kNow));
  EXPECT_TRUE(list.refuses(at(4), Access::kLocalWrite, kNow));
}

TEST(RefusalList, OldestEntryMakesRoomAfterOthersWereForgotten) {
  RefusalList list;
  const auto add = [&](size_t i) { list.add(at(2 * i), Access::kLocalWrite, kNow); };
  for (size_t i = 0; i <= RefusalList::kMax; ++i) add(i);
  list.forget(at(1));  // of no entry
  add(RefusalList::kMax + 1);
  EXPECT_TRUE(list.refuses(at(2 * RefusalList::kMax), Access::kLocalWrite, kNow));
  EXPECT_FALSE(list.refuses(at(2), Access::kLocalWrite, kNow));
  list.forget(at(8));
  add(RefusalList::kMax + 2);
  add(RefusalList::kMax + 3);
  EXPECT_TRUE(list.refuses(at(2 * RefusalList::kMax), Access::kLocalWrite, kNow));
  EXPECT_FALSE(list.refuses(at(4), Access::kLocalWrite, kNow));
  EXPECT_TRUE(list.refuses(at(6), Access::kLocalWrite, kNow));
}

struct NotedRefusal {
  MemoryRange range;
  Access access;
  uint64_t until_ns;
};

// Random refusals and releases while time passes, against a list from which the oldest is dropped.
TEST(RefusalListModel, AgreesWithAListThatDropsItsOldestEntry) {
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    RefusalList list;
    std::deque<NotedRefusal> model;
    uint64_t now_ns = kNow;
    for (int step = 0; step < 600; ++step) {
      const MemoryRange range = at(random.below(300), 1 + random.below(3));
      const auto access = static_cast<Access>(random.below(16));
      if (random.below(16) != 0) {
        list.add(range, access, now_ns);
        model.push_back({range, access, now_ns + RefusalList::kLifeNs});
        if (model.size() > RefusalList::kMax) model.pop_front();
      } else if (random.below(16) != 0) {
        list.forget(range);
        std::erase_if(model, [&](const NotedRefusal& e) { return e.range.overlaps(range); });
      } else {
        list.clear();
        model.clear();
      }
      now_ns += random.below(2 * RefusalList::kLifeNs / RefusalList::kMax);
      ASSERT_EQ(list.empty(), model.empty()) << "step " << step;
      // Requests of random ranges, and of exactly what was refused, so that each entry counts.
      for (size_t i = 0; i < 4; ++i) {
        MemoryRange asked = at(random.below(300), 1 + random.below(4));
        auto need = static_cast<Access>(random.below(16));
        if (i < 3 && !model.empty()) {
          const size_t place = i == 0 ? 0 : random.below(model.size());
          asked = model[place].range;
          need = model[place].access;
        }
        const auto refuses = [&](const NotedRefusal& e) {
          return asked.covers(e.range) && includes(need, e.access) && now_ns < e.until_ns;
        };
        const auto overlaps = [&](const NotedRefusal& e) {
          return e.range.overlaps(asked) && now_ns < e.until_ns;
        };
        ASSERT_EQ(list.refuses(asked, need, now_ns),
                  std::any_of(model.begin(), model.end(), refuses))
            << "step " << step;
        ASSERT_EQ(list.overlaps(asked, now_ns), std::any_of(model.begin(), model.end(), overlaps))
            << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace hydrant
