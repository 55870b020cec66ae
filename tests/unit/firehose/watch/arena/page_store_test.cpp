#include "firehose/watch/arena/page_store.hpp"

#include "tests/unit/firehose/watch/arena/fake_monitor.hpp"
#include "tests/unit/firehose/watch/arena/kept.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant::arena {
namespace {

using hydrant::testing::FakeMonitor;

char* pointer(uintptr_t addr) { return reinterpret_cast<char*>(addr); }

class PageStoreTest : public ::testing::TestWithParam<PageStore::Kind> {
 protected:
  ~PageStoreTest() override { FakeMonitor::instance().unpin_all(); }

  // In use, and full of ones.
  uintptr_t grow_used(size_t bytes) {
    const uintptr_t addr = store_.grow(bytes, kPageBytes);
    EXPECT_NE(addr, 0u);
    store_.commit({addr, bytes});
    std::memset(pointer(addr), 1, bytes);
    return addr;
  }

  PageStore& store_ = hydrant::testing::kept<PageStore>(GetParam(), 4 * kBlockBytes);
  FakeMonitor& monitor_ = FakeMonitor::instance();
};

TEST_P(PageStoreTest, FreshPagesAreZeroAlignedAndApart) {
  uintptr_t end = 0;
  for (const size_t alignment : {kPageBytes, kBlockBytes, 64 * kBlockBytes}) {
    const uintptr_t addr = store_.grow(3 * kPageBytes, alignment);
    ASSERT_NE(addr, 0u);
    EXPECT_EQ(addr % alignment, 0u);
    EXPECT_TRUE(addr >= end || addr + 3 * kPageBytes <= end);
    end = addr + 3 * kPageBytes;
    for (size_t i = 0; i < 3 * kPageBytes; ++i) ASSERT_EQ(pointer(addr)[i], 0);
    const auto* const found = address_map().find(pointer(addr));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->store, &store_);
  }
}

TEST_P(PageStoreTest, MoreThanTheAddressSpaceIsRefused) {
  EXPECT_EQ(store_.grow(size_t{1} << 47, kPageBytes), 0u);
  EXPECT_EQ(store_.grow(kPageBytes, size_t{1} << 47), 0u);
  EXPECT_NE(store_.grow(kPageBytes, kPageBytes), 0u);
}

TEST_P(PageStoreTest, OnlyUnusedBlocksAreEmptied) {
  const uintptr_t addr = store_.grow(3 * kBlockBytes, kBlockBytes);
  store_.commit({addr, 3 * kBlockBytes});
  std::memset(pointer(addr), 1, 3 * kBlockBytes);
  store_.decommit({addr + kPageBytes, 2 * kBlockBytes});
  EXPECT_EQ(store_.trim(), kBlockBytes);
  EXPECT_EQ(*pointer(addr + kPageBytes), 1) << "its block has a page in use";
  EXPECT_EQ(*pointer(addr + kBlockBytes), 0);
  EXPECT_EQ(*pointer(addr + 2 * kBlockBytes), 1);
  store_.decommit({addr, kPageBytes});
  EXPECT_EQ(store_.trim(), kBlockBytes);
  EXPECT_EQ(*pointer(addr), 0);
  EXPECT_EQ(*pointer(addr + 2 * kBlockBytes + kPageBytes), 1);
}

TEST_P(PageStoreTest, KeepsSomeIdleMemoryAndThenGivesAllBack) {
  const uintptr_t addr = grow_used(16 * kBlockBytes);
  store_.decommit({addr, 4 * kBlockBytes});
  EXPECT_EQ(store_.counts().emptied_bytes, 0u);
  EXPECT_EQ(store_.counts().idle_bytes, 4 * kBlockBytes);
  store_.decommit({addr + 4 * kBlockBytes, 3 * kBlockBytes});
  EXPECT_EQ(store_.counts().emptied_bytes, 7 * kBlockBytes);
  EXPECT_EQ(store_.counts().idle_bytes, 0u);
}

TEST_P(PageStoreTest, EarlierMonitorGetsAnOrdinaryArena) {
  monitor_.appear();
  monitor_.clear_calls();
  static hydrant_monitor_t earlier;
  earlier = *FakeMonitor::table();
  earlier.size = offsetof(hydrant_monitor_t, add_kept_arena);
  earlier.add_kept_arena = nullptr;
  store_.use_monitor(&earlier);
  (void)grow_used(kBlockBytes);
  size_t arenas = 0;
  for (const auto& call : monitor_.calls()) {
    EXPECT_NE(call.kind, FakeMonitor::Kind::kAddKeptArena);
    arenas += call.kind == FakeMonitor::Kind::kAddArena ? 1 : 0;
  }
  EXPECT_EQ(arenas, 1u);
}

TEST_P(PageStoreTest, PinnedIdleMemoryIsNotQueriedAtEachCall) {
  monitor_.appear();
  store_.use_monitor(FakeMonitor::table());
  const uintptr_t addr = grow_used(32 * kBlockBytes);
  monitor_.pin(pointer(addr), 8 * kBlockBytes);
  store_.decommit({addr, 8 * kBlockBytes});
  EXPECT_EQ(store_.counts().idle_bytes, 8 * kBlockBytes);
  EXPECT_EQ(store_.counts().refusals, 8u);
  store_.decommit({addr + 8 * kBlockBytes, 3 * kBlockBytes});
  EXPECT_EQ(store_.counts().refusals, 8u) << "not before as much has come together again";
  monitor_.unpin_all();
  store_.decommit({addr + 11 * kBlockBytes, 2 * kBlockBytes});
  EXPECT_EQ(store_.counts().idle_bytes, 0u);
  EXPECT_EQ(store_.counts().emptied_bytes, 13 * kBlockBytes);
}

