// Parts of firehose/cache/region/ at random operations, against naive models.
#include "firehose/hit/hold.hpp"
#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace hydrant::testing {
namespace {

// A slot in quarantine. It may leave once it had no hold at some moment after a fence: a hold that comes
// later does no harm, because it finds a blank slot or a new region.
struct QuarantinedSlot {
  uint32_t epoch = 0;
  bool may_leave = false;
};

struct FreeSlotsModel {
  static constexpr uint32_t kSlots = 24;

  explicit FreeSlotsModel(uint32_t seed) : random(seed) {
    const CacheLock lock(parts.mu);
    for (size_t i = random.below(20); i > 0; --i) {  // a batch has a slot more per 8 threads
      threads.push_back(std::make_unique<FakeThread>(kSlots));
      parts.holds.attach(lock, threads.back()->state);
    }
  }
  ~FreeSlotsModel() {
    const CacheLock lock(parts.mu);
    for (const auto& thread : threads) parts.holds.detach(lock, thread->state);
  }

  void observe(const CacheLock& lock) {
    for (auto& [r, slot] : quarantined) {
      if (slot.epoch != parts.epoch.now(lock) && holds[r] == 0) slot.may_leave = true;
    }
  }
  void allocate(const CacheLock& lock) {
    const RegionIndex high = parts.store.high(lock);
    const unsigned fences = g_fences;
    const RegionIndex r = parts.free_slots.allocate(lock);
    observe(lock);
    EXPECT_LE(g_fences - fences, high + 1 < kSlots ? 0u : 1u) << "a fence that is not needed";
    if (r == kNoRegion) {
      EXPECT_EQ(high + 1, kSlots);
      for (const auto& [each, slot] : quarantined) EXPECT_NE(holds[each], 0u) << each;
      return;
    }
    if (r <= high) {
      ASSERT_EQ(quarantined.count(r), 1u) << "in use: " << r;
      EXPECT_TRUE(quarantined[r].may_leave) << r;
      quarantined.erase(r);
    }
    EXPECT_TRUE(used.insert(r).second) << r;
    parts.store.infos(lock)[r] = {};
  }
  void quarantine(const CacheLock& lock) {
    if (used.empty()) return;
    const RegionIndex r =
        *std::next(used.begin(), static_cast<ptrdiff_t>(random.below(used.size())));
    used.erase(r);
    parts.free_slots.quarantine(lock, r);
    EXPECT_EQ(parts.store.infos(lock)[r].state, RegionState::kQuarantine);
    quarantined[r] = {parts.epoch.now(lock), false};
  }
  // Threads between posting and checking, of which another one may drop the hold.
  void change_hold(const CacheLock& lock) {
    const RegionIndex high = parts.store.high(lock);
    if (high == kNoRegion) return;
    const auto r = static_cast<RegionIndex>(1 + random.below(high));
    const size_t i = random.below(threads.size() + 1);
    ThreadDomain* thread = i == threads.size() ? nullptr : &threads[i]->state;
    if (holds[r] != 0 && random.below(5) < 3) {
      (void)parts.holds.drop(lock, thread, r);
      --holds[r];
    } else {
      parts.holds.take(lock, thread, r);
      ++holds[r];
    }
  }

  Random random;
  Parts parts{kSlots};
  std::vector<std::unique_ptr<FakeThread>> threads;
  std::set<RegionIndex> used;
  std::map<RegionIndex, QuarantinedSlot> quarantined;
  std::map<RegionIndex, uint32_t> holds;
};

TEST(FreeSlotsModel, SlotIsReusedAfterAFenceAndWithoutHoldsOnly) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    FreeSlotsModel model(seed);
    const CacheLock lock(model.parts.mu);
    for (int step = 0; step < 400; ++step) {
      switch (model.random.below(8)) {
        case 0: model.parts.epoch.fence(lock); break;
        case 1:
        case 2: model.allocate(lock); break;
        case 3:
        case 4: model.quarantine(lock); break;
        default: model.change_hold(lock);
      }
      model.observe(lock);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "step " << step;
    }
    while (!model.used.empty()) model.quarantine(lock);
    model.parts.epoch.fence(lock);
    model.allocate(lock);  // some others leave the quarantine with it
    model.parts.free_slots.clear(lock);
    model.quarantined.clear();
    model.allocate(lock);  // never of those that were forgotten
  }
}

