// Model of an acquisition that does not wait for the report of a release (ReleaseWaits::sync() of a range),
// small enough to be explored: every interleaving of a release, the owner after it, the owner after that, a
// cache that registers the memory at any time, and the monitor's reader. It shares no code with the monitor.
// docs/concurrency.md, "What a thread costs", gives the argument in prose.
//
// release  of watched memory: the kernel counts a change, frees the address, and queues the report; the
//          caller sleeps until the report is read; the count goes down. Memory that is not watched goes
//          without a report
// second   maps the address as soon as it is free. If a change is under way, it drops the address from the
//          set of what is watched and has the cache forget it; else it waits while the sequence is odd. Then
//          the memory is its own: it empties it (the report comes before the pages go), and releases it
// third    maps the address after that, in the same way
// cache    lists a registration as pending; watches the address unless the set says that it is watched;
//          does not go on during a removal; registers what pages there are; publishes them unless it was
//          made to forget meanwhile. Twice
// reader   makes the sequence odd, takes all reports, drops the address from the set, has the cache forget
//          it, makes the sequence even
//
// Pages have numbers: 1 before the release, 2 the second owner's, 3 after it has emptied them, 4 the third
// one's. Safety: while an owner has the address, the cache has no other pages published.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

namespace hydrant::model {
namespace {

enum class Mutant : uint8_t {
  kNone,
  kNothing,             // the owner neither waits nor has anything forgotten
  kStaysWatched,        // the set keeps the address
  kForgetsFirst,        // the cache forgets before the set does
  kSparesPending,       // pending registrations are not forgotten
  kDoesNotSettle,       // without a change under way it does not wait for the reader
  kReportEndsRemovals,  // the report of an unmapping also ends removals
};

enum Release : uint8_t { kOwns, kCounted, kFreed, kQueued, kRead, kEnds, kGone };
enum Owner : uint8_t { kMaps, kAsks, kDrops, kForgets, kSettles, kSync };
enum Emptying : uint8_t { kBefore, kReported, kHeard, kWoken, kEmptied, kAfter };
enum Cache : uint8_t { kIdle, kCovers, kRegistersKernel, kAdds, kLooks, kPins, kPublishes };
enum Reader : uint8_t { kPolls, kTakes, kEnters, kTells, kEvens };
constexpr uint8_t kRounds = 2;

// Bytes only and no padding: compared with memcmp().
struct State {
  uint8_t first, second_gone;         // Release: of the first owner, of the second
  uint8_t second, third, emptying;    // Owner, Owner, Emptying
  uint8_t second_waits, third_waits;  // for the end of the reading that they saw
  uint8_t pages, mapped, registered, locked;
  uint8_t under_way, odd;
  uint8_t watched, entries, removed;  // the set; how often it was changed; a removal goes on
  uint8_t cached, pending, poisoned, pinned, cache, seen_entries, rounds;
  uint8_t reader, took_unmapping, took_removal;
};
bool operator<(const State& a, const State& b) { return std::memcmp(&a, &b, sizeof a) < 0; }

class Explorer {
 public:
  explicit Explorer(Mutant mutant) : mutant_(mutant) {}

  bool is_safe() {
    State s;
    std::memset(&s, 0, sizeof s);
    s.pages = s.mapped = s.registered = s.watched = s.cached = 1;
    add(s);
    for (size_t at = 0; at < states_.size(); ++at) {
      if (!holds(states_[at])) return false;
      bool (Explorer::*const steps[])(State&)
          const = {&Explorer::release_first, &Explorer::acquire_second,
                   &Explorer::empty,         &Explorer::release_second,
                   &Explorer::acquire_third, &Explorer::run_cache,
                   &Explorer::read};
      for (const auto step : steps) {
        State next = states_[at];
        if ((this->*step)(next)) add(next);
      }
    }
    return true;
  }
  // Whether an owner has had the address before the report of the release was read; and the last one has it.
  bool early() const { return early_; }
  bool through() const { return through_; }

