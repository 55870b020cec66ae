// The slots of spans against a list: the owner of parts, and when a freed slot serves again.
#include "firehose/cache/page_mode/span_table.hpp"

#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>

namespace hydrant::testing {
namespace {

struct Spans {
  explicit Spans(size_t count) : slots(new RegionSlot[count]()) {
    EXPECT_TRUE(table.map(slots.get(), count));
  }
  ~Spans() { table.free_all(); }
  const RegionSlot* take(size_t page, size_t parts) {
    SpanParts* const list = SpanParts::create(parts);
    for (size_t i = 0; i < parts; ++i) list->regions[i] = static_cast<RegionIndex>(page + i);
    const RegionSlot* const slot = table.take(at(page, parts), list);
    if (slot == nullptr) std::free(list);
    return slot;
  }
  std::unique_ptr<RegionSlot[]> slots;
  SpanTable table;
};

TEST(SpanTableModel, AgreesWithAList) {
  constexpr size_t kCount = SpanTable::kRetained + 200;
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    Random random(seed);
    Spans spans(kCount);
    std::map<const RegionSlot*, MemoryRange> live;
    std::deque<const RegionSlot*> freed;  // oldest first
    size_t used = 0;
    uint64_t parts = 0;
    for (int step = 0; step < 8000; ++step) {
      // Grows for a while, then shrinks.
      const bool grows = random.below(100) < ((step / 2000) % 2 == 0 ? 70u : 35u);
      if (grows) {
        const size_t page = random.below(1000);
        const size_t n = 1 + random.below(4);
        const RegionSlot* const slot = spans.take(page, n);
        const bool is_fresh = used < kCount && freed.size() <= SpanTable::kRetained;
        if (!is_fresh && freed.empty()) {
          ASSERT_EQ(slot, nullptr);
          continue;
        }
        ASSERT_EQ(slot, is_fresh ? spans.slots.get() + used : freed.front()) << "step " << step;
        if (is_fresh) {
          ++used;
        } else {
          freed.pop_front();
        }
        live[slot] = at(page, n);
        parts += n;
      } else if (!live.empty()) {
        auto it = live.begin();
        std::advance(it, static_cast<ptrdiff_t>(random.below(live.size())));
        const SpanParts* const found = spans.table.find(it->first);
        SpanParts* const mine = spans.table.free_entry(it->first);
        ASSERT_NE(mine, nullptr);
        EXPECT_EQ(mine, found);
        EXPECT_EQ(mine->count * kPage, it->second.len);
        EXPECT_EQ(kBase + mine->regions[0] * kPage, it->second.addr);
        EXPECT_EQ(it->first->addr.load(), kBlankAddr);
        EXPECT_EQ(spans.table.find(it->first), nullptr);
        EXPECT_EQ(spans.table.free_entry(it->first), nullptr) << "released twice";
        parts -= mine->count;
        std::free(mine);
        freed.push_back(it->first);
        live.erase(it);
      }
      ASSERT_EQ(spans.table.live(), live.size());
      ASSERT_EQ(spans.table.live_parts(), parts);
      ASSERT_EQ(spans.table.high(), used);
    }
    for (const auto& [slot, range] : live) {
      EXPECT_EQ(slot->addr.load(), range.addr);
      EXPECT_EQ(slot->len.load(), range.len);
    }
  }
}

TEST(SpanTable, LiveSpansAreTombstonesInTheChild) {
  Spans spans(8);
  const RegionSlot* const held = spans.take(0, 2);
  const RegionSlot* const released = spans.take(10, 3);
  std::free(spans.table.free_entry(released));
  SpanParts* const parents = const_cast<SpanParts*>(spans.table.find(held));
  spans.table.reset_in_child();
  std::free(parents);  // in a child they are left to this copy of the process
  EXPECT_TRUE(spans.table.is_tombstone(held));
  EXPECT_FALSE(spans.table.is_tombstone(released));
  EXPECT_EQ(spans.table.free_entry(held), nullptr);
  EXPECT_EQ(spans.table.live(), 0u);
  EXPECT_EQ(held->addr.load(), kBlankAddr);
  // All but the tombstone serve again.
  for (size_t i = 0; i < 7; ++i) EXPECT_NE(spans.take(20 * i, 1), held);
  EXPECT_EQ(spans.take(0, 1), nullptr);
}

}  // namespace
}  // namespace hydrant::testing
