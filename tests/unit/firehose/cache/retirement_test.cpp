// The way of regions out of the cache at random operations, against three plain queues of dead regions.
#include "firehose/cache/budget/retirement.hpp"

#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

namespace hydrant::testing {
namespace {

struct LeavingRegion {
  MemoryRange range;
  uint32_t holds = 0;
  bool shut = false;
  uint32_t closed_epoch = 0;
};

class RetirementModel {
 public:
  explicit RetirementModel(uint32_t seed) : random_(seed) {
    const CacheLock lock(parts_.mu);
    parts_.holds.attach(lock, thread_.state);
  }
  ~RetirementModel() {
    const CacheLock lock(parts_.mu);
    parts_.holds.detach(lock, thread_.state);
  }

  void step() {
    const CacheLock lock(parts_.mu);
    retired_now_ = {};
    expected_retired_.clear();
    const unsigned fences = g_fences;
    unsigned expected_fences = 0;
    switch (drains_ ? random_.below(16) : 4 + random_.below(12)) {
      case 0: parts_.epoch.fence(lock), ++expected_fences; break;
      case 1: expected_fences = drain_most(lock); break;
      case 2: expected_fences = drain_range(lock); break;
      case 3: expected_fences = drain_released(lock); break;
      case 4: expected_fences = drain_many(lock); break;
      case 5: expected_fences = settle_open(lock); break;
      case 6: expected_fences = settle_released_one(lock); break;
      case 7: shut(lock); break;
      case 8:
      case 9: kill(lock, drains_ && random_.below(4) == 0); break;
      case 10:
      case 11:
      case 12: change_hold(lock); break;
      default: return add(lock);  // it may fence for a slot
    }
    EXPECT_EQ(g_fences - fences, expected_fences);
    take_retired(lock);
    compare(lock);
  }

 private:
  using Queue = std::deque<RegionIndex>;

  void add(const CacheLock& lock) {
    if (regions_.size() > 100) return;
    const MemoryRange range = at(3 * page_++, 1 + random_.below(3));
    const RegionIndex r = parts_.add_open(lock, range);
    EXPECT_TRUE(regions_.emplace(r, LeavingRegion{range}).second) << "the slot is in use: " << r;
    open_.insert(r);
  }
  RegionIndex any_open() {
    if (open_.empty()) return kNoRegion;
    return *std::next(open_.begin(), static_cast<ptrdiff_t>(random_.below(open_.size())));
  }
  void change_hold(const CacheLock& lock) {
    if (regions_.empty()) return;
    const auto it =
        std::next(regions_.begin(), static_cast<ptrdiff_t>(random_.below(regions_.size())));
    ThreadDomain* thread = random_.below(3) == 0 ? nullptr : &thread_.state;
    if (it->second.holds != 0 && random_.below(4) != 0) {
      EXPECT_EQ(parts_.holds.drop(lock, thread, it->first), --it->second.holds);
    } else if (open_.count(it->first) != 0 && !it->second.shut) {  // no other can be hit
      parts_.holds.take(lock, thread, it->first);
      ++it->second.holds;
    }
  }
  void note_shut(const CacheLock& lock, RegionIndex r) {
    LeavingRegion& region = regions_[r];
    if (!region.shut) region.closed_epoch = parts_.epoch.now(lock);
    region.shut = true;
  }
  // As a possible victim, which is examined after a fence.
  void shut(const CacheLock& lock) {
    const RegionIndex r = any_open();
    if (r == kNoRegion) return;
    note_shut(lock, r);
    parts_.gates.shut(lock, r);
  }
  void close(const CacheLock& lock, RegionIndex r) {
    note_shut(lock, r);
    parts_.retirement.close(lock, r);
    open_.erase(r);
    EXPECT_EQ(parts_.tables.find(lock, regions_[r].range, Access::kLocalRead), kNoRegion);
    EXPECT_EQ(parts_.store.infos(lock)[r].state, RegionState::kDead);
    EXPECT_EQ(parts_.store.slot(r).tag, 0u);
    EXPECT_TRUE(parts_.gates.is_shut(lock, r));
  }
  void kill(const CacheLock& lock, bool released) {
    const RegionIndex r = any_open();
    if (r == kNoRegion) return;
    close(lock, r);
    parts_.store.infos(lock)[r].released = released;
    parts_.retirement.add_dead(lock, r);
    (released ? released_ : fresh_).push_back(r);
  }

