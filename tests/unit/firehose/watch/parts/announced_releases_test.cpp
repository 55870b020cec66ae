// Announced releases: what stays watched, which arenas stay, and which function of a cache is called.
#include "firehose/watch/announced_releases.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>

namespace hydrant::testing {
namespace {

constexpr size_t kAnnounced = 32;

struct AnnouncedCalls {
  int forgotten = 0;
  int unmapped = 0;
  MemoryRange last{};
};

TEST(AnnouncedReleases, AgreeWithPages) {
  WatchedRanges watched;
  ThreadStacks stacks;
  const auto arenas = std::make_unique<ArenaRanges>();
  const auto clients = std::make_unique<MonitorClients>();
  AnnouncedReleases releases(watched, stacks, *arenas, *clients);
  AnnouncedCalls calls;
  hydrant_monitor_client_t client{};
  client.context = &calls;
  client.forget = [](void* to, uintptr_t addr, size_t len) {
    ++static_cast<AnnouncedCalls*>(to)->forgotten;
    static_cast<AnnouncedCalls*>(to)->last = {addr, len};
  };
  ASSERT_EQ(clients->subscribe(client), 0);
  ASSERT_TRUE(clients->set_unmapped(0, [](void* to, uintptr_t addr, size_t len) {
    ++static_cast<AnnouncedCalls*>(to)->unmapped;
    static_cast<AnnouncedCalls*>(to)->last = {addr, len};
  }));
  {
    const RangesLock lock(watched.mutex());
    ASSERT_TRUE(watched.map(lock));
  }
  std::array<bool, kAnnounced> is_watched{};
  Random random(test_seed());
  for (int step = 0; step < 2000; ++step) {
    const size_t page = random.below(kAnnounced);
    const size_t n = random.below(std::min<size_t>(kAnnounced - page, 4) + 1);  // 0: invalid
    const MemoryRange range = pages(page, n);
    const size_t kind = random.below(4);
    if (kind == 3) {
      ASSERT_EQ(arenas->add(range, false), n != 0);
    }
    calls = {};
    switch (kind) {
      case 0: releases.invalidate(range); break;
      case 1: releases.replaced(range); break;
      case 2: releases.not_watched(range); break;
      default: releases.drop_arena(range);
    }
    const bool is_unmapped = kind == 1 || kind == 3;
    ASSERT_EQ(calls.unmapped, is_unmapped && n != 0 ? 1 : 0);
    ASSERT_EQ(calls.forgotten, !is_unmapped && n != 0 ? 1 : 0);
    if (n == 0) continue;
    ASSERT_EQ(calls.last, range);
    ASSERT_FALSE(arenas->cover(range, false));
    if (kind == 1 || kind == 2) std::fill_n(&is_watched[page], n, false);
    const RangesLock lock(watched.mutex());
    for (size_t i = 0; i < kAnnounced; ++i)
      ASSERT_EQ(watched.ranges(lock).covers(pages(i, 1)), is_watched[i]) << step;
    const size_t added = random.below(kAnnounced);
    watched.add(lock, pages(added, 1));
    is_watched[added] = true;
  }
}

}  // namespace
}  // namespace hydrant::testing
