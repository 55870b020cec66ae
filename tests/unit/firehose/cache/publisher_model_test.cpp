// Random plans, published or not, against a list of the regions that hits may find.
#include "firehose/cache/coherence/watch_link.hpp"
#include "firehose/cache/publisher.hpp"
#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <algorithm>

namespace hydrant::testing {
namespace {

constexpr uint32_t kHandle = 9;
constexpr Access kSomeRights[] = {Access::kLocalRead, Access::kLocalWrite, Access::kRemoteRead,
                                  Access::kLocalWrite | Access::kRemoteRead, Access::kAll};

hydrant_monitor_t silent_monitor() {
  hydrant_monitor_t monitor{};  // of the size of one that has only what is set here
  monitor.size = offsetof(hydrant_monitor_t, set_end_free_hits);
  monitor.start = [] { return 0; };
  monitor.sync = [] {};
  monitor.subscribe = [](const hydrant_monitor_client_t*) { return 1; };
  monitor.unsubscribe = [](int) {};
  return monitor;
}

struct PublishedRegion {
  RegionIndex region;
  MemoryRange range;
  Access access;
  bool prepinned;
};

class PublisherModel {
 public:
  PublisherModel(uint32_t seed, bool watched) : random_(seed), watched_(watched) {
    if (!watched) return;
    config_.watch = HYDRANT_WATCH_AUTO;
    EXPECT_EQ(watch_.start(&monitor_, {}, {}), Status::kOk);
  }

  void step() {
    const CacheLock lock(parts_.mu);
    if (open_.size() > 40 || (!open_.empty() && random_.below(4) == 0)) {
      std::swap(open_[random_.below(open_.size())], open_.back());
      retire(lock, open_.back().region);
      open_.pop_back();
    } else {
      publish(lock);
    }
    drain(lock);
    compare(lock);
  }

 private:
  Plan make_plan(const CacheLock& lock) {
    Plan plan;
    plan.range = at(random_.below(60), 1 + random_.below(8));
    if (random_.below(20) == 0) plan.range.addr = 0;
    plan.access = kSomeRights[random_.below(5)];
    plan.charge = plan.range.len;
    plan.vouched = random_.below(4) == 0;
    plan.cover = random_.below(2) == 0 ? HYDRANT_COVER_CHECKED : HYDRANT_COVER_WATCHED;
    plan.down = random_.below(2) == 0;
    plan.extra_bytes = random_.below(plan.range.len / kPage) * kPage;
    plan.stream = plan.extra_bytes != 0;
    plan.region = parts_.add_pending(lock, plan.range, plan.access);
    parts_.store.infos(lock)[plan.region].prepinned = random_.below(8) == 0;
    return plan;
  }
  void publish(const CacheLock& lock) {
    const Plan plan = make_plan(lock);
    const bool cacheable = random_.below(6) != 0;
    const bool may_enter = cacheable && !(watched_ && plan.range.addr == 0);
    const bool superfluous = any([&](const PublishedRegion& p) {
      return p.range.covers(plan.range) && includes(p.access, plan.access);
    });
    const auto is_covered = [&](const PublishedRegion& p) {
      return plan.range.covers(p.range) && includes(plan.access, p.access);
    };
    const bool blocked = any([&](const PublishedRegion& p) {
      return is_covered(p) && p.prepinned && p.access == plan.access;
    });
    const auto is_replaced = [&](const PublishedRegion& p) {
      return is_covered(p) && !p.prepinned;
    };
    const uint64_t merges = parts_.totals.of(lock).merges;
    EXPECT_TRUE(publisher_.publish(lock, plan, cacheable));
    // A region that a prepinned one keeps out of the table replaces no other.
    if (!may_enter || superfluous || blocked) {
      EXPECT_EQ(parts_.totals.of(lock).merges, merges);
      return check_uncached(lock, plan, may_enter);
    }
    for (const PublishedRegion& p : open_) {
      if (!is_replaced(p)) continue;
      EXPECT_EQ(parts_.store.infos(lock)[p.region].state, RegionState::kDead);
      EXPECT_FALSE(parts_.store.infos(lock)[p.region].listed);
      EXPECT_TRUE(parts_.gates.is_shut(lock, p.region));
    }
    const size_t closed = std::erase_if(open_, is_replaced);
    EXPECT_EQ(parts_.totals.of(lock).merges - merges, closed);
    check_open(lock, plan);
  }
  void check_open(const CacheLock& lock, const Plan& plan) {
    const RegionInfo& info = parts_.store.infos(lock)[plan.region];
    const RegionSlot& slot = parts_.store.slot(plan.region);
    const bool checked = watched_ && !plan.vouched && plan.cover == HYDRANT_COVER_CHECKED;
    EXPECT_EQ(slot.tag, kHandle);
    EXPECT_EQ((MemoryRange{slot.addr, slot.len}), plan.range);
    EXPECT_EQ(slot.denied, ~bits(plan.access));
    EXPECT_EQ((checked ? slot.checked_gate : slot.gate), plan.range.end());
    EXPECT_EQ((checked ? slot.gate : slot.checked_gate), 0u);
    EXPECT_EQ(slot.unused_extension & ~kUnusedBelow, plan.extra_bytes / kPage);
    EXPECT_EQ(info.extended, plan.stream);
    EXPECT_EQ(info.vouched, plan.vouched);
    EXPECT_EQ(info.checked, checked);
    EXPECT_EQ(info.hooked, watched_ && !plan.vouched && !checked);
    EXPECT_EQ(parts_.tables.find(lock, plan.range, plan.access), plan.region);
    has_checked_ = has_checked_ || checked;
    open_.push_back({plan.region, plan.range, plan.access, info.prepinned});
  }
  void check_uncached(const CacheLock& lock, const Plan& plan, bool cacheable) {
    const RegionIndex r = plan.region;
    const RegionInfo& info = parts_.store.infos(lock)[r];
    EXPECT_EQ(info.state, RegionState::kDead);
    EXPECT_EQ(info.uncached, !cacheable);
    EXPECT_TRUE(info.is_unopened);
    EXPECT_FALSE(info.listed);
    EXPECT_EQ(parts_.store.slot(r).tag, 0u);
    EXPECT_TRUE(parts_.gates.is_shut(lock, r));
    EXPECT_EQ(parts_.holds.sum_of_unopened(lock, r), 0u);
    if (random_.below(2) == 0) return;
    parts_.holds.take(lock, nullptr, r);
    EXPECT_EQ(parts_.holds.sum_of_unopened(lock, r), 1u);
    held_.push_back(r);
  }

