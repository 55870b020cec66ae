// Explores every interleaving of a sending rank and one that goes idle and sleeps, with store buffers
// (docs/wire_format_shm.md, "A message to an idle ring is noticed", "A sleeper is woken"): no rank sleeps for
// ever while a message waits. Then each rule is left out in turn, and the same search must find the lost
// wakeup.
//
// It shares no code with rdma/shm: the rules are written again by hand. Memory: the number of messages in the
// ring, whether the reader polls the ring (attention), the bell, the sleep word, and a word that the sender
// stores before it wakes the other (that of a barrier). Stores of the sender enter its FIFO buffer and reach
// memory at a later step. Loads happen in program order and read memory. A locked instruction first empties
// the own buffer; membarrier empties the other thread's.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

namespace {

constexpr uint8_t kMessages = 2;

enum class Mode : uint8_t { kMembarrier, kConfirm };
enum class Mutant : uint8_t {
  kNone,
  kNoBarrier,            // the reader's last check has no membarrier
  kBarrierForRingsOnly,  // the reader's last check has it only if a ring has gone idle
  kPlainLook,            // the sender confirms with a plain load
  kNoLastLook,           // the reader does not check the ring again
  kNoLookAtBells,        // the reader does not check the bells after it announced its sleep
  kAnnounceLast,         // the reader announces its sleep after all its checks
  kBellAfterSleepers     // the sender checks for sleepers before it rings
};

// A wake-up at the end would hide an earlier loss, so it is also tried first.
enum class Order : uint8_t { kMessagesFirst, kWordFirst };

enum Sender : uint8_t { kStore, kLook, kSwap, kRing, kSeek, kWake, kWord, kRouse, kSent };
enum Reader : uint8_t {
  kPoll,
  kBells,
  kGoIdle,
  kAnnounce,
  kBarrier,
  kLastLook,
  kBellsAgain,
  kCheck,
  kLateAnnounce,
  kSleep,
  kAsleep
};

struct State {
  // memory
  uint8_t messages = 0, attention = 0, bell = 0, sleep = 0, word = 0;
  // the sender
  uint8_t step = kStore, sent = 0, buffered = 0, seen_sleep = 0;
  uint8_t buffer[kMessages + 1] = {};  // a number of messages; 0: the word
  uint8_t rung = 0;                    // kBellAfterSleepers: it has checked for sleepers
  // the reader
  uint8_t at = kPoll, got = 0, got_word = 0, active = 0, announced = 0, retired = 0, woken = 0;

  std::string key() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
};
static_assert(sizeof(State) == 5 + 4 + kMessages + 1 + 1 + 7,
              "no padding: states are compared as bytes");

class Search {
 public:
  Search(Mode mode, Order order, Mutant mutant) : mode_(mode), order_(order), mutant_(mutant) {}

  // "" or the state in which a rank sleeps although a message or word waits.
  std::string run() {
    State start;
    if (order_ == Order::kWordFirst) start.step = kWord;
    walk(start);
    return lost_;
  }
  size_t states() const { return known_.size(); }
  bool slept() const { return slept_; }

 private:
  bool is(Mutant mutant) const { return mutant_ == mutant; }

  void walk(const State& s) {
    if (!lost_.empty() || !known_.insert(s.key()).second) return;
    slept_ = slept_ || s.at == kAsleep;
    bool stuck = true;
    for (const auto step : {&Search::write_back, &Search::send, &Search::read}) {
      State next = s;
      if (!(this->*step)(next)) continue;
      stuck = false;
      walk(next);
    }
    const bool all = s.got == kMessages && s.got_word != 0;
    if (stuck && !all) {
      lost_ = "asleep with " + std::to_string(s.got) + " of " + std::to_string(s.messages) +
              " messages, attention " + std::to_string(s.attention) + ", bell " +
              std::to_string(s.bell) + ", word " + std::to_string(s.word);
    }
  }

  bool write_back(State& s) {
    if (s.buffered == 0) return false;
    (s.buffer[0] != 0 ? s.messages : s.word) = s.buffer[0] != 0 ? s.buffer[0] : uint8_t{1};
    for (uint8_t i = 1; i < s.buffered; ++i) s.buffer[i - 1] = s.buffer[i];
    s.buffer[--s.buffered] = 0;
    return true;
  }
  // Whether the own buffer is empty, as locked instructions require.
  static bool drained(const State& s) { return s.buffered == 0; }
  static void put(State& s, uint8_t what) { s.buffer[s.buffered++] = what; }
  void next_message(State& s) const {
    s.rung = 0;
    s.step = s.sent < kMessages ? kStore : order_ == Order::kWordFirst ? kSent : kWord;
  }

