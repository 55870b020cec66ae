// Random retirements, unpinned in one step or two, against the set of pins that a registrar has.
#include "firehose/cache/unpinner.hpp"
#include "tests/unit/firehose/cache/parts_fixture.hpp"

#include <algorithm>
#include <cstring>
#include <map>

namespace hydrant::testing {
namespace {

// Knows its pins by key, and what state a region must have while its pin is undone.
class PinSetRegistrar final : public Registrar {
 public:
  PinSetRegistrar(Parts& parts, Random& random) : parts_(parts), random_(random) {
    traits_.unpins_in_batches = random.below(2) == 0;
  }
  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange range, Access, std::byte* key) noexcept override {
    ++last_;
    std::memcpy(key, &last_, sizeof last_);
    pins_[last_] = range;
    return Status::kOk;
  }
  UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept override {
    return unpin_many(&range, &key, 1);
  }
  UnpinResult unpin_many(const MemoryRange* ranges, const std::byte* const* keys,
                         size_t n) noexcept override {
    EXPECT_TRUE(n == 1 || traits_.unpins_in_batches);
    const CacheLock lock(parts_.mu);  // a registrar is called without it
    EXPECT_EQ(parts_.budget.charged(lock), charged) << "released before the pin was undone";
    for (size_t i = 0; i < n; ++i) {
      uint64_t key = 0;
      std::memcpy(&key, keys[i], sizeof key);
      EXPECT_EQ(pins_.count(key), 1u) << "undone twice";
      EXPECT_EQ(pins_[key], ranges[i]);
      EXPECT_TRUE(parts_.unpins.any_overlap(lock, ranges[i]));
      pins_.erase(key);
    }
    const auto result = static_cast<UnpinResult>(random_.below(3));
    (result == UnpinResult::kBroken ? broken : undone) += n;
    pending = pending || result == UnpinResult::kPending;
    any_broken = any_broken || result == UnpinResult::kBroken;
    return result;
  }
  uint64_t losses() const noexcept override { return lost; }
  size_t pins() const { return pins_.size(); }

  uint64_t undone = 0, broken = 0;
  bool pending = false, any_broken = false;  // since they were cleared
  uint64_t charged = 0;                      // must be, while a pin is undone
  uint64_t lost = 0;

 private:
  Parts& parts_;
  Random& random_;
  RegistrarTraits traits_;
  std::map<uint64_t, MemoryRange> pins_;
  uint64_t last_ = 0;
};

class UnpinnerModel {
 public:
  explicit UnpinnerModel(uint32_t seed) : random_(seed) {}

  void step() {
    switch (random_.below(8)) {
      case 0: retire(); break;
      case 1: unpin_some(); break;
      case 2: lose(); break;
      default: add();
    }
    compare();
  }