  void retire(const CacheLock& lock, RegionIndex r) {
    parts_.victims.remove(lock, r);
    parts_.retirement.close(lock, r);
    parts_.retirement.add_dead(lock, r);
  }
  void drain(const CacheLock& lock) {
    if (random_.below(4) != 0) return;
    for (const RegionIndex r : held_) {
      EXPECT_EQ(parts_.store.infos(lock)[r].state, RegionState::kDead);
      EXPECT_EQ(parts_.holds.drop(lock, nullptr, r), 0u);
    }
    held_.clear();
    RegionQueue retired;
    parts_.retirement.drain(lock, SIZE_MAX, &retired);
    parts_.settle(lock, &retired);
    EXPECT_TRUE(parts_.retirement.dead(lock).empty());
  }
  template <class Is>
  bool any(const Is& is) const {
    return std::any_of(open_.begin(), open_.end(), is);
  }
  void compare(const CacheLock& lock) {
    size_t entered = 0;
    EXPECT_TRUE(parts_.tables.each_unlocked({0, size_t{1} << 60}, [&](RegionIndex) { ++entered; }));
    EXPECT_EQ(entered, open_.size());
    EXPECT_EQ(parts_.checks.has_checked_regions(), has_checked_);
    for (const PublishedRegion& p : open_) {
      EXPECT_TRUE(parts_.is_open(lock, p.region)) << p.region;
      EXPECT_EQ(parts_.store.infos(lock)[p.region].listed, !p.prepinned);
      EXPECT_FALSE(any([&](const PublishedRegion& other) {
        return p.region != other.region && p.access == other.access && p.range.covers(other.range);
      })) << "one contains another";
    }
    const MemoryRange asked = at(random_.below(64), 1 + random_.below(3));
    const Access need = kSomeRights[random_.below(5)];
    EXPECT_EQ(parts_.tables.find(lock, asked, need) != kNoRegion,
              any([&](const PublishedRegion& p) {
                return p.range.covers(asked) && includes(p.access, need);
              }));
  }

  Random random_;
  const bool watched_;
  hydrant_monitor_t monitor_ = silent_monitor();
  DomainConfig config_;
  Parts parts_{256, {100'000 * kPage, 256}};
  WatchLink watch_{config_, parts_.checks};
  Publisher publisher_{{kHandle, parts_.store, parts_.holds, parts_.epoch, parts_.checks,
                        parts_.gates, parts_.tables, parts_.extensions, parts_.retirement,
                        parts_.victims, parts_.totals, watch_}};
  std::vector<PublishedRegion> open_;
  std::vector<RegionIndex> held_;  // uncached ones
  bool has_checked_ = false;
};

TEST(PublisherModel, TablesListExactlyTheRegionsThatNoLargerOneReplaces) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    PublisherModel model(seed, seed % 2 == 0);
    for (int step = 0; step < 300; ++step) {
      model.step();
      ASSERT_FALSE(::testing::Test::HasFailure()) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace hydrant::testing