  bool send(State& s) {
    const bool confirms = mode_ == Mode::kConfirm;
    switch (s.step) {
      case kStore:
        put(s, ++s.sent);
        s.step = kLook;
        return true;
      case kLook:
        if (confirms && !is(Mutant::kPlainLook) && !drained(s)) return false;
        if (s.attention != 0) {
          next_message(s);
        } else {
          s.step = kSwap;
        }
        return true;
      case kSwap:
        if (!drained(s)) return false;
        if (s.attention != 0) {
          next_message(s);
        } else {
          s.step = is(Mutant::kBellAfterSleepers) ? kSeek : kRing;
        }
        s.attention = 1;
        return true;
      case kRing:
        if (!drained(s)) return false;
        s.bell = 1;
        s.step = kSeek;
        if (s.rung != 0) next_message(s);
        return true;
      case kSeek:
      case kRouse:
        if (s.step == kRouse && confirms && !drained(s)) return false;  // a full fence
        s.seen_sleep = s.sleep;
        if ((s.sleep & 1) != 0) {
          s.rung = s.step == kRouse ? 2 : s.rung;
          s.step = kWake;
        } else {
          after_sleepers(s);
        }
        return true;
      case kWake:
        if (!drained(s)) return false;
        if (s.sleep == s.seen_sleep) {
          ++s.sleep;
          s.woken = s.at == kAsleep ? 1 : s.woken;
        }
        if (s.rung == 2) s.step = kRouse;
        after_sleepers(s);
        return true;
      case kWord:
        put(s, 0);
        s.step = kRouse;
        return true;
      default: return false;
    }
  }
  void after_sleepers(State& s) const {
    if (s.step == kRouse) {
      s.step = kSent;
      if (order_ == Order::kWordFirst) next_message(s);
    } else if (is(Mutant::kBellAfterSleepers)) {
      s.rung = 1;
      s.step = kRing;
    } else {
      next_message(s);
    }
  }

  bool read(State& s) {
    switch (s.at) {
      case kPoll: return poll(s);
      case kBells: return go(s, s.bell != 0 ? kPoll : kGoIdle);
      case kGoIdle:
        s.retired = s.active;
        if (s.active != 0) s.attention = 0;
        s.active = 0;
        return go(s, kAnnounce);
      case kAnnounce:
        if (!is(Mutant::kAnnounceLast)) announce(s);
        return go(s, kBarrier);
      case kBarrier:
        if (mode_ == Mode::kMembarrier && !is(Mutant::kNoBarrier) &&
            (s.retired != 0 || !is(Mutant::kBarrierForRingsOnly))) {
          while (write_back(s)) {
          }
        }
        return go(s, kLastLook);
      case kLastLook:
        if (s.retired == 0 || is(Mutant::kNoLastLook) || s.messages == s.got) {
          return go(s, kBellsAgain);
        }
        s.attention = 1;
        s.active = 1;
        return go(s, kPoll);
      case kBellsAgain: return go(s, s.bell != 0 && !is(Mutant::kNoLookAtBells) ? kPoll : kCheck);
      case kCheck:
        return go(s, s.word != s.got_word        ? kPoll
                     : is(Mutant::kAnnounceLast) ? kLateAnnounce
                                                 : kSleep);
      case kLateAnnounce: announce(s); return go(s, kSleep);
      case kSleep: s.woken = 0; return go(s, s.sleep == s.announced ? kAsleep : kPoll);
      default: return s.woken != 0 && go(s, kPoll);
    }
  }
  static bool go(State& s, Reader next) {
    s.at = next;
    return true;
  }
  static void announce(State& s) {
    s.sleep |= 1;
    s.announced = s.sleep;
  }
  // Handles a single event.
  static bool poll(State& s) {
    if (s.bell != 0) {
      s.bell = 0;
      s.active = 1;
    } else if (s.active != 0 && s.messages != s.got) {
      ++s.got;
    } else if (s.word != s.got_word) {
      s.got_word = s.word;
    } else {
      s.retired = 0;
      s.at = kBells;
    }
    return true;
  }

  Mode mode_;
  Order order_;
  Mutant mutant_;
  std::unordered_set<std::string> known_;
  std::string lost_;
  bool slept_ = false;
};

TEST(RingIdleProtocol, NoRankSleepsWhileAMessageWaits) {
  for (const Mode mode : {Mode::kMembarrier, Mode::kConfirm}) {
    for (const Order order : {Order::kMessagesFirst, Order::kWordFirst}) {
      Search search(mode, order, Mutant::kNone);
      EXPECT_EQ(search.run(), "");
      EXPECT_TRUE(search.slept());
      EXPECT_GT(search.states(), 500u);
    }
  }
}

TEST(RingIdleProtocol, EachRuleIsNeeded) {
  const std::vector<std::tuple<Mode, Mutant>> without = {
      {Mode::kMembarrier, Mutant::kNoBarrier},
      {Mode::kConfirm, Mutant::kPlainLook},
      {Mode::kMembarrier, Mutant::kNoLastLook},
      {Mode::kConfirm, Mutant::kNoLastLook},
      {Mode::kMembarrier, Mutant::kNoLookAtBells},
      {Mode::kConfirm, Mutant::kNoLookAtBells},
      {Mode::kMembarrier, Mutant::kAnnounceLast},
      {Mode::kConfirm, Mutant::kAnnounceLast},
      {Mode::kMembarrier, Mutant::kBellAfterSleepers},
      {Mode::kConfirm, Mutant::kBellAfterSleepers},
      {Mode::kMembarrier, Mutant::kBarrierForRingsOnly}};
  for (const auto& [mode, mutant] : without) {
    std::string lost;
    for (const Order order : {Order::kMessagesFirst, Order::kWordFirst}) {
      lost += Search(mode, order, mutant).run();
    }
    EXPECT_NE(lost, "") << static_cast<int>(mode) << ", " << static_cast<int>(mutant);
  }
}

}  // namespace
