// Reports of the arenas to a pin cache's monitor, and their order.
#include <hydrant/alloc.h>

#include "tests/unit/firehose/watch/arena/fake_monitor.hpp"
#include "tests/unit/firehose/watch/arena/tagged.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <vector>

namespace hydrant::testing {
namespace {

constexpr size_t kBlock = 2 * kMiB;
using Kind = FakeMonitor::Kind;

struct Source {
  const char* name;
  void* (*allocate)(size_t bytes);
};

class AllocMonitor : public ::testing::TestWithParam<Source> {
 protected:
  void TearDown() override {
    monitor_.on_invalidate(nullptr);
    monitor_.unpin_all();
    monitor_.refuse_arenas(false);
    (void)hydrant_alloc_trim();
  }
  void have_monitor() {
    monitor_.appear();
    hydrant_alloc_announce();
  }
  static hydrant_alloc_stats_t stats() {
    hydrant_alloc_stats_t now{};
    now.size = sizeof now;
    hydrant_alloc_get_stats(&now);
    return now;
  }
  static void* allocate(size_t bytes) {
    void* p = GetParam().allocate(bytes);
    if (p != nullptr) write_marks(p, bytes, 1);
    return p;
  }
  static uint64_t word(uintptr_t addr) {
    uint64_t value = 0;
    std::memcpy(&value, reinterpret_cast<const void*>(addr), sizeof value);
    return value;
  }