 private:
  void add() {
    if (open_.size() > 60) return;
    const CacheLock lock(parts_.mu);
    const MemoryRange range = at(5 * page_++, 1 + random_.below(4));
    const RegionIndex r = parts_.add_open(lock, range);
    EXPECT_EQ(open_.count(r) + retiring_.count(r), 0u) << "the slot is in use";
    open_[r] = range;
    RegionInfo& info = parts_.store.infos(lock)[r];
    info.prepinned = random_.below(8) == 0;
    if (info.prepinned) {
      parts_.victims.remove(lock, r);
      ++prepinned_;
    } else {
      (void)registrar_.pin(range, info.access, parts_.store.keys().of(r));
    }
    charged_ += range.len;
    pinned_ += range.len;
    parts_.totals.of(lock).pinned_bytes += range.len;
  }
  void retire() {
    const CacheLock lock(parts_.mu);
    RegionQueue list;
    for (size_t n = random_.below(20); n > 0 && !open_.empty(); --n) {
      const auto it = std::next(open_.begin(), static_cast<ptrdiff_t>(random_.below(open_.size())));
      parts_.victims.remove(lock, it->first);
      parts_.retirement.close(lock, it->first);
      list.push(parts_.store.infos(lock), it->first);
      retiring_.insert(*it);
      open_.erase(it);
    }
    parts_.retirement.settle(lock, &list, &retired_);
  }
  void unpin_some() {
    registrar_.charged = charged_;
    registrar_.pending = registrar_.any_broken = false;
    const bool reserved = random_.below(3) == 0;
    const auto charge = reserved ? Unpinner::Charge::kReserved : Unpinner::Charge::kReleased;
    const bool any = !retiring_.empty();
    if (random_.below(2) == 0) {
      const bool keeps = unpinner_.unpin(&retired_, charge);
      EXPECT_EQ(keeps, registrar_.pending && !registrar_.any_broken);
    } else if (any) {
      const Unpinner::Outcome outcome = unpinner_.deregister(retired_);
      const CacheLock lock(parts_.mu);
      EXPECT_EQ(parts_.budget.charged(lock), charged_);
      for (const auto& [r, range] : retiring_) {
        EXPECT_EQ(parts_.store.infos(lock)[r].state, RegionState::kRetiring);
      }
      unpinner_.settle(lock, &retired_, outcome, charge);
    }
    const CacheLock lock(parts_.mu);
    EXPECT_TRUE(retired_.empty());
    for (const auto& [r, range] : retiring_) {
      const RegionInfo& info = parts_.store.infos(lock)[r];
      EXPECT_EQ(info.state, RegionState::kQuarantine);
      EXPECT_EQ(info.closed_epoch, parts_.epoch.now(lock));
      if (info.prepinned) --prepinned_;
      pinned_ -= range.len;
      if (!reserved) charged_ -= range.len;
      if (reserved) ++reserved_regions_;
    }
    retiring_.clear();
    if (!any || registrar_.lost == lost_seen_) return;
    lost_seen_ = registrar_.lost;
    forget_all(lock);
  }
  // All but the client's own registrations are dead.
  void forget_all(const CacheLock& lock) {
    for (auto it = open_.begin(); it != open_.end();) {
      const RegionInfo& info = parts_.store.infos(lock)[it->first];
      EXPECT_EQ(info.state == RegionState::kDead, !info.prepinned);
      if (info.state == RegionState::kDead) retiring_.insert(*it);
      it = info.state == RegionState::kDead ? open_.erase(it) : std::next(it);
    }
    parts_.retirement.drain(lock, SIZE_MAX, &retired_);
  }
  void lose() {
    if (random_.below(8) == 0) ++registrar_.lost;
  }
  void compare() {
    const CacheLock lock(parts_.mu);
    const hydrant_stats_t& totals = parts_.totals.of(lock);
    EXPECT_EQ(registrar_.pins() + prepinned_, open_.size() + retiring_.size());
    EXPECT_EQ(parts_.budget.charged(lock), charged_);
    EXPECT_EQ(parts_.budget.regions(lock), open_.size() + retiring_.size() + reserved_regions_);
    EXPECT_EQ(totals.pinned_bytes, pinned_);
    EXPECT_EQ(totals.unpins, registrar_.undone);
    EXPECT_EQ(totals.unpin_failures, registrar_.broken);
    const MemoryRange asked = at(random_.below(5 * page_ + 1), 1 + random_.below(5));
    const bool expected = std::any_of(retiring_.begin(), retiring_.end(), [&](const auto& each) {
      return each.second.overlaps(asked);
    });
    EXPECT_EQ(parts_.unpins.any_overlap(lock, asked), expected);
  }

  Random random_;
  Parts parts_{256, {100'000 * kPage, 256}};
  PinSetRegistrar registrar_{parts_, random_};
  DomainConfig config_;
  Planner planner_{{config_, parts_.store, parts_.tables, parts_.budget,
                    parts_.evictor.working_set(), parts_.retirement, parts_.extensions}};
  Invalidator invalidator_{{parts_.mu, registrar_, parts_.store, parts_.tables, parts_.pending,
                            parts_.begun, parts_.retirement, planner_, parts_.totals,
                            parts_.pending_ranges}};
  WatchLink watch_{config_, parts_.checks};
  Unpinner unpinner_{{"model", parts_.mu, registrar_, parts_.store, parts_.unpins,
                      parts_.free_slots, parts_.budget, watch_, invalidator_, parts_.totals}};
  std::map<RegionIndex, MemoryRange> open_, retiring_;
  RegionQueue retired_;
  size_t page_ = 0;
  size_t prepinned_ = 0;
  uint64_t charged_ = 0;
  uint64_t pinned_ = 0;
  uint32_t reserved_regions_ = 0;  // paid for reservations
  uint64_t lost_seen_ = 0;
};

TEST(UnpinnerModel, EachPinIsUndoneOnceBeforeItsSlotAndChargeAreFree) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    UnpinnerModel model(seed);
    for (int step = 0; step < 300; ++step) {
      model.step();
      ASSERT_FALSE(::testing::Test::HasFailure()) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace hydrant::testing