struct GateModel {
  bool open = false;
  bool shut = false;  // by the mutex's holder, and not opened since
  uint32_t closed_epoch = 0;
  bool hooked = false;
  bool checked = false;
};

// The gates of some regions, a flag of pending ranges and one of free hits.
struct GatesModel {
  explicit GatesModel(uint32_t seed) : random(seed) {
    parts.checks.follow(&ended);
    const CacheLock lock(parts.mu);
    for (size_t i = 0; i < 6; ++i) {
      const RegionIndex r = parts.add_pending(lock, at(4 * i, 1 + i % 3));
      RegionInfo& info = parts.store.infos(lock)[r];
      info.state = RegionState::kOpen;
      info.hooked = i % 2 != 0;
      info.checked = !info.hooked && has_checked;
      regions[r] = {.hooked = info.hooked, .checked = info.checked};
    }
    if (has_checked) parts.checks.note_checked();
  }

  void open(const CacheLock& lock, RegionIndex r) {
    GateModel& gate = regions[r];
    parts.gates.open(lock, r);
    note_open(gate);
  }
  void note_open(GateModel& gate) {
    gate.open = !pending;
    if (pending) return;
    gate.shut = false;
    if (gate.hooked && ended != 0 && !gate.checked) gate.checked = has_checked = true;
  }
  void shut(const CacheLock& lock, RegionIndex r) {
    GateModel& gate = regions[r];
    EXPECT_EQ(parts.gates.shut(lock, r), !gate.shut);
    if (!gate.shut) gate.closed_epoch = parts.epoch.now(lock);
    gate.shut = true;
    gate.open = false;
  }
  void check_from_now_on(const CacheLock& lock, RegionIndex r) {
    GateModel& gate = regions[r];
    parts.gates.check_from_now_on(lock, r);
    if (!gate.hooked || gate.checked || ended == 0) return;
    gate.checked = has_checked = true;
    if (gate.open) note_open(gate);
  }
  void mark(RegionIndex r, bool free_hits_only) {
    GateModel& gate = regions[r];
    RegionSlot& slot = parts.store.slot(r);
    free_hits_only ? mark_free_gate(slot) : mark_gates(slot);
    if (!free_hits_only || !gate.checked) gate.open = false;
  }
  void change_pending() {
    if (random.below(3) == 0) {
      parts.pending_ranges.add_nothing();
    } else {
      parts.pending_ranges.take([](MemoryRange) {}, [] {}, [] {});
    }
    pending = parts.pending_ranges.any();
  }
  void compare(const CacheLock& lock) {
    EXPECT_EQ(parts.checks.has_checked_regions(), has_checked);
    EXPECT_EQ(parts.checks.must_query(), has_checked || ended != 0);
    for (const auto& [r, gate] : regions) {
      const RegionInfo& info = parts.store.infos(lock)[r];
      const RegionSlot& slot = parts.store.slot(r);
      const uintptr_t end = info.range.end();
      EXPECT_EQ(parts.gates.is_shut(lock, r), !gate.open) << r;
      EXPECT_EQ(slot.gate == end, gate.open && !gate.checked) << r;
      EXPECT_EQ(slot.checked_gate == end, gate.open && gate.checked) << r;
      EXPECT_EQ(info.shut, gate.shut) << r;
      if (!gate.shut) continue;
      EXPECT_EQ(info.closed_epoch, gate.closed_epoch) << r;
    }
  }

  Random random;
  bool has_checked = random.below(2) == 0;  // a region was opened through its checked gate only
  bool pending = false;
  uint32_t ended = 0;  // free hits
  Parts parts;
  std::map<RegionIndex, GateModel> regions;
};