  FakeMonitor& monitor_ = FakeMonitor::instance();
};

TEST_P(AllocMonitor, LateMonitorGetsAllArenas) {
  if (monitor_.present()) GTEST_SKIP() << "another case of this process has had the monitor appear";
  void* before = allocate(3 * kMiB);
  void* small = GetParam().allocate(10);
  EXPECT_EQ(stats().has_monitor, 0u);
  EXPECT_FALSE(monitor_.announced(before, 3 * kMiB));
  EXPECT_GE(stats().own.unannounced_bytes + stats().shared.unannounced_bytes, 3 * kMiB);
  have_monitor();
  EXPECT_EQ(stats().has_monitor, 1u);
  EXPECT_TRUE(monitor_.announced(before, 3 * kMiB));
  EXPECT_TRUE(monitor_.announced(small, 10));
  EXPECT_EQ(stats().own.unannounced_bytes + stats().shared.unannounced_bytes, 0u);
  hydrant_free(before);
  hydrant_free(small);
}

TEST_P(AllocMonitor, ThatAppearsLaterIsFoundWhenTheArenaGrows) {
  if (monitor_.present()) GTEST_SKIP() << "another case of this process has had the monitor appear";
  void* before = allocate(3 * kMiB);
  monitor_.appear();
  void* large = GetParam().allocate(700 * kMiB);
  ASSERT_NE(large, nullptr);
  EXPECT_TRUE(monitor_.announced(large, 700 * kMiB));
  EXPECT_TRUE(monitor_.announced(before, 3 * kMiB));
  hydrant_free(large);
  hydrant_free(before);
}

TEST_P(AllocMonitor, FreshAddressesAreSyncedThenAnnouncedBeforeTheyAreHandedOut) {
  have_monitor();
  monitor_.clear_calls();
  void* p = GetParam().allocate(1500 * kMiB);  // more than any reservation before has left
  ASSERT_NE(p, nullptr);
  const auto calls = monitor_.calls();
  EXPECT_TRUE(monitor_.announced(p, 1500 * kMiB));
  ASSERT_GE(calls.size(), 2u);
  EXPECT_EQ(calls[0].kind, Kind::kSync);
  EXPECT_EQ(calls[1].kind, Kind::kAddKeptArena);
  EXPECT_EQ(calls[1].addr % kBlock, 0u);
  EXPECT_EQ(calls[1].len % kBlock, 0u);
  hydrant_free(p);
}

TEST_P(AllocMonitor, RangesItCannotNoteAreCounted) {
  have_monitor();
  monitor_.refuse_arenas(true);
  const auto before = stats();
  void* p = GetParam().allocate(3000 * kMiB);
  ASSERT_NE(p, nullptr);
  EXPECT_FALSE(monitor_.announced(p, 3000 * kMiB));
  const auto after = stats();
  EXPECT_GE(after.own.unannounced_bytes + after.shared.unannounced_bytes,
            before.own.unannounced_bytes + before.shared.unannounced_bytes + 3000 * kMiB);
  hydrant_free(p);
}

// invalidate() runs first while the memory still has its contents, and again, on empty memory, before the
// memory can be allocated again.
TEST_P(AllocMonitor, IsNotifiedBeforeAndAfterABlockIsEmptied) {
  have_monitor();
  constexpr size_t kBytes = 24 * kMiB;
  void* p = allocate(kBytes);
  ASSERT_NE(p, nullptr);
  const auto start = reinterpret_cast<uintptr_t>(p);
  ASSERT_EQ(start % kBlock, 0u);
  std::map<uintptr_t, std::vector<bool>> full;  // by block: was its content there at the call?
  monitor_.on_invalidate([&](uintptr_t addr, size_t len) {
    for (uintptr_t at = addr; at < addr + len; at += kBlock) {
      if (at < start || at >= start + kBytes) continue;
      full[at].push_back(word(at) == mark(1, at - start) &&
                         word(at + kMiB) == mark(1, at + kMiB - start));
    }
  });
  hydrant_free(p);
  EXPECT_GE(hydrant_alloc_trim(), kBytes);
  monitor_.on_invalidate(nullptr);
  EXPECT_EQ(full.size(), kBytes / kBlock);
  const std::vector<bool> first_full_then_empty{true, false};
  for (const auto& [block, seen] : full) {
    EXPECT_EQ(seen, first_full_then_empty) << block - start;
    EXPECT_EQ(word(block), 0u);
  }
}

TEST_P(AllocMonitor, PinnedBlocksAreEmptiedAfterTheirUnpin) {
  have_monitor();
  constexpr size_t kBytes = 24 * kMiB;
  void* p = allocate(kBytes);
  ASSERT_NE(p, nullptr);
  const auto start = reinterpret_cast<uintptr_t>(p);
  // A page of the fourth block, and another one that two blocks share.
  monitor_.pin(static_cast<char*>(p) + 7 * kMiB, 1);
  monitor_.pin(static_cast<char*>(p) + 12 * kMiB - 1, 2);
  const auto is_pinned = [](uintptr_t offset) {
    return offset / kBlock == 3 || offset / kBlock == 5 || offset / kBlock == 6;
  };
  monitor_.clear_calls();
  const auto before = stats();
  hydrant_free(p);
  (void)hydrant_alloc_trim();
  for (size_t offset = 0; offset < kBytes; offset += kBlock) {
    EXPECT_EQ(word(start + offset), is_pinned(offset) ? mark(1, offset) : 0) << offset;
  }
  const auto after = stats();
  EXPECT_GE(after.own.kept_blocks + after.shared.kept_blocks,
            before.own.kept_blocks + before.shared.kept_blocks + 3);
  EXPECT_GE(after.own.idle_bytes + after.shared.idle_bytes, 3 * kBlock);
  for (const auto& call : monitor_.calls()) {
    if (call.kind != Kind::kInvalidate) continue;
    EXPECT_FALSE(monitor_.pinned(call.addr, call.len));
  }
  monitor_.unpin_all();
  EXPECT_GE(hydrant_alloc_trim(), 3 * kBlock);
  for (size_t offset = 0; offset < kBytes; offset += kBlock) EXPECT_EQ(word(start + offset), 0u);
}

// Private memory stays as long as its cache likes. Untouched, so that it costs address space alone.
TEST_P(AllocMonitor, SharedMemoryThatStaysIsBoundedAndRecalledBeyond) {
  constexpr size_t kMax = 1024 * kMiB;
  constexpr size_t kBytes = kMax + 4 * kBlock;
  const size_t beyond = std::strcmp(GetParam().name, "Shared") == 0 ? 4 : 0;
  have_monitor();
  void* p = GetParam().allocate(kBytes);
  ASSERT_NE(p, nullptr);
  monitor_.pin(p, kBytes);
  monitor_.clear_calls();
  const hydrant_alloc_stats_t before = stats();
  hydrant_free(p);
  EXPECT_EQ(stats().shared_kept_bytes, beyond != 0 ? kBytes : 0);
  EXPECT_EQ(stats().shared_recalled_blocks - before.shared_recalled_blocks, beyond);
  size_t forgotten = 0;
  for (const auto& call : monitor_.calls()) {
    if (call.kind == Kind::kInvalidate) forgotten += call.len;
  }
  EXPECT_EQ(forgotten, beyond * kBlock);
  EXPECT_EQ(stats().shared.emptied_bytes, before.shared.emptied_bytes)
      << "not before it is given up";
  monitor_.unpin_all();
  EXPECT_GE(hydrant_alloc_trim(), kBytes);
  EXPECT_EQ(stats().shared_kept_bytes, 0u);
}

TEST_P(AllocMonitor, MemoryInUseIsNeverInvalidated) {
  have_monitor();
  void* kept = allocate(10 * kMiB);
  void* small = GetParam().allocate(100);
  monitor_.clear_calls();
  for (int round = 0; round < 20; ++round) {
    void* other = allocate(6 * kMiB);
    hydrant_free(other);
    (void)hydrant_alloc_trim();
  }
  const auto start = reinterpret_cast<uintptr_t>(kept);
  const auto at = reinterpret_cast<uintptr_t>(small);
  for (const auto& call : monitor_.calls()) {
    if (call.kind != Kind::kInvalidate) continue;
    EXPECT_TRUE(call.addr + call.len <= start || start + 10 * kMiB <= call.addr);
    EXPECT_FALSE(call.addr <= at && at < call.addr + call.len);
  }
  EXPECT_TRUE(has_marks(kept, 10 * kMiB, 1));
  hydrant_free(kept);
  hydrant_free(small);
}

INSTANTIATE_TEST_SUITE_P(, AllocMonitor,
                         ::testing::Values(Source{"Private", hydrant_alloc},
                                           Source{"Shared",
                                                  [](size_t bytes) {
                                                    return hydrant_alloc_shared(1, bytes);
                                                  }}),
                         [](const auto& source) { return source.param.name; });

}  // namespace
}  // namespace hydrant::testing
