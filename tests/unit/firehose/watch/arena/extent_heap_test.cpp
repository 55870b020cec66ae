// The built-in allocator, beyond the tests common to all allocators: misuse, and placement of blocks.
#include "firehose/watch/arena/extent_heap.hpp"

#include "tests/unit/firehose/watch/arena/kept.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

namespace hydrant::arena {
namespace {

class ExtentHeapTest : public ::testing::Test {
 protected:
  void* allocate(size_t bytes, size_t alignment = kMinAlignment) {
    return heap_.allocate(bytes, alignment);
  }
  static const AddressReservation& in(const void* p) { return *address_map().find(p); }
  void release(void* p) { heap_.release(p, in(p)); }

  PageStore& store_ =
      hydrant::testing::kept<PageStore>(PageStore::Kind::kPrivate, size_t{64} << 20);
  ExtentHeap& heap_ = hydrant::testing::kept<ExtentHeap>(store_);
};

TEST_F(ExtentHeapTest, SlabIsFilledBeforeTheNextIsMade) {
  std::set<uintptr_t> slabs;
  std::vector<void*> all;
  for (int i = 0; i < 1024; ++i) {
    all.push_back(allocate(16));
    slabs.insert(reinterpret_cast<uintptr_t>(all.back()) / (4 * kPageBytes));
  }
  EXPECT_EQ(slabs.size(), 1u);
  EXPECT_EQ(std::set<void*>(all.begin(), all.end()).size(), 1024u);
  all.push_back(allocate(16));
  for (void* p : all) release(p);
  EXPECT_EQ(heap_.in_use_bytes(), 0u);
}

TEST_F(ExtentHeapTest, LargeBlocksGrowInPlace) {
  void* p = allocate(100'000);
  EXPECT_TRUE(heap_.resize(p, in(p), 300'000));
  EXPECT_GE(heap_.usable_bytes(p, in(p)), 300'000u);
  EXPECT_TRUE(heap_.resize(p, in(p), 20'000));
  EXPECT_LT(heap_.usable_bytes(p, in(p)), 100'000u);
  void* next = allocate(20'000);
  EXPECT_FALSE(heap_.resize(p, in(p), 300'000));
  EXPECT_FALSE(heap_.resize(p, in(p), 100));
  release(next);
  release(p);
  EXPECT_EQ(heap_.in_use_bytes(), 0u);
}

TEST_F(ExtentHeapTest, FreedMemoryIsUsedAgain) {
  const size_t before = [&] {
    release(allocate(30 << 20));
    return store_.counts().reserved_bytes;
  }();
  for (int i = 0; i < 100; ++i) {
    void* a = allocate(10 << 20, kBlockBytes);
    void* b = allocate(20 << 20, kBlockBytes);
    release(a);
    release(b);
  }
  EXPECT_EQ(store_.counts().reserved_bytes, before);
}

using ExtentHeapDeathTest = ExtentHeapTest;

TEST_F(ExtentHeapDeathTest, MisuseEndsTheProgramWithAMessage) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto* small = static_cast<char*>(allocate(100));
  auto* large = static_cast<char*>(allocate(100'000));
  EXPECT_DEATH(release(small + 16), "libhydrant_alloc: not the start of an allocation: 0x");
  EXPECT_DEATH(release(large + 4096), "libhydrant_alloc: ");
  EXPECT_DEATH((release(small), release(small)), "libhydrant_alloc: .*freed already");
  EXPECT_DEATH((release(large), release(large)), "libhydrant_alloc: .*freed already");
  EXPECT_DEATH(store_.decommit({uintptr_t{1} << 30, kPageBytes}), "not this arena's");
}

}  // namespace
}  // namespace hydrant::arena
