// The table by which a thread finds regions: its two places for an address.
#include "firehose/hit/region_slot.hpp"
#include "firehose/hit/thread_state.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace hydrant {
namespace {

constexpr uint32_t kBlockShift = 16;
constexpr uintptr_t kBlock = uintptr_t{1} << kBlockShift;
constexpr size_t kMaxBytes = size_t{64} << 10;
constexpr uint32_t kBlocks = 20000;

class ThreadTable : public ::testing::Test {
 protected:
  void SetUp() override {
    null_slot_.addr = kBlankAddr;
    state_.thread = &thread_;
  }
  // An open region of `bytes` bytes.
  static void open(RegionSlot& slot, uintptr_t addr, size_t bytes) {
    slot.addr = addr;
    slot.gate = addr + bytes;
  }
  const RegionSlot* first_choice(uintptr_t addr) const {
    return state_.table[(addr >> state_.shift) & (state_.table.size() - 1)];
  }
  bool finds(uintptr_t addr, const RegionSlot& slot) const {
    return first_choice(addr) == &slot || state_.second_choice(addr) == &slot;
  }

  RegionSlot null_slot_{};
  Thread thread_;
  ThreadDomain state_;
};

// Regression: in 1 of so many blocks as the table has entries, two regions had one entry and evicted each
// other.
TEST_F(ThreadTable, TwoRegionsOfOneBlockAreBothFoundWhereverItIs) {
  for (uint32_t i = 1; i <= kBlocks; ++i) {
    ASSERT_TRUE(state_.set_up(&null_slot_, 8, kBlockShift));
    const uintptr_t block = i * kBlock;
    std::array<RegionSlot, 2> slots{};
    open(slots[0], block, 4096);
    open(slots[1], block + kBlock / 2, 4096);
    for (const RegionSlot& slot : slots) state_.remember(slot.addr, &slot, &null_slot_, kMaxBytes);
    for (const RegionSlot& slot : slots) ASSERT_TRUE(finds(slot.addr, slot)) << "block " << i;
  }
}

// Addresses that have one first place, as powers of two between them give, have many second ones.
TEST_F(ThreadTable, CollidingKeysAreSpreadOverTheTable) {
  ASSERT_TRUE(state_.set_up(&null_slot_, 8, kBlockShift));
  const uintptr_t stride = state_.table.size() * kBlock;
  std::array<RegionSlot, 64> slots{};
  for (size_t i = 0; i < slots.size(); ++i) {
    open(slots[i], (i + 1) * stride, kBlock);
    state_.remember(slots[i].addr, &slots[i], &null_slot_, 0);
  }
  size_t found = 0;
  for (const RegionSlot& slot : slots) found += finds(slot.addr, slot) ? 1 : 0;
  EXPECT_GE(found, slots.size() * 9 / 10);
}

}  // namespace
}  // namespace hydrant
