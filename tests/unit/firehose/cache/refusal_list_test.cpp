#include "firehose/cache/plan/refusal_list.hpp"

#include "tests/unit/firehose/cache/parts_fixture.hpp"

namespace hydrant {
namespace {

using testing::at;

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

}  // namespace
}  // namespace hydrant