TEST(GatesModel, OneGateIsOpenAndNoneWhileRangesArePending) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    GatesModel model(seed);
    const CacheLock lock(model.parts.mu);
    for (int step = 0; step < 300; ++step) {
      const auto r = static_cast<RegionIndex>(1 + model.random.below(model.regions.size()));
      switch (model.random.below(10)) {
        case 0: model.parts.epoch.fence(lock); break;
        case 1: model.change_pending(); break;
        case 2: model.mark(r, model.random.below(2) == 0); break;
        case 3: model.check_from_now_on(lock, r); break;
        case 4:
        case 5: model.shut(lock, r); break;
        default: model.open(lock, r);
      }
      if (step == 150) model.ended = 1;
      model.compare(lock);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "step " << step;
    }
  }
}

TEST(BegunPinsModel, AgreesWithAListAcrossForks) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    struct Call {
      BegunPins::Entry entry;
      bool listed;  // false: entered by the parent
    };
    Random random(seed);
    Mutex mu;
    BegunPins begun;
    std::vector<std::unique_ptr<Call>> calls;
    const CacheLock lock(mu);
    for (int step = 0; step < 300; ++step) {
      if (random.below(50) == 0) {
        begun.reset_in_child(lock);
        for (const auto& call : calls) call->listed = false;
      } else if (calls.size() < 12 && random.below(2) == 0) {
        calls.push_back(std::make_unique<Call>());
        calls.back()->entry.pages = at(random.below(50), 1 + random.below(3));
        calls.back()->listed = true;
        begun.add(lock, calls.back()->entry);
      } else if (!calls.empty()) {
        std::swap(calls[random.below(calls.size())], calls.back());
        begun.remove(lock, calls.back()->entry);
        calls.pop_back();
      }
      const MemoryRange asked = at(random.below(50), 1 + random.below(3));
      const bool expected = std::any_of(calls.begin(), calls.end(), [&](const auto& call) {
        return call->listed && call->entry.pages.overlaps(asked);
      });
      ASSERT_EQ(begun.any_overlap(lock, asked), expected) << "step " << step;
    }
  }
}

// A region with an extension, by page: which of its pages no call has reached or gone past.
struct ExtendedModel {
  MemoryRange range;
  bool down = false;
  std::set<uintptr_t> unused;

  void reach(MemoryRange pages) {
    if (down) {
      unused.erase(unused.lower_bound(pages.addr), unused.end());
    } else {
      unused.erase(unused.begin(), unused.lower_bound(pages.end()));
    }
  }
};

struct ExtensionsModel {
  explicit ExtensionsModel(uint32_t seed) : random(seed) {}

  void enter(const CacheLock& lock) {
    const size_t pages = 2 + random.below(60);
    const size_t extra = 1 + random.below(pages - 1);
    ExtendedModel model{at(100 * page++, pages), random.below(2) == 0, {}};
    for (size_t i = 0; i < extra; ++i) {
      model.unused.insert(model.range.addr + (model.down ? i : pages - 1 - i) * kPage);
    }
    const RegionIndex r = parts.add_open(lock, model.range);
    parts.extensions.enter(lock, r, extra * kPage, model.down);
    EXPECT_TRUE(parts.store.infos(lock)[r].extended);
    extended_bytes += extra * kPage;
    regions[r] = model;
  }
  void reach(RegionIndex r) {
    ExtendedModel& model = regions[r];
    const size_t pages = model.range.len / kPage;
    const size_t first = random.below(pages);
    const MemoryRange part{model.range.addr + first * kPage,
                           (1 + random.below(pages - first)) * kPage};
    parts.extensions.note_reached(parts.store.slot(r), part);
    model.reach(part);
  }
  void judge(const CacheLock& lock, RegionIndex r) {
    const ExtendedModel& model = regions[r];
    const size_t bytes = model.unused.size() * kPage;
    parts.extensions.judge(lock, r);
    wasted_bytes += bytes;
    const bool wasted = bytes >= std::max<size_t>(65536, model.range.len / 4);
    patience = wasted ? std::min(2 * patience, 512u) : std::max(patience / 2, 2u);
    EXPECT_EQ(parts.extensions.streams(lock).patience(), patience);
    regions.erase(r);
  }
  void compare(const CacheLock& lock) {
    for (const auto& [r, model] : regions) {
      const uint32_t unused = parts.store.slot(r).unused_extension;
      ASSERT_EQ(unused & ~kUnusedBelow, model.unused.size()) << r;
      if (unused != 0) {
        ASSERT_EQ((unused & kUnusedBelow) != 0, model.down) << r;
      }
    }
    EXPECT_EQ(parts.totals.of(lock).extended_bytes, extended_bytes);
    EXPECT_EQ(parts.totals.of(lock).wasted_bytes, wasted_bytes);
  }

