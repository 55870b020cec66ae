// The table of what peers have here, and the list of what went away: alone, without messages.
#include "firehose/remote/target/export_table.hpp"

#include "firehose/cache/coherence/invalidation_log.hpp"
#include "tests/support/sizes.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace hydrant {
namespace {

using testing::kPage;

class ExportTableTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(exports_.set_up(4, 3)); }

  uint64_t add(uint32_t peer, uintptr_t page, size_t pages = 1, bool checked = false) {
    return exports_.add(&slot_, {page * kPage, pages * kPage}, pages * kPage, peer, false, checked);
  }
  bool release(uint64_t id, uint32_t peer) { return exports_.release(id, peer, &ended_); }
  std::vector<uint64_t> recalls(uint32_t peer, size_t room = 16) {
    uint64_t ids[16];
    MemoryRange ranges[16];
    const size_t n = exports_.take_recalls(peer, ids, ranges, room);
    return {ids, ids + n};
  }

  RegionSlot slot_{};
  ExportTable exports_;
  ExportTable::Export ended_{};
};

TEST_F(ExportTableTest, IdIsValidOnceAndForItsPeerOnly) {
  const uint64_t id = add(1, 10);
  ASSERT_NE(id, 0u);
  EXPECT_EQ(exports_.counts().count(), 1u);
  EXPECT_EQ(exports_.counts().bytes(), kPage);
  EXPECT_FALSE(release(id, 2)) << "another peer's";
  EXPECT_TRUE(release(id, 1));
  EXPECT_EQ(ended_.slot, &slot_);
  EXPECT_EQ(ended_.charge, kPage);
  EXPECT_FALSE(release(id, 1)) << "twice";
  const uint64_t next = add(1, 10);
  EXPECT_NE(next, id);
  EXPECT_EQ(static_cast<uint32_t>(next), static_cast<uint32_t>(id)) << "the same place";
  EXPECT_FALSE(release(id, 1)) << "the place serves another one";
  EXPECT_TRUE(release(next, 1));
  EXPECT_EQ(exports_.counts().count(), 0u);
  EXPECT_EQ(exports_.counts().bytes(), 0u);
}

TEST_F(ExportTableTest, WithheldExportIsReleasedByTheTargetOnly) {
  const uint64_t id = add(1, 10);
  exports_.withhold_until_reply(id);
  EXPECT_FALSE(release(id, 1)) << "a guess";
  EXPECT_FALSE(exports_.publish(id, &ended_));
  EXPECT_TRUE(release(id, 1));
  const uint64_t next = add(1, 10);
  exports_.withhold_until_reply(next);
  EXPECT_TRUE(exports_.drop(next, 1, &ended_));
  const uint64_t last = add(1, 10);
  const uint64_t told = add(1, 20);
  exports_.withhold_until_reply(last);
  uint32_t from = 0;
  EXPECT_TRUE(exports_.release_any(1, &from, &ended_));
  EXPECT_EQ(ended_.range.addr, 20 * kPage);
  EXPECT_FALSE(exports_.release_any(1, &from, &ended_));
  EXPECT_FALSE(release(told, 1));
  EXPECT_EQ(exports_.counts().count(), 1u);
  EXPECT_TRUE(exports_.publish(last, &ended_)) << "its peer is lost";
  EXPECT_EQ(ended_.range.addr, 10 * kPage);
  EXPECT_EQ(exports_.counts().count(), 0u);
}

TEST_F(ExportTableTest, UnknownIdsReleaseNothing) {
  const uint64_t id = add(1, 10);
  for (const uint64_t other : {uint64_t{0}, uint64_t{1} << 32, id + 1, id + (uint64_t{1} << 32),
                               UINT64_MAX, id | 0xffff0000u}) {
    EXPECT_FALSE(release(other, 1)) << other;
  }
  EXPECT_EQ(exports_.counts().count(), 1u);
}

TEST_F(ExportTableTest, FullTableRejectsExports) {
  uint64_t ids[4];
  for (uint64_t& id : ids) EXPECT_NE(id = add(1, 10), 0u);
  EXPECT_EQ(add(1, 10), 0u);
  EXPECT_TRUE(release(ids[2], 1));
  EXPECT_NE(add(2, 10), 0u);
  EXPECT_EQ(add(1, 10), 0u);
}

TEST_F(ExportTableTest, InvalidatedExportIsRecalledOnce) {
  const uint64_t a = add(1, 10, 2), b = add(2, 11), c = add(1, 20);
  EXPECT_FALSE(exports_.invalidate(MemoryRange{12 * kPage, kPage})) << "beside them";
  EXPECT_TRUE(exports_.invalidate(MemoryRange{11 * kPage, 1}));
  EXPECT_FALSE(exports_.invalidate(MemoryRange{11 * kPage, 1})) << "they are zombies already";
  EXPECT_EQ(exports_.counts().zombies(), 2u);
  EXPECT_EQ(exports_.counts().zombie_bytes(), 3 * kPage);
  EXPECT_TRUE(exports_.has_recalls(1));
  EXPECT_EQ(recalls(1), std::vector<uint64_t>{a});
  EXPECT_EQ(recalls(2), std::vector<uint64_t>{b});
  EXPECT_FALSE(exports_.has_recalls(1));
  EXPECT_TRUE(exports_.invalidate(c));
  EXPECT_FALSE(exports_.invalidate(c));
  EXPECT_EQ(recalls(1), std::vector<uint64_t>{c});
  for (const uint64_t id : {a, c}) EXPECT_TRUE(release(id, 1));
  EXPECT_TRUE(release(b, 2));
  EXPECT_EQ(exports_.counts().zombies(), 0u);
  EXPECT_EQ(exports_.counts().zombie_bytes(), 0u);
}

