// The queue of postings and arrivals (firehose/base/match_queue.hpp) as a machine small enough to be
// explored: what a state is, one step per load or compare-and-swap of shared memory, what must never be, and
// which rules can be left out. It shares no code with the queue: the rules are repeated here by hand.
// match_queue_model_test.cpp walks through all of it.
//
// Loads and compare-and-swaps take effect one after the other. That loses nothing: the only plain stores are
// an owner's to an element that no one can reach, and they are in memory before the compare-and-swap that
// shows it.
//
// Wrong is: somebody joins while a match waits on the other side; a match of somebody who does not wait
// there, has another key, or is not the oldest; an element given back that can still be reached; at the
// end, a list that is not exactly those who wait, in their order; and a path that comes back to where it
// was, which is a call that repeats itself although nobody else got on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace hydrant::model {

inline constexpr size_t kQueueThreads = 3;
inline constexpr size_t kQueueElements = 6;  // numbers 1 .. 6; 0 is a head
inline constexpr uint8_t kMiddle = 255;      // as the place of a word; others are an element's link
inline constexpr uint8_t kGotten = 254;  // as an element: the one that this thread's last call got

enum class QueueMutant : uint8_t {
  kNone,
  kNoMiddleVersion,  // the middle's version stays as it is
  kNoLinkVersion,    // a link's does
  kNoLook,           // a walk does not see whether the word that led to an element is unchanged
  kOwnHalfOnly,      // joining compares its own half of the middle alone
  kLateMiddle,       // joining compares with the middle as it is after the search
  kGiveBackAtOnce,   // a match is given back although the word before it could not be changed
  kTakenElsewhere,   // the taken mark is not part of the word that others compare
  kTakeByStore,      // a match is marked without comparing
  kNewestMatch,      // the first match of a walk instead of its last
  kNoHelp,           // a walk passes by what is taken instead of taking it out
};

enum QueueSide : uint8_t { kPostedSide, kUnexpectedSide };

struct QueueCall {
  QueueSide side;  // kPostedSide: a posting, which searches the unexpected
  uint8_t key;
  uint8_t element;
};
using QueueProgram = std::vector<QueueCall>;

// The middle: newest posted, newest unexpected, version. A link: next older, taken, version.
struct QueueWord {
  std::array<uint8_t, 2> part;
  uint8_t version;
};
inline bool same(const QueueWord& a, const QueueWord& b) {
  return a.part == b.part && a.version == b.version;
}

enum QueueStep : uint8_t {
  kBegin,
  kReadMiddle,
  kReadLink,
  kReadKey,
  kLook,
  kTakeOut,  // what the walk found taken
  kTake,     // the match
  kUnlink,   // the match
  kGiveBack,
  kReadAgain,  // kLateMiddle
  kWriteKey,
  kWriteLink,
  kJoin,
  kEnded
};

struct QueueFound {
  uint8_t number;
  QueueWord link;
  uint8_t from;
  QueueWord from_value;
};

// What a thread remembers between two steps.
struct QueueThread {
  uint8_t call, step, gotten;
  uint8_t seeing_out;  // 0, or the match that waits until a walk has come through
  QueueWord middle;
  uint8_t from;
  QueueWord from_value;
  uint8_t number;
  QueueWord link;
  uint8_t key;
  QueueFound found;
};

// Bytes only, so that states are compared and hashed as they lie in memory.
struct QueueState {
  QueueWord middle;
  std::array<QueueWord, kQueueElements + 1> link;
  std::array<uint8_t, kQueueElements + 1> key;
  std::array<QueueThread, kQueueThreads> thread;
  // Ghosts: who waits in truth, the oldest first; and what went wrong.
  std::array<std::array<uint8_t, kQueueElements>, 2> waits;
  std::array<uint8_t, 2> waiting;
  uint8_t wrong, matches;
};
static_assert(alignof(QueueState) == 1);

enum QueueWrong : uint8_t {
  kAllRight,
  kMissed,
  kMatchOfNobody,
  kMatchOfOtherKey,
  kNotTheOldest,
  kStillReachable
};

class QueueMachine {
 public:
  QueueMachine(std::vector<QueueProgram> programs, QueueMutant mutant)
      : programs_(std::move(programs)), mutant_(mutant) {
    programs_.resize(kQueueThreads);
  }

