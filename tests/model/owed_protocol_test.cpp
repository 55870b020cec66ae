// Deferred forgetting without the mutex (firehose/base/pending_ranges.hpp) as a state machine for
// exhaustive search: every interleaving of a thread that reports a release, the holders of the mutex, and a
// user that relies on the report. It shares no code with the cache. docs/pin_cache.md, "Told without the
// mutex", has the argument.
//
// Memory   the table's entry and the gate of one region; the teller's range (`full`) and the counter of
// reported
//          ranges (`added`); state that only the mutex's holder touches. Plain stores of the holder enter a
//          FIFO buffer and reach memory at a later step; a read-modify-write first empties it.
// holder   takes the mutex, forgets owed ranges, and then: publishes a pending region; or shuts and reopens
// it; or
//          retires it and gives the slot to a region of the next life
// opening  gate = 0; check `added` by a read-modify-write; exchange the gate from 0 to open
// teller   the reporting thread, with the mutex, or at any moment without: full = 1; added += 1; looks into
// the
//          table; marks the gate; then reports completion
// user     begins after that: the gate must not be open, and a look-up with the mutex finds no region
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace hydrant::model {
namespace {

enum class Mutant : uint8_t {
  kNone,
  kNoCheck,           // a gate is opened without a check for owed ranges
  kCheckAfterOpen,    // the check follows the opening, and shuts the gate again
  kPlainCheck,        // the check is a plain load
  kPlainOpen,         // the gate is opened by a plain store
  kInsertAfterCheck,  // the table is written after the check
  kMarkOnlyOpen,      // the teller does not mark shut gates
  kMarkBeforeAdd,     // the teller marks first, and adds the range afterwards
  kToldBeforeMarks,   // the sequence becomes even before the gates are shut
  kNoDrain,           // a holder does not forget owed ranges
  kDrainAfterLook,    // a holder forgets owed ranges after its look-up
  kPendingKept,       // owed ranges do not affect pending regions
  kEraseBeforeShut,   // a region leaves the table before its gate is shut
  kMarksStay,         // an opening does not clear a mark
};

enum Gate : uint8_t { kShut, kMarked, kOpenGate };
enum Status : uint8_t { kPending, kOpen, kDead };
enum Owner : uint8_t { kFree, kHolder, kTeller, kUser };
enum Variable : uint8_t { kTable, kGate, kVariables };

enum HolderStep : uint8_t {
  kIdle,
  kPublish,
  kClearMark,
  kCheck,
  kExchange,
  kCheckLate,
  kShutFirst,
  kThenErase,
  kUnlock,
};
enum TellerStep : uint8_t { kBegin, kAdd, kLook, kMark, kSay, kAddLate, kForgetLocked, kTold };
enum UserStep : uint8_t { kWaits, kDrains, kLooks, kLooked };

// Bytes only and no padding: states are compared as bytes.
struct State {
  std::array<uint8_t, kVariables> memory;
  std::array<std::array<uint8_t, 2>, 4> buffer;  // the holder's buffer: variable, value
  uint8_t buffered;
  uint8_t added, taken, full;
  uint8_t owner, status, poisoned, life;  // life 1 begins after the reported release
  uint8_t holder, teller, user, turns;
  uint8_t found, told, wrong;
};
static_assert(sizeof(State) == kVariables + 8 + 15);
bool operator<(const State& a, const State& b) { return std::memcmp(&a, &b, sizeof a) < 0; }

struct Seen {
  bool delegated_open = false, delegated_pending = false, left_shut = false,
       exchange_failed = false;
  bool reopened = false, reused = false, marked_next_life = false;
};

class Explorer {
 public:
  Explorer(Status status, Mutant mutant) : mutant_(mutant) {
    State s;
    std::memset(&s, 0, sizeof s);
    s.status = status;
    s.memory[kTable] = status == kOpen ? 1 : 0;
    s.memory[kGate] = status == kOpen ? kOpenGate : kShut;
    s.turns = 3;
    push(s);
  }

  std::string run() {
    while (!open_.empty() && violation_.empty()) {
      const State s = open_.back();
      open_.pop_back();
      check(s);
      bool stuck = true;
      const auto step = [&](bool taken, const State& next) {
        if (!taken) return;
        stuck = false;
        push(next);
      };
      if (s.buffered != 0) {
        State next = s;
        flush_one(next);
        step(true, next);
      }
      for (int choice = 0; choice < 2; ++choice) {
        State next = s;
        const bool taken = holder(next, choice);
        step(taken, next);
      }
      for (int choice = 0; choice < 2; ++choice) {
        State next = s;
        const bool taken = teller(next, choice);
        step(taken, next);
      }
      State next = s;
      const bool taken = user(next);
      step(taken, next);
      if (stuck) at_the_end(s);
    }
    return violation_;
  }
  const Seen& seen() const { return seen_; }
  size_t states() const { return known_.size(); }

 private:
  bool is(Mutant mutant) const { return mutant_ == mutant; }
  void push(const State& s) {
    if (known_.insert(s).second) open_.push_back(s);
  }

  void check(const State& s) {
    if (s.wrong != 0) violation_ = "a look-up with the mutex finds a forgotten region";
    if (s.told != 0 && s.life == 0 && s.memory[kGate] == kOpenGate && s.status != kDead)
      violation_ = "the gate of a forgotten region is open";
    if (s.told != 0 && s.life == 0 && s.memory[kGate] == kOpenGate && s.status == kDead)
      violation_ = "the gate of a dead region is open";
  }
  // All threads have ended: the next use of an open region must be able to open its gate.
  void at_the_end(const State& s) {
    State next = s;
    if (next.owner != kFree) {
      violation_ = "a thread is blocked";
      return;
    }
    drain(next);
    if (next.status != kOpen) return;
    if (!is(Mutant::kMarksStay)) next.memory[kGate] = kShut;
    if (next.memory[kGate] == kMarked) violation_ = "a gate stays marked for ever";
  }

  static void flush_one(State& s) {
    s.memory[s.buffer[0][0]] = s.buffer[0][1];
    for (size_t i = 0; i + 1 < s.buffer.size(); ++i) s.buffer[i] = s.buffer[i + 1];
    s.buffer.back() = {0, 0};
    --s.buffered;
  }
  static void flush(State& s) {
    while (s.buffered != 0) flush_one(s);
  }
  static void store(State& s, Variable variable, uint8_t value) {
    if (s.buffered == s.buffer.size()) flush_one(s);
    s.buffer[s.buffered++] = {variable, value};
  }
  // The holder's own view, its buffer included.
  static uint8_t load(const State& s, Variable variable) {
    for (size_t i = s.buffered; i > 0; --i) {
      if (s.buffer[i - 1][0] == variable) return s.buffer[i - 1][1];
    }
    return s.memory[variable];
  }

  // Forgets the region; the caller holds the mutex.
  void forget(State& s) const {
    if (s.status == kPending) {
      s.poisoned = is(Mutant::kPendingKept) && s.owner != kTeller ? 0 : 1;
    } else if (s.status == kOpen) {
      s.memory[kGate] = kShut;
      s.memory[kTable] = 0;
      s.status = kDead;
    }
  }
  void drain(State& s) const {
    if (is(Mutant::kNoDrain) || s.added == s.taken) return;
    flush(s);
    if (s.full == 1) {
      s.full = 2;
      forget(s);
    }
    s.taken = s.added;
  }

  bool holder(State& s, int choice) {
    switch (s.holder) {
      case kIdle:
        if (choice != 0 || s.turns == 0 || s.owner != kFree) return false;
        s.owner = kHolder;
        flush(s);
        --s.turns;
        s.holder = kUnlock;
        if (s.status == kPending) {
          drain(s);
          if (s.poisoned != 0) {
            s.status = kDead;
          } else {
            s.holder = kPublish;
          }
        } else {
          drain(s);
          s.holder = kShutFirst;
        }
        return true;
      case kPublish:
        if (choice != 0) return false;
        if (!is(Mutant::kInsertAfterCheck)) store(s, kTable, 1);
        s.status = kOpen;
        s.holder = kClearMark;
        return true;
      case kClearMark:
        if (choice != 0) return false;
        if (!is(Mutant::kMarksStay) || load(s, kGate) == kOpenGate) store(s, kGate, kShut);
        s.holder = is(Mutant::kNoCheck) || is(Mutant::kCheckAfterOpen) ? kExchange : kCheck;
        return true;
      case kCheck:
        if (choice != 0) return false;
        if (!is(Mutant::kPlainCheck)) flush(s);
        if (s.added != s.taken) {
          seen_.left_shut = true;
          if (is(Mutant::kInsertAfterCheck)) store(s, kTable, 1);
          s.holder = kUnlock;
        } else {
          s.holder = kExchange;
        }
        return true;
      case kExchange:
        if (choice != 0) return false;
        if (is(Mutant::kInsertAfterCheck)) store(s, kTable, 1);
        if (is(Mutant::kPlainOpen)) {
          store(s, kGate, kOpenGate);
        } else {
          flush(s);
          if (s.memory[kGate] == kShut) {
            s.memory[kGate] = kOpenGate;
            seen_.reopened = true;
          } else {
            seen_.exchange_failed = true;
          }
        }
        s.holder = is(Mutant::kCheckAfterOpen) ? kCheckLate : kUnlock;
        return true;
      case kCheckLate:
        if (choice != 0) return false;
        flush(s);
        if (s.added != s.taken) s.memory[kGate] = kShut;
        s.holder = kUnlock;
        return true;
      case kShutFirst:
        // Shuts and reopens an open region, or retires it; the slot of a dead one serves the next life.
        if (s.status == kDead) {
          if (choice != 0 || s.told == 0) return choice == 0 && unlock(s);
          s.life = 1;
          s.holder = kPublish;
          seen_.reused = true;
          return true;
        }
        if (choice == 0) {
          store(s, kGate, kShut);
          s.holder = kClearMark;
        } else if (is(Mutant::kEraseBeforeShut)) {
          store(s, kTable, 0);
          s.holder = kThenErase;
        } else {
          store(s, kGate, kShut);
          s.holder = kThenErase;
        }
        return true;
      case kThenErase:
        if (choice != 0) return false;
        if (is(Mutant::kEraseBeforeShut)) {
          store(s, kGate, kShut);
        } else {
          store(s, kTable, 0);
        }
        s.status = kDead;
        s.holder = kUnlock;
        return true;
      default: return choice == 0 && unlock(s);
    }
  }
  static bool unlock(State& s) {
    flush(s);
    s.owner = kFree;
    s.holder = kIdle;
    return true;
  }

  bool teller(State& s, int choice) {
    const bool early = is(Mutant::kMarkBeforeAdd);
    switch (s.teller) {
      case kBegin:
        if (choice == 0) {
          if (s.owner != kFree) return false;
          s.owner = kTeller;
          s.teller = kForgetLocked;
          return true;
        }
        // At any moment, without the mutex.
        if (early) {
          s.teller = kLook;
          return true;
        }
        s.full = 1;
        s.teller = kAdd;
        return true;
      case kAdd:
        if (choice != 0) return false;
        ++s.added;
        if (s.status == kPending) seen_.delegated_pending = true;
        if (s.status == kOpen) seen_.delegated_open = true;
        if (is(Mutant::kToldBeforeMarks)) s.told = 1;
        s.teller = kLook;
        return true;
      case kLook:
        if (choice != 0) return false;
        s.found = s.memory[kTable];
        s.teller = kMark;
        return true;
      case kMark:
        if (choice != 0) return false;
        if (s.found != 0 && !(is(Mutant::kMarkOnlyOpen) && s.memory[kGate] != kOpenGate)) {
          if (s.life == 1) seen_.marked_next_life = true;
          s.memory[kGate] = kMarked;
        }
        s.teller = early ? kAddLate : kSay;
        return true;
      case kAddLate:
        if (choice != 0) return false;
        s.full = 1;
        ++s.added;
        s.teller = kSay;
        return true;
      case kSay:
        if (choice != 0) return false;
        s.told = 1;
        s.teller = kTold;
        return true;
      case kForgetLocked:
        if (choice != 0) return false;
        forget(s);
        s.owner = kFree;
        s.teller = kSay;
        return true;
      default: return false;
    }
  }

  bool user(State& s) {
    switch (s.user) {
      case kWaits:
        if (s.told == 0 || s.owner != kFree) return false;
        s.owner = kUser;
        s.user = is(Mutant::kDrainAfterLook) ? kLooks : kDrains;
        return true;
      case kDrains:
        drain(s);
        s.user = is(Mutant::kDrainAfterLook) ? kLooked : kLooks;
        if (s.user == kLooked) s.owner = kFree;
        return true;
      case kLooks:
        if (s.life == 0 && s.status == kOpen && s.memory[kTable] != 0) s.wrong = 1;
        if (is(Mutant::kDrainAfterLook)) {
          s.user = kDrains;
        } else {
          s.user = kLooked;
          s.owner = kFree;
        }
        return true;
      default: return false;
    }
  }

  const Mutant mutant_;
  std::set<State> known_;
  std::vector<State> open_;
  std::string violation_;
  Seen seen_;
};

TEST(OwedProtocol, AReportedRangeIsNotServedWhenARegionIsPublished) {
  Explorer explorer(kPending, Mutant::kNone);
  EXPECT_EQ(explorer.run(), "") << explorer.states() << " states";
  EXPECT_TRUE(explorer.seen().delegated_pending && explorer.seen().delegated_open);
  EXPECT_TRUE(explorer.seen().left_shut && explorer.seen().exchange_failed);
}

TEST(OwedProtocol, AReportedRangeIsNotServedWhenARegionIsReopenedRetiredOrReplaced) {
  Explorer explorer(kOpen, Mutant::kNone);
  EXPECT_EQ(explorer.run(), "") << explorer.states() << " states";
  EXPECT_TRUE(explorer.seen().delegated_open && explorer.seen().reopened);
  EXPECT_TRUE(explorer.seen().left_shut && explorer.seen().exchange_failed);
  EXPECT_TRUE(explorer.seen().reused);
}

std::string damage_of(Mutant mutant) {
  for (const Status status : {kPending, kOpen}) {
    std::string found = Explorer(status, mutant).run();
    if (!found.empty()) return found;
  }
  return "";
}

TEST(OwedProtocolMutant, OpeningWithoutACheckForOwedRangesIsFound) {
  EXPECT_NE(damage_of(Mutant::kNoCheck), "");
  EXPECT_NE(damage_of(Mutant::kCheckAfterOpen), "");
  EXPECT_NE(damage_of(Mutant::kPlainCheck), "");
  EXPECT_NE(damage_of(Mutant::kInsertAfterCheck), "");
}

TEST(OwedProtocolMutant, OpeningOverAMarkIsFound) {
  EXPECT_NE(damage_of(Mutant::kPlainOpen), "");
  EXPECT_NE(damage_of(Mutant::kMarkOnlyOpen), "");
}

TEST(OwedProtocolMutant, ReportingInTheWrongOrderIsFound) {
  EXPECT_NE(damage_of(Mutant::kMarkBeforeAdd), "");
  EXPECT_NE(damage_of(Mutant::kToldBeforeMarks), "");
}

TEST(OwedProtocolMutant, ForgettingTooLateIsFound) {
  EXPECT_NE(damage_of(Mutant::kNoDrain), "");
  EXPECT_NE(damage_of(Mutant::kDrainAfterLook), "");
  EXPECT_NE(damage_of(Mutant::kPendingKept), "");
}

TEST(OwedProtocolMutant, LeavingTheTableWithAnOpenGateIsFound) {
  EXPECT_NE(damage_of(Mutant::kEraseBeforeShut), "");
}

TEST(OwedProtocolMutant, AMarkThatIsNeverClearedIsFound) {
  EXPECT_NE(damage_of(Mutant::kMarksStay), "");
}

}  // namespace
}  // namespace hydrant::model