TEST_P(PageStoreTest, MemoryUsedAgainIsAsItWasUnlessItWasEmptied) {
  const uintptr_t addr = grow_used(2 * kBlockBytes);
  store_.decommit({addr, 2 * kBlockBytes});
  store_.commit({addr, kBlockBytes});
  EXPECT_EQ(*pointer(addr), 1);
  EXPECT_EQ(store_.counts().idle_bytes, kBlockBytes);
  EXPECT_EQ(store_.trim(), kBlockBytes);
  EXPECT_EQ(*pointer(addr), 1);
}

TEST_P(PageStoreTest, EmptyingIsRetriedAfterTheKernelRefuses) {
  const uintptr_t addr = grow_used(kBlockBytes);
  // The call itself: sanitizers make mlock() do nothing.
  if (syscall(SYS_mlock, addr, kPageBytes) != 0) GTEST_SKIP() << "no page may be locked here";
  store_.decommit({addr, kBlockBytes});
  // Locks keep private pages from being emptied, not a file from being punched.
  const bool emptied = GetParam() == PageStore::Kind::kShared;
  EXPECT_EQ(store_.trim(), emptied ? kBlockBytes : 0);
  EXPECT_EQ(*pointer(addr), emptied ? 0 : 1);
  EXPECT_EQ(store_.counts().idle_bytes, emptied ? 0 : kBlockBytes);
  ASSERT_EQ(syscall(SYS_munlock, addr, kPageBytes), 0);
  EXPECT_EQ(store_.trim(), emptied ? 0 : kBlockBytes);
  EXPECT_EQ(*pointer(addr), 0);
}

TEST_P(PageStoreTest, MemoryRegisteredDuringATrimIsKept) {
  monitor_.appear();
  store_.use_monitor(FakeMonitor::table());
  const uintptr_t addr = grow_used(kBlockBytes);
  store_.decommit({addr, kBlockBytes});
  // A cache may register between the check of pinned() and the emptying.
  bool pinned = false;
  monitor_.on_invalidate([&](uintptr_t, size_t) {
    if (!pinned) monitor_.pin_in_invalidate(pointer(addr), kPageBytes);
    pinned = true;
  });
  EXPECT_EQ(store_.trim(), 0u);
  EXPECT_EQ(*pointer(addr), 1);
  monitor_.unpin_all();
  EXPECT_EQ(store_.trim(), kBlockBytes);
  EXPECT_EQ(*pointer(addr), 0);
  monitor_.on_invalidate(nullptr);
}

TEST_P(PageStoreTest, MemoryBeyondTheKeptLimitIsRecalledOnce) {
  monitor_.appear();
  auto& store = hydrant::testing::kept<PageStore>(GetParam(), kBlockBytes, 2 * kBlockBytes);
  store.use_monitor(FakeMonitor::table());
  const uintptr_t addr = store.grow(6 * kBlockBytes, kBlockBytes);
  ASSERT_NE(addr, 0u);
  store.commit({addr, 6 * kBlockBytes});
  std::memset(pointer(addr), 1, 6 * kBlockBytes);
  monitor_.pin(pointer(addr), 6 * kBlockBytes);
  monitor_.clear_calls();
  const auto recalled = [&] {
    size_t bytes = 0;
    for (const auto& call : monitor_.calls()) {
      if (call.kind == FakeMonitor::Kind::kInvalidate) bytes += call.len;
    }
    return bytes;
  };
  store.decommit({addr, 2 * kBlockBytes});
  EXPECT_EQ(store.counts().kept_bytes, 2 * kBlockBytes);
  EXPECT_EQ(recalled(), 0u) << "as much may be kept";
  store.decommit({addr + 2 * kBlockBytes, 4 * kBlockBytes});
  EXPECT_EQ(store.counts().kept_bytes, 6 * kBlockBytes);
  EXPECT_EQ(store.counts().recalls, 4u);
  EXPECT_EQ(recalled(), 4 * kBlockBytes);
  EXPECT_EQ(store.trim(), 0u);
  EXPECT_EQ(recalled(), 4 * kBlockBytes) << "once is enough";
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(*pointer(addr + i * kBlockBytes), 1);
  // Used and freed again: a client may have registered it again, too.
  store.commit({addr + 5 * kBlockBytes, kBlockBytes});
  store.decommit({addr + 5 * kBlockBytes, kBlockBytes});
  EXPECT_EQ(store.trim(), 0u);
  EXPECT_EQ(store.counts().recalls, 5u);
  monitor_.unpin_all();
  EXPECT_EQ(store.trim(), 6 * kBlockBytes);
  EXPECT_EQ(store.counts().kept_bytes, 0u);
}

INSTANTIATE_TEST_SUITE_P(, PageStoreTest,
                         ::testing::Values(PageStore::Kind::kPrivate, PageStore::Kind::kShared),
                         [](const auto& kind) {
                           return kind.param == PageStore::Kind::kPrivate ? "Private" : "Shared";
                         });

}  // namespace
}  // namespace hydrant::arena