  Random random;
  Parts parts{256};
  std::map<RegionIndex, ExtendedModel> regions;
  size_t page = 0;
  uint64_t extended_bytes = 0;
  uint64_t wasted_bytes = 0;
  uint32_t patience = 2;
};

TEST(ExtensionsModel, UnusedPagesAreThoseBehindTheFurthestUse) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    ExtensionsModel model(seed);
    const CacheLock lock(model.parts.mu);
    for (int step = 0; step < 300; ++step) {
      const size_t known = model.regions.size();
      if (known == 0 || (known < 8 && model.random.below(3) == 0)) {
        model.enter(lock);
      } else {
        auto it =
            std::next(model.regions.begin(), static_cast<ptrdiff_t>(model.random.below(known)));
        switch (model.random.below(8)) {
          case 0:
            Extensions::note_all_reached(model.parts.store.slot(it->first));
            it->second.unused.clear();
            break;
          case 1:
          case 2: model.judge(lock, it->first); break;
          default: model.reach(it->first);
        }
      }
      model.compare(lock);
      ASSERT_FALSE(::testing::Test::HasFailure()) << "step " << step;
    }
  }
}

struct PendingModel {
  MemoryRange range;
  Access access;
  bool poisoned;
};

TEST(PendingRegionsModel, AgreesWithAListOfWhichReleasesPoisonSome) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Parts parts;
    std::map<RegionIndex, PendingModel> model;
    const CacheLock lock(parts.mu);
    for (int step = 0; step < 300; ++step) {
      const MemoryRange range = at(random.below(50), 1 + random.below(4));
      const auto access = static_cast<Access>(random.below(4));
      switch (model.empty() ? 9 : random.below(10)) {
        case 0:
        case 1:
        case 2: {
          const auto it =
              std::next(model.begin(), static_cast<ptrdiff_t>(random.below(model.size())));
          parts.pending.remove(lock, it->first);
          parts.budget.release(lock, {it->second.range.len, 1});
          parts.free_slots.quarantine(lock, it->first);
          model.erase(it);
          break;
        }
        case 3:
          parts.pending.poison(lock, range);
          for (auto& [r, each] : model) each.poisoned |= each.range.overlaps(range);
          break;
        case 4:
          if (random.below(10) != 0) break;
          parts.pending.poison_all(lock);
          for (auto& [r, each] : model) each.poisoned = true;
          break;
        default:
          if (model.size() == 20) break;
          const RegionIndex r = parts.add_pending(lock, range, access);
          parts.pending.add(lock, r);
          model[r] = {range, access, false};
      }
      const MemoryRange asked = at(random.below(50), 1 + random.below(2));
      const auto need = static_cast<Access>(random.below(4));
      const auto serves = [&](const auto& each) {
        return each.second.range.covers(asked) && includes(each.second.access, need) &&
               !each.second.poisoned;
      };
      const RegionIndex found = parts.pending.find(lock, asked, need);
      ASSERT_EQ(found != kNoRegion, std::any_of(model.begin(), model.end(), serves));
      if (found != kNoRegion) {
        const auto it = model.find(found);
        ASSERT_TRUE(it != model.end() && serves(*it)) << "step " << step;
      }
      ASSERT_EQ(parts.pending.any_overlap(lock, asked),
                std::any_of(model.begin(), model.end(),
                            [&](const auto& each) { return each.second.range.overlaps(asked); }))
          << "step " << step;
      for (const auto& [r, each] : model) {
        ASSERT_EQ(parts.store.infos(lock)[r].poisoned, each.poisoned) << "step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace hydrant::testing