  // Everybody in `first` has called, one after the other, before the threads begin.
  QueueState start(const QueueProgram& first) {
    QueueState s;
    std::memset(&s, 0, sizeof s);
    const auto programs = programs_;
    programs_.assign(kQueueThreads, {});
    programs_[0] = first;
    while (step(s, 0)) {
    }
    programs_ = programs;
    s.thread[0] = QueueThread{};
    s.matches = 0;
    return s;
  }

  // The next step of a thread; false when it has ended.
  bool step(QueueState& s, size_t which) const {
    QueueThread& t = s.thread[which];
    if (t.step == kBegin && !begin(t, which)) return false;
    const QueueCall& call = programs_[which][t.call];
    const QueueSide other = call.side == kPostedSide ? kUnexpectedSide : kPostedSide;
    switch (t.step) {
      case kReadMiddle:
        t.middle = t.from_value = s.middle;
        t.from = kMiddle;
        t.found = QueueFound{};
        return to(t, s.middle.part[other]);
      case kReadLink: t.link = s.link[t.number]; return go(t, kReadKey);
      case kReadKey: t.key = s.key[t.number]; return go(t, kLook);
      case kLook: return look(s, t, call);
      case kTakeOut: return take_out(s, t, other);
      case kTake: return take(s, t, call, other);
      case kUnlink: {
        const uint8_t past = t.found.link.part[0];
        const bool done = change(s, t.found.from, t.found.from_value, other, past);
        if (done || is(QueueMutant::kGiveBackAtOnce)) return go(t, kGiveBack);
        t.seeing_out = t.found.number;
        return go(t, kReadMiddle);
      }
      case kGiveBack: return give_back(s, t);
      case kReadAgain: t.middle = s.middle; return go(t, kWriteKey);
      case kWriteKey: s.key[element_of(t, call)] = call.key; return go(t, kWriteLink);
      case kWriteLink: {
        QueueWord& link = s.link[element_of(t, call)];
        link.part = {t.middle.part[call.side], 0};
        if (!is(QueueMutant::kNoLinkVersion)) ++link.version;
        return go(t, kJoin);
      }
      case kJoin: return join(s, t, call, other);
      default: return false;
    }
  }

  // "" or what is wrong in this state; `ended` says that no thread has a step left.
  static const char* violation(const QueueState& s, bool ended) {
    switch (s.wrong) {
      case kMissed: return "joined while a match waited on the other side";
      case kMatchOfNobody: return "a match of one who does not wait there";
      case kMatchOfOtherKey: return "a match of another key";
      case kNotTheOldest: return "an older match was passed over";
      case kStillReachable: return "given back while it could still be reached";
      default: break;
    }
    return ended && !is_what_waits(s) ? "the list is not who waits, in their order" : "";
  }

 private:
  bool is(QueueMutant mutant) const { return mutant_ == mutant; }
  static bool go(QueueThread& t, QueueStep step) {
    t.step = step;
    return true;
  }
  static uint8_t element_of(const QueueThread& t, const QueueCall& call) {
    return call.element == kGotten ? t.gotten : call.element;
  }

  bool begin(QueueThread& t, size_t which) const {
    const QueueProgram& program = programs_[which];
    // A call with an element that was not gotten does not take place.
    while (t.call < program.size() && program[t.call].element == kGotten && t.gotten == 0) ++t.call;
    if (t.call == program.size()) return false;
    return go(t, kReadMiddle);
  }

  // The walk goes on to an element, or is at the head.
  bool to(QueueThread& t, uint8_t number) const {
    t.number = number;
    if (number != 0) return go(t, kReadLink);
    if (t.seeing_out != 0) {
      t.found.number = t.seeing_out;
      return go(t, kGiveBack);
    }
    if (t.found.number != 0) return go(t, kTake);
    return go(t, is(QueueMutant::kLateMiddle) ? kReadAgain : kWriteKey);
  }

  QueueWord& word(QueueState& s, uint8_t place) const {
    return place == kMiddle ? s.middle : s.link[place];
  }

  bool look(QueueState& s, QueueThread& t, const QueueCall& call) const {
    if (!is(QueueMutant::kNoLook) && !same(word(s, t.from), t.from_value)) {
      return go(t, kReadMiddle);
    }
    if (t.link.part[1] != 0) {
      if (is(QueueMutant::kNoHelp)) return to(t, t.link.part[0]);
      return go(t, kTakeOut);
    }
    const bool found_already = is(QueueMutant::kNewestMatch) && t.found.number != 0;
    if (t.seeing_out == 0 && t.key == call.key && !found_already) {
      t.found = {t.number, t.link, t.from, t.from_value};
    }
    t.from = t.number;
    t.from_value = t.link;
    return to(t, t.link.part[0]);
  }