 private:
  bool is(Mutant mutant) const { return mutant_ == mutant; }
  void add(const State& s) {
    if (known_.insert(s).second) states_.push_back(s);
  }

  bool holds(const State& s) {
    const bool second_has_it = s.second == kSync && s.second_gone == kOwns;
    if (second_has_it && s.first < kRead) early_ = true;
    if (s.third == kSync) through_ = true;
    if (s.cached == 0) return true;
    if (second_has_it && s.emptying == kBefore) return s.cached == 2;
    if (second_has_it && s.emptying == kAfter) return s.cached == 3;
    return s.third != kSync || s.cached == 4;
  }

  // `step` is the caller's. The kernel's lock keeps others from registering or mapping between the first two.
  static bool release(State& s, uint8_t& step) {
    switch (step) {
      case kOwns:
        if (s.locked != 0) return false;
        if (s.registered == 0) {
          s.mapped = 0;
          step = kGone;
          return true;
        }
        ++s.under_way;
        s.locked = 1;
        step = kCounted;
        return true;
      case kCounted:
        s.mapped = s.registered = s.locked = 0;
        step = kFreed;
        return true;
      case kFreed: step = kQueued; return true;
      case kRead:
        --s.under_way;
        step = kEnds;
        return true;
      case kEnds:
        if (s.odd != 0) return false;
        step = kGone;
        return true;
      default: return false;  // asleep until it is read; or gone
    }
  }
  bool release_first(State& s) const { return release(s, s.first); }
  bool release_second(State& s) const {
    return s.second == kSync && s.emptying == kAfter && release(s, s.second_gone);
  }

  void forget(State& s) const {
    s.cached = 0;
    if (s.pending != 0 && !is(Mutant::kSparesPending)) s.poisoned = 1;
  }
  static void drop_watched(State& s) {
    s.watched = 0;
    ++s.entries;
  }

  bool acquire(State& s, uint8_t& step, uint8_t& waits, uint8_t pages) const {
    switch (step) {
      case kMaps:
        if (s.mapped != 0 || s.locked != 0) return false;
        s.mapped = 1;
        s.pages = pages;
        step = is(Mutant::kNothing) ? kSync : kAsks;
        return true;
      case kAsks:
        if (s.under_way != 0) {
          step = kDrops;
          return true;
        }
        waits = s.odd;
        step = is(Mutant::kDoesNotSettle) ? kSync : kSettles;
        return true;
      case kDrops:
        if (is(Mutant::kForgetsFirst)) {
          forget(s);
        } else if (!is(Mutant::kStaysWatched)) {
          drop_watched(s);
        }
        step = kForgets;
        return true;
      case kForgets:
        is(Mutant::kForgetsFirst) ? drop_watched(s) : forget(s);
        step = kSync;
        return true;
      case kSettles:
        if (waits != 0) return false;
        step = kSync;
        return true;
      default: return false;
    }
  }
  bool acquire_second(State& s) const { return acquire(s, s.second, s.second_waits, 2); }
  bool acquire_third(State& s) const {
    return s.second_gone >= kFreed && acquire(s, s.third, s.third_waits, 4);
  }

  bool empty(State& s) const {
    if (s.second != kSync || s.locked != 0) return false;
    switch (s.emptying) {
      case kBefore:
        if (s.registered == 0) {
          s.pages = 3;
          s.emptying = kAfter;
          return true;
        }
        ++s.under_way;
        s.emptying = kReported;
        return true;
      case kReported: return false;  // asleep until it is read
      case kHeard:
        --s.under_way;
        s.emptying = kWoken;
        return true;
      case kWoken:
        s.pages = 3;
        s.emptying = kEmptied;
        return true;
      case kEmptied:
        // The hook waits for the reader.
        if (s.odd != 0) return false;
        s.emptying = kAfter;
        return true;
      default: return false;
    }
  }