  // Expects that the regions without holds are retired, and that the others go to `rest`. Returns the fences
  // that this costs.
  unsigned examine(const Queue& list, Queue* rest) {
    bool fenced = true;
    for (const RegionIndex r : list) {
      fenced = fenced && regions_[r].closed_epoch != before_;
      if (regions_[r].holds == 0) {
        expected_retired_.insert(r);
      } else {
        rest->push_back(r);
      }
    }
    return fenced ? 0 : 1;
  }
  Queue take(size_t most) {
    Queue list;
    for (Queue* queue : {&released_, &fresh_, &held_}) {
      for (; !queue->empty() && list.size() < most; queue->pop_front()) {
        list.push_back(queue->front());
      }
    }
    return list;
  }
  unsigned drain_most(const CacheLock& lock) {
    const size_t most = random_.below(12);
    note_epoch(lock);
    parts_.retirement.drain(lock, most, &retired_now_);
    return examine(take(most), &held_);
  }
  unsigned drain_range(const CacheLock& lock) {
    const MemoryRange range = at(random_.below(3 * page_ + 1), 1 + random_.below(60));
    note_epoch(lock);
    parts_.retirement.drain(lock, range, &retired_now_);
    Queue list;
    for (Queue* queue : {&released_, &fresh_, &held_}) {
      for (const RegionIndex r : *queue) {
        if (regions_[r].range.overlaps(range)) list.push_back(r);
      }
      std::erase_if(*queue, [&](RegionIndex r) { return regions_[r].range.overlaps(range); });
    }
    return examine(list, &held_);
  }
  unsigned drain_released(const CacheLock& lock) {
    note_epoch(lock);
    const bool more = parts_.retirement.drain_released(lock, &retired_now_);
    unsigned fences = 0;
    if (!released_.empty()) {
      fences = examine(take(std::min<size_t>(released_.size() + fresh_.size(), 64)), &held_);
    }
    EXPECT_EQ(more, !released_.empty());
    return fences;
  }
  unsigned drain_many(const CacheLock& lock) {
    const uint64_t budget = random_.below(8) == 0 ? random_.below(800) * kPage : 100'000 * kPage;
    const bool has_released = !released_.empty();
    const bool many = fresh_.size() >= 32 || fresh_charge() > budget / 8;
    note_epoch(lock);
    parts_.retirement.drain_many(lock, budget, &retired_now_);
    if (has_released) {
      return examine(take(std::min<size_t>(released_.size() + fresh_.size(), 64)), &held_);
    }
    return many ? examine(take(64), &held_) : 0;
  }
  unsigned settle_open(const CacheLock& lock) {
    RegionQueue queue;
    Queue list;
    for (size_t n = 1 + random_.below(5); n > 0 && !open_.empty(); --n) {
      const RegionIndex r = any_open();
      close(lock, r);
      queue.push(parts_.store.infos(lock), r);
      list.push_back(r);
    }
    unsigned fences = 0;
    if (random_.below(2) == 0) parts_.epoch.fence(lock), ++fences;
    note_epoch(lock);
    parts_.retirement.settle(lock, &queue, &retired_now_);
    EXPECT_TRUE(queue.empty());
    return fences + examine(list, &fresh_);  // not examined since they died
  }
  // The last release of a dead region takes it out of the list itself.
  unsigned settle_released_one(const CacheLock& lock) {
    for (Queue* queue : {&held_, &fresh_, &released_}) {
      const auto it = std::find_if(queue->begin(), queue->end(),
                                   [&](RegionIndex r) { return regions_[r].holds == 0; });
      if (it == queue->end()) continue;
      const RegionIndex r = *it;
      queue->erase(it);
      parts_.retirement.remove_dead(lock, r);
      RegionQueue list;
      list.push(parts_.store.infos(lock), r);
      note_epoch(lock);
      parts_.retirement.settle(lock, &list, &retired_now_);
      return examine({r}, &held_);
    }
    return 0;
  }