  // Compares and swaps the word at a place, so that it leads to `number`; `value` is what it became.
  bool change(QueueState& s, uint8_t place, QueueWord& value, QueueSide side,
              uint8_t number) const {
    QueueWord& now = word(s, place);
    if (place != kMiddle && is(QueueMutant::kTakenElsewhere)) {
      if (now.part[0] != value.part[0]) return false;
      now.part[0] = number;
      value = now;
      return true;
    }
    if (!same(now, value)) return false;
    now.part[place == kMiddle ? side : 0] = number;
    if (!is(place == kMiddle ? QueueMutant::kNoMiddleVersion : QueueMutant::kNoLinkVersion)) {
      ++now.version;
    }
    value = now;
    return true;
  }

  bool take_out(QueueState& s, QueueThread& t, QueueSide side) const {
    if (!change(s, t.from, t.from_value, side, t.link.part[0])) return go(t, kReadMiddle);
    if (t.from == kMiddle) t.middle = t.from_value;
    if (t.found.number != 0 && t.from == t.found.number) t.found.link = t.from_value;
    return to(t, t.link.part[0]);
  }

  bool take(QueueState& s, QueueThread& t, const QueueCall& call, QueueSide side) const {
    QueueWord& link = s.link[t.found.number];
    if (!is(QueueMutant::kTakeByStore) && !same(link, t.found.link)) return go(t, kReadMiddle);
    link.part[1] = 1;
    if (!is(QueueMutant::kNoLinkVersion)) ++link.version;
    judge_match(s, t.found.number, call.key, side);
    ++s.matches;
    return go(t, kUnlink);
  }

  static void judge_match(QueueState& s, uint8_t number, uint8_t key, QueueSide side) {
    auto& waits = s.waits[side];
    size_t place = 0;
    while (place < s.waiting[side] && waits[place] != number) ++place;
    if (place == s.waiting[side]) {
      s.wrong = kMatchOfNobody;
      return;
    }
    if (s.key[number] != key) s.wrong = kMatchOfOtherKey;
    for (size_t i = 0; i < place; ++i) {
      if (s.key[waits[i]] == key) s.wrong = kNotTheOldest;
    }
    for (size_t i = place; i + 1 < kQueueElements; ++i) waits[i] = waits[i + 1];
    waits[kQueueElements - 1] = 0;
    --s.waiting[side];
  }

  static bool give_back(QueueState& s, QueueThread& t) {
    for (const QueueSide side : {kPostedSide, kUnexpectedSide}) {
      uint8_t number = s.middle.part[side];
      for (size_t steps = 0; number != 0 && steps < kQueueElements; ++steps) {
        if (number == t.found.number) s.wrong = kStillReachable;
        number = s.link[number].part[0];
      }
    }
    const uint8_t gotten = t.found.number;
    const uint8_t next = static_cast<uint8_t>(t.call + 1);
    t = QueueThread{};
    t.gotten = gotten;
    t.call = next;
    return true;
  }

  bool join(QueueState& s, QueueThread& t, const QueueCall& call, QueueSide other) const {
    const uint8_t number = element_of(t, call);
    if (is(QueueMutant::kOwnHalfOnly) && s.middle.part[call.side] == t.middle.part[call.side]) {
      t.middle = s.middle;
    }
    if (!change(s, kMiddle, t.middle, call.side, number)) return go(t, kReadMiddle);
    for (size_t i = 0; i < s.waiting[other]; ++i) {
      if (s.key[s.waits[other][i]] == call.key) s.wrong = kMissed;
    }
    s.waits[call.side][s.waiting[call.side]++] = number;
    const uint8_t next = static_cast<uint8_t>(t.call + 1);
    t = QueueThread{};
    t.call = next;
    return true;
  }

  static bool is_what_waits(const QueueState& s) {
    for (const QueueSide side : {kPostedSide, kUnexpectedSide}) {
      uint8_t number = s.middle.part[side];
      for (size_t left = s.waiting[side]; left > 0; --left) {
        if (number != s.waits[side][left - 1] || s.link[number].part[1] != 0) return false;
        number = s.link[number].part[0];
      }
      if (number != 0) return false;
    }
    return true;
  }

  std::vector<QueueProgram> programs_;
  QueueMutant mutant_;
};

}  // namespace hydrant::model