TEST_F(ExportTableTest, ReleasedZombieIsNotRecalled) {
  uint64_t ids[4];
  for (uint64_t& id : ids) id = add(1, 10);
  EXPECT_TRUE(exports_.invalidate(MemoryRange{10 * kPage, 1}));
  EXPECT_TRUE(release(ids[1], 1));  // in the middle of the list
  EXPECT_TRUE(release(ids[3], 1));  // its head
  EXPECT_EQ(recalls(1), (std::vector<uint64_t>{ids[2], ids[0]}));
  exports_.list_again(ids, 4);
  EXPECT_EQ(recalls(1, 1), std::vector<uint64_t>{ids[2]});
  EXPECT_EQ(recalls(1), std::vector<uint64_t>{ids[0]});
  const uint64_t anew = add(1, 30);
  EXPECT_EQ(exports_.counts().zombies(), 2u);
  EXPECT_TRUE(release(anew, 1));
  EXPECT_EQ(exports_.counts().zombies(), 2u) << "that one was none";
}

TEST_F(ExportTableTest, ExtraRangeIsCutAtOverlappingExports) {
  const auto beside = [&](uintptr_t page, uintptr_t first, size_t pages) {
    const MemoryRange cut =
        exports_.exclude_overlaps(1, {page * kPage, kPage}, {first * kPage, pages * kPage});
    return std::pair(cut.addr / kPage, cut.len / kPage);
  };
  const uint64_t below = add(1, 8, 4);  // 8 to 11
  const uint64_t above = add(1, 30, 20);
  add(2, 18, 5);  // another peer's
  EXPECT_EQ(beside(20, 10, 30), std::pair(uintptr_t{12}, size_t{18}));
  EXPECT_EQ(beside(20, 12, 18), std::pair(uintptr_t{12}, size_t{18})) << "they only touch";
  EXPECT_EQ(beside(20, 4, 60), std::pair(uintptr_t{4}, size_t{60})) << "both lie in it";
  EXPECT_EQ(beside(20, 4, 30), std::pair(uintptr_t{4}, size_t{26})) << "one lies in it";
  EXPECT_EQ(beside(10, 10, 10), std::pair(uintptr_t{10}, size_t{10})) << "it is what is needed";
  // The part that is cut off overlapped another export.
  const uint64_t across = add(1, 10, 4);  // 10 to 13
  EXPECT_EQ(beside(20, 9, 20), std::pair(uintptr_t{14}, size_t{15}));
  EXPECT_TRUE(release(across, 1));
  EXPECT_TRUE(release(below, 1));
  EXPECT_EQ(beside(20, 10, 30), std::pair(uintptr_t{10}, size_t{20}));
  EXPECT_TRUE(release(above, 1));
  EXPECT_EQ(beside(20, 10, 30), std::pair(uintptr_t{10}, size_t{30}));
}

TEST_F(ExportTableTest, AllExportsOfAPeerCanBeReleased) {
  (void)add(1, 10, 1, true);
  (void)add(2, 10, 1, true);
  (void)add(1, 11);
  EXPECT_EQ(exports_.counts().checked(), 2u);
  uint32_t from = 0;
  int n = 0;
  while (exports_.release_any(1, &from, &ended_)) ++n;
  EXPECT_EQ(n, 2);
  EXPECT_EQ(exports_.counts().count(), 1u);
  EXPECT_EQ(exports_.counts().checked(), 1u);
}

TEST(InvalidationLog, OverlapsAreFoundSinceAGivenCount) {
  InvalidationLog log;
  const uint64_t before = log.count();
  log.add({0x1000, 0x1000});
  log.add({0x8000, 0x1000});
  EXPECT_EQ(log.count(), before + 2);
  EXPECT_EQ(log.at(before), (MemoryRange{0x1000, 0x1000}));
  EXPECT_TRUE(log.overlaps({0x8fff, 1}, before, before + 2));
  EXPECT_FALSE(log.overlaps({0x8fff, 1}, before, before + 1)) << "not looked so far";
  EXPECT_FALSE(log.overlaps({0x2000, 0x1000}, before, before + 2));
}

TEST(InvalidationLog, OverwrittenEntryOverlapsEverything) {
  InvalidationLog log;
  for (uint64_t i = 0; i < InvalidationLog::kKept; ++i) log.add({0x1000, 0x1000});
  EXPECT_FALSE(log.overlaps({0x9000, 1}, 0, log.count()));
  log.add({0x1000, 0x1000});
  EXPECT_TRUE(log.overlaps({0x9000, 1}, 0, log.count())) << "the first is not known any more";
  EXPECT_EQ(log.at(0), (MemoryRange{0, SIZE_MAX}));
  EXPECT_FALSE(log.overlaps({0x9000, 1}, 1, log.count()));
}

// The length of every range follows from its address, so that a torn read is detected.
TEST(InvalidationLog, ReadersSeeWholeRangesOrEverything) {
  InvalidationLog log;
  std::thread writer([&log] {
    for (uintptr_t i = 1; i <= 200000; ++i) log.add({i * kPage, i});
  });
  uint64_t seen = 0, lost = 0;
  for (uint64_t from = 0; from < 200000;) {
    const uint64_t to = log.count();
    for (; from < to; ++from) {
      const MemoryRange range = log.at(from);
      if (range == MemoryRange{0, SIZE_MAX}) {
        ++lost;
        continue;
      }
      ASSERT_EQ(range.addr, (from + 1) * kPage);
      ASSERT_EQ(range.len, from + 1);
      ++seen;
    }
  }
  writer.join();
  EXPECT_EQ(seen + lost, 200000u);
}

}  // namespace
}  // namespace hydrant