  static bool abandon(State& s) {
    s.pending = s.poisoned = s.pinned = 0;
    s.cache = kIdle;
    return true;
  }
  bool run_cache(State& s) const {
    switch (s.cache) {
      case kIdle:
        if (s.rounds == kRounds || s.cached != 0) return false;
        ++s.rounds;
        s.pending = 1;
        s.cache = kCovers;
        return true;
      case kCovers:
        s.cache = s.watched != 0 ? kLooks : kRegistersKernel;
        s.seen_entries = s.watched != 0 ? uint8_t{0} : s.entries;
        return true;
      case kRegistersKernel:
        if (s.locked != 0) return false;
        if (s.mapped == 0) return abandon(s);
        s.registered = 1;
        s.cache = kAdds;
        return true;
      case kAdds:
        if (s.entries != s.seen_entries) {
          s.cache = kRegistersKernel;
          s.seen_entries = s.entries;
          return true;
        }
        s.watched = 1;
        s.seen_entries = 0;
        s.cache = kLooks;
        return true;
      case kLooks:
        // Until the caller has returned, which its record shows.
        if (s.removed != 0) {
          if (s.emptying != kAfter) return abandon(s);
          s.removed = 0;
        }
        s.cache = kPins;
        return true;
      case kPins:
        // Without the kernel's lock: also while the pages are going.
        if (s.mapped == 0) return abandon(s);
        s.pinned = s.pages;
        s.cache = kPublishes;
        return true;
      default:
        if (s.poisoned == 0) s.cached = s.pinned;
        return abandon(s);
    }
  }

  bool read(State& s) const {
    switch (s.reader) {
      case kPolls:
        if (s.first != kQueued && s.second_gone != kQueued && s.emptying != kReported) return false;
        s.odd = 1;
        s.reader = kTakes;
        return true;
      case kTakes:
        if (s.first == kQueued || s.second_gone == kQueued) s.took_unmapping = 1;
        if (s.first == kQueued) s.first = kRead;
        if (s.second_gone == kQueued) s.second_gone = kRead;
        if (s.emptying == kReported) {
          s.emptying = kHeard;
          s.took_removal = 1;
        }
        s.reader = kEnters;
        return true;
      case kEnters:
        if (s.took_removal != 0) s.removed = 1;
        if (s.took_unmapping != 0) {
          drop_watched(s);
          if (is(Mutant::kReportEndsRemovals)) s.removed = 0;
        }
        s.took_removal = s.took_unmapping = 0;
        s.reader = kTells;
        return true;
      case kTells:
        forget(s);
        s.reader = kEvens;
        return true;
      default:
        s.odd = s.second_waits = s.third_waits = 0;
        s.reader = kPolls;
        return true;
    }
  }

  const Mutant mutant_;
  std::set<State> known_;
  std::vector<State> states_;
  bool early_ = false, through_ = false;
};

TEST(RangeSyncProtocol, NoOwnerFindsPagesOfAnother) {
  Explorer explorer(Mutant::kNone);
  EXPECT_TRUE(explorer.is_safe());
  EXPECT_TRUE(explorer.early() && explorer.through());
}

TEST(RangeSyncProtocolMutant, LeavingOutAPartIsFound) {
  EXPECT_FALSE(Explorer(Mutant::kNothing).is_safe());
  EXPECT_FALSE(Explorer(Mutant::kSparesPending).is_safe());
  EXPECT_FALSE(Explorer(Mutant::kDoesNotSettle).is_safe());
}

TEST(RangeSyncProtocolMutant, RelyingOnTheOldWatchIsFound) {
  EXPECT_FALSE(Explorer(Mutant::kStaysWatched).is_safe());
  EXPECT_FALSE(Explorer(Mutant::kForgetsFirst).is_safe());
}

TEST(RangeSyncProtocolMutant, ALateReportThatEndsARemovalIsFound) {
  EXPECT_FALSE(Explorer(Mutant::kReportEndsRemovals).is_safe());
}

}  // namespace
}  // namespace hydrant::model