  void note_epoch(const CacheLock& lock) { before_ = parts_.epoch.now(lock); }
  // Some are unpinned at once, others later.
  void take_retired(const CacheLock& lock) {
    auto& infos = parts_.store.infos(lock);
    for (RegionIndex r = retired_now_.front(); r != kNoRegion; r = infos[r].next) {
      EXPECT_EQ(expected_retired_.erase(r), 1u) << r;
      EXPECT_EQ(infos[r].state, RegionState::kRetiring);
      EXPECT_EQ(parts_.store.slot(r).addr, kBlankAddr);
      EXPECT_FALSE(infos[r].listed);
      EXPECT_EQ(parts_.holds.sum(lock, r), 0u);
      retiring_[r] = regions_[r].range;
      regions_.erase(r);
    }
    EXPECT_TRUE(expected_retired_.empty()) << *expected_retired_.begin();
    unpinning_.push_back(retired_now_);
    if (random_.below(3) != 0) return;
    for (RegionQueue& queue : unpinning_) parts_.settle(lock, &queue);
    unpinning_.clear();
    retiring_.clear();
  }
  uint64_t fresh_charge() const {
    uint64_t sum = 0;
    for (const Queue* queue : {&released_, &fresh_}) {
      for (const RegionIndex r : *queue) sum += regions_.at(r).range.len;
    }
    return sum;
  }
  void compare(const CacheLock& lock) {
    const DeadRegions& dead = parts_.retirement.dead(lock);
    ASSERT_EQ(dead.size(), released_.size() + fresh_.size() + held_.size());
    EXPECT_EQ(dead.fresh_count(), released_.size() + fresh_.size());
    EXPECT_EQ(dead.released_count(), released_.size());
    EXPECT_EQ(dead.fresh_charge(), fresh_charge());
    EXPECT_EQ(parts_.retirement.looks_idle(), dead.empty());
    EXPECT_EQ(parts_.retirement.may_have_released(), !released_.empty());
    const MemoryRange asked = at(random_.below(3 * page_ + 1));
    bool expected = false;
    for (const Queue* queue : {&released_, &fresh_, &held_}) {
      for (const RegionIndex r : *queue) expected |= regions_[r].range.overlaps(asked);
    }
    for (const auto& [r, range] : retiring_) expected |= range.overlaps(asked);
    EXPECT_EQ(parts_.retirement.has_retiring(lock, asked), expected);
    for (const RegionIndex r : open_) EXPECT_TRUE(parts_.store.infos(lock)[r].listed);
  }

  Random random_;
  const bool drains_ =
      random_.below(2) == 0;  // else dead regions of memory that is still there become many
  Parts parts_{256, {100'000 * kPage, 256}};
  FakeThread thread_{256};
  size_t page_ = 0;
  uint32_t before_ = 0;                           // the epoch before the call
  std::map<RegionIndex, LeavingRegion> regions_;  // open or dead
  std::set<RegionIndex> open_;
  Queue released_, fresh_, held_;
  std::map<RegionIndex, MemoryRange> retiring_;
  std::vector<RegionQueue> unpinning_;
  RegionQueue retired_now_;
  std::set<RegionIndex> expected_retired_;
};

TEST(RetirementModel, RegionsRetireAfterAFenceAndTheirLastRelease) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    RetirementModel model(seed);
    for (int step = 0; step < 500; ++step) {
      model.step();
      ASSERT_FALSE(::testing::Test::HasFailure()) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace hydrant::testing
