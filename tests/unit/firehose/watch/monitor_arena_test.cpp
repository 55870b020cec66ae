// Memory whose owner announces what it takes away.
#include <hydrant/monitor.h>

#include "tests/support/mapped_memory.hpp"
#include "tests/support/threads.hpp"
#include "tests/unit/firehose/watch/listener.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

namespace hydrant::testing {
namespace {

constexpr size_t kMaxArenas = 4096;
// No mapping is there, and none is needed: an arena is its owner's word.
constexpr uintptr_t kFarArena = uintptr_t{1} << 41;
constexpr size_t kMiB16 = 16 * kMiB;

uint32_t cover_only(uintptr_t addr, size_t len) {
  return the_monitor().cover(addr, len, HYDRANT_COVER_ONLY_ARENAS);
}

TEST(MonitorArena, CoversRangesInsideOneArena) {
  const hydrant_monitor_t& monitor = the_monitor();
  EXPECT_EQ(cover_only(kFarArena, kPage), HYDRANT_COVER_NONE);
  ASSERT_EQ(monitor.add_arena(kFarArena, kMiB), 0);
  ASSERT_EQ(monitor.add_arena(kFarArena + kMiB, kMiB), 0);
  EXPECT_EQ(cover_only(kFarArena, kMiB), HYDRANT_COVER_ARENA);
  EXPECT_EQ(monitor.cover(kFarArena + kPage, kPage, 0), HYDRANT_COVER_ARENA);
  EXPECT_EQ(cover_only(kFarArena + kMiB, kMiB), HYDRANT_COVER_ARENA);
  EXPECT_EQ(cover_only(kFarArena + kMiB - kPage, 2 * kPage), HYDRANT_COVER_NONE) << "across two";
  EXPECT_EQ(cover_only(kFarArena - kPage, 2 * kPage), HYDRANT_COVER_NONE);
  EXPECT_EQ(cover_only(kFarArena + 2 * kMiB - kPage, 2 * kPage), HYDRANT_COVER_NONE);
  monitor.drop_arena(kFarArena, kMiB);
  EXPECT_EQ(cover_only(kFarArena, kPage), HYDRANT_COVER_NONE);
  EXPECT_EQ(cover_only(kFarArena + kMiB, kPage), HYDRANT_COVER_ARENA);
  monitor.drop_arena(kFarArena + kMiB, kMiB);
  EXPECT_EQ(cover_only(kFarArena + kMiB, kPage), HYDRANT_COVER_NONE);
}

TEST(MonitorArena, KeptArenasAreDistinguished) {
  const hydrant_monitor_t& monitor = the_monitor();
  const auto kept = [&](uintptr_t addr, uint32_t flags = 0) {
    return monitor.cover(addr, kPage, HYDRANT_COVER_ONLY_KEPT_ARENAS | flags);
  };
  ASSERT_EQ(monitor.add_arena(kFarArena, kMiB), 0);
  ASSERT_EQ(monitor.add_kept_arena(kFarArena + kMiB, kMiB), 0);
  EXPECT_EQ(cover_only(kFarArena, kPage), HYDRANT_COVER_ARENA);
  EXPECT_EQ(cover_only(kFarArena + kMiB, kPage), HYDRANT_COVER_ARENA);
  EXPECT_EQ(kept(kFarArena), HYDRANT_COVER_NONE);
  EXPECT_EQ(kept(kFarArena, HYDRANT_COVER_ONLY_ARENAS), HYDRANT_COVER_NONE);
  EXPECT_EQ(kept(kFarArena + kMiB), HYDRANT_COVER_ARENA);
  // The places of the table serve again.
  monitor.drop_arena(kFarArena + kMiB, kMiB);
  monitor.drop_arena(kFarArena, kMiB);
  ASSERT_EQ(monitor.add_arena(kFarArena + kMiB, kMiB), 0);
  ASSERT_EQ(monitor.add_arena(kFarArena, kMiB), 0);
  EXPECT_EQ(kept(kFarArena), HYDRANT_COVER_NONE);
  EXPECT_EQ(kept(kFarArena + kMiB), HYDRANT_COVER_NONE);
  monitor.drop_arena(kFarArena, kMiB);
  monitor.drop_arena(kFarArena + kMiB, kMiB);
}

TEST(MonitorArena, DroppedArenaIsReportedAsUnmapped) {
  const Listener listener;
  ASSERT_EQ(listener.listen_to_unmapped(), 0);
  ASSERT_EQ(the_monitor().add_arena(kFarArena, kMiB), 0);
  EXPECT_EQ(listener.count(), 0u);
  the_monitor().drop_arena(kFarArena, kMiB);
  ASSERT_EQ(listener.count(), 1u);
  EXPECT_EQ(listener.told(0), (MemoryRange{kFarArena, kMiB}));
  EXPECT_TRUE(listener.told_of_unmapped(kFarArena, kMiB)) << "that comes next";
}

TEST(MonitorArena, RangesThatAreNoneAreRefused) {
  EXPECT_NE(the_monitor().add_arena(kFarArena, 0), 0);
  EXPECT_NE(the_monitor().add_arena(UINTPTR_MAX - kPage, 2 * kPage), 0);
}

TEST(MonitorArena, FourThousandAndNoMore) {
  const hydrant_monitor_t& monitor = the_monitor();
  const auto at = [](size_t i) { return kFarArena + i * kMiB16; };
  size_t added = 0;
  while (added < kMaxArenas + 1 && monitor.add_arena(at(added), kMiB) == 0) ++added;
  EXPECT_EQ(added, kMaxArenas);
  EXPECT_EQ(cover_only(at(0), kPage), HYDRANT_COVER_ARENA);
  EXPECT_EQ(cover_only(at(kMaxArenas - 1), kPage), HYDRANT_COVER_ARENA);
  EXPECT_EQ(cover_only(at(kMaxArenas), kPage), HYDRANT_COVER_NONE) << "as any other memory";
  monitor.drop_arena(at(17), kMiB);
  EXPECT_EQ(monitor.add_arena(at(kMaxArenas), kMiB), 0) << "there is room again";
  EXPECT_EQ(cover_only(at(kMaxArenas), kPage), HYDRANT_COVER_ARENA);
  EXPECT_EQ(cover_only(at(17), kPage), HYDRANT_COVER_NONE);
  for (size_t i = 0; i <= kMaxArenas; ++i) monitor.drop_arena(at(i), kMiB);
  for (size_t i = 0; i <= kMaxArenas; ++i) {
    ASSERT_EQ(cover_only(at(i), kPage), HYDRANT_COVER_NONE) << i;
  }
}

// A small arena and a large one alternate in the same entry of the table: no reader may see the address of
// one with the length of the other.
TEST(MonitorArena, NoMixtureOfTwoIsEverSeen) {
  const hydrant_monitor_t& monitor = the_monitor();
  constexpr uintptr_t kSmall = kFarArena;
  constexpr uintptr_t kLarge = kFarArena * 2;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> mixtures{0};
  Threads threads;
  threads.start([&] {
    for (int i = 0; i < 200'000; ++i) {
      (void)monitor.add_arena(kSmall, kPage);
      monitor.drop_arena(kSmall, kPage);
      (void)monitor.add_arena(kLarge, kMiB16);
      monitor.drop_arena(kLarge, kMiB16);
    }
    stop = true;
  });
  for (int i = 0; i < 2; ++i) {
    threads.start([&] {
      while (!stop) {
        if (cover_only(kSmall + kMiB, kPage) != HYDRANT_COVER_NONE) ++mixtures;
      }
    });
  }
  threads.join();
  EXPECT_EQ(mixtures, 0u);
}

}  // namespace
}  // namespace hydrant::testing
