// Raw releases: which changes end free hits, and when.
#include "firehose/watch/raw_releases.hpp"

#include "tests/support/test_seed.hpp"
#include "tests/unit/firehose/watch/parts/fake_hooks.hpp"
#include "tests/unit/firehose/watch/parts/fake_userfault.hpp"
#include "tests/unit/firehose/watch/parts/parts_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>

namespace hydrant::testing {
namespace {

constexpr MemoryChange kUnmapping{MemoryChange::Kind::kUnmapped, {kPlace, kPage}, {}};

class RawReleasesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_userfault() = {};
    fake_userfault().has_reports = true;
    calls.set_hooks(&fake.hooks);
    hydrant_monitor_client_t client{};
    client.context = &ended;
    const int number = clients->subscribe(client);
    ASSERT_TRUE(
        clients->set_end_free_hits(number, [](void* count) { ++*static_cast<int*>(count); }));
    const RangesLock lock(watched.mutex());
    ASSERT_TRUE(watched.map(lock) && stacks.map(lock));
    watched.add(lock, pages(0, 32));
    renew();
  }
  void renew() {
    raw.emplace(userfault, watched, stacks, calls, *clients);
    ended = 0;
  }
  // A thread whose call notes this range.
  void enter(uint32_t record, MemoryRange range) {
    fake.records[record].tid = 0x7ffffff0;  // no thread has it, so none sleeps in the kernel
    fake.records[record].entered = 1;
    fake.records[record].addr = range.addr;
    fake.records[record].len = range.len;
  }

  int ended = 0;  // calls of the client's end_free_hits()
  FakeHooks fake;
  Userfault userfault;
  HookedCallsUnderWay calls;
  WatchedRanges watched;
  ThreadStacks stacks;
  std::unique_ptr<MonitorClients> clients = std::make_unique<MonitorClients>();
  std::optional<RawReleases> raw;
};

TEST_F(RawReleasesTest, HitsStayFreeExactlyIfACallExplainsTheChange) {
  Random random(test_seed());
  int seen_raw = 0;
  for (int step = 0; step < 3000; ++step) {
    renew();
    const MemoryRange released = pages(random.below(40), 1 + random.below(3));
    bool names_watched = false;
    bool is_explained = false;
    for (uint32_t i = 0; i < 4; ++i) {
      const MemoryRange note = pages(random.below(60), 1 + random.below(20));
      enter(i, note);
      if (random.below(2) == 0) {
        fake.records[i].entered = 0;
        continue;
      }
      names_watched = names_watched || note.addr < pages(0, 32).end();
      is_explained = is_explained || note.covers(released);
    }
    const MemoryChange change{MemoryChange::Kind::kUnmapped, released, {}};
    const RawReleases::Look look = raw->begin_reading();
    ASSERT_EQ(raw->are_hits_checked(), !names_watched) << step << ": before the change is read";
    const MemoryChange* const found = raw->find(look, &change, 1);
    ASSERT_EQ(found == nullptr, names_watched && is_explained) << step;
    ASSERT_EQ(raw->are_hits_checked(), found != nullptr);
    ASSERT_EQ(ended != 0, found != nullptr);
    ASSERT_EQ(raw->are_looked_for(), found == nullptr);
    hydrant_monitor_t shown{};
    raw->show(&shown);
    ASSERT_EQ(*shown.checked, found != nullptr ? 1u : 0u);
    ASSERT_EQ(*shown.raw_changes, found != nullptr ? 1u : 0u);
    seen_raw += found != nullptr ? 1 : 0;
  }
  EXPECT_GT(seen_raw, 100);
  EXPECT_LT(seen_raw, 2900);
}

TEST_F(RawReleasesTest, TheFirstRawChangeIsFound) {
  enter(0, pages(0, 4));
  const MemoryChange changes[] = {{MemoryChange::Kind::kUnmapped, pages(1, 2), {}},
                                  {MemoryChange::Kind::kRemoved, pages(3, 2), {}},
                                  {MemoryChange::Kind::kMoved, pages(9, 1), {}}};
  const RawReleases::Look look = raw->begin_reading();
  EXPECT_EQ(raw->find(look, changes, 1), nullptr);
  EXPECT_EQ(raw->find(look, changes, 3), &changes[1]);
  // Checks stay, and later changes are not looked at.
  const RawReleases::Look next = raw->begin_reading();
  EXPECT_EQ(raw->find(next, changes, 3), nullptr);
  EXPECT_TRUE(raw->are_hits_checked());
}

TEST_F(RawReleasesTest, DoubtfulChangesAreNotRaw) {
  {
    const RangesLock lock(watched.mutex());  // as in a handler that interrupted the holder
    EXPECT_TRUE(raw->begin_reading().caller_found);
  }
  fake_userfault().has_reports = false;  // the change's caller has been woken
  EXPECT_TRUE(raw->begin_reading().caller_found);
  fake_userfault().has_reports = true;
  fake.hooks.families = HYDRANT_HOOKS_MAP;
  const RawReleases::Look look = raw->begin_reading();
  EXPECT_FALSE(look.looks);
  EXPECT_EQ(raw->find(look, &kUnmapping, 1), nullptr);
  EXPECT_FALSE(raw->are_hits_checked());
}

TEST_F(RawReleasesTest, TheEndOfAThreadExplainsItsStack) {
  alignas(kPage) static uintptr_t stack[2 * kPage / sizeof(uintptr_t)];
  const auto at = reinterpret_cast<uintptr_t>(stack);
  stack[0] = at;
  fake.records[9].stack = at;
  {
    const RangesLock lock(watched.mutex());
    stacks.note(lock, {at, kPage}, calls);
  }
  const MemoryChange end{MemoryChange::Kind::kUnmapped, {at, 2 * kPage}, {}};
  const RawReleases::Look look = raw->begin_reading();
  EXPECT_EQ(raw->find(look, &end, 1), nullptr);
  EXPECT_FALSE(raw->are_hits_checked());
  EXPECT_EQ(raw->find(look, &kUnmapping, 1), &kUnmapping);
}

TEST_F(RawReleasesTest, CallersOfRemovalsAreKnownFromTheirNotesOnceHitsAreChecked) {
  const MemoryChange removal{MemoryChange::Kind::kRemoved, pages(2, 1), {}};
  EXPECT_TRUE(raw->knows_caller(removal)) << "every call passes a hook";
  raw->check_hits_from_the_start();
  EXPECT_FALSE(raw->knows_caller(removal));
  enter(0, pages(2, 1));
  EXPECT_TRUE(raw->knows_caller(removal));
  EXPECT_FALSE(raw->are_looked_for());
}

}  // namespace
}  // namespace hydrant::testing
