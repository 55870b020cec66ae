// Model of the notes in a thread's record (firehose/watch/hooks/watched_call.hpp, class Inside) and of a
// wait for the calls that may release one address (HookedCallsUnderWay::have_returned()), small enough to be
// explored: every interleaving of a thread, of signal handlers that interrupt it anywhere, each other
// included, and of the waiting thread, which reads the record word by word. It shares no code with either.
//
// thread   makes two calls, one after the other; handlers make three more, at any point, two deep at most.
//          Each call releases an address of its own: it notes it, the kernel frees it, the caches forget it,
//          and it removes its note. The outermost call has mark and note, the others share the inner note
// waiter   has got the address that one of the calls released. It waits while the record is marked and one
//          of the notes may be that of the address
//
// Safety: the waiter finishes only when the caches have forgotten the address.
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
  kNoAnything,        // an inner note is written over the empty one
  kWritesOverInner,   // a third call writes its note over the second one's
  kLateNote,          // the note comes after the kernel's work
  kMarkGoesEarly,     // the mark goes when the kernel is through, before the caches have forgotten
  kNoteGoesEarly,     // the note does
  kInnerMarksNothing  // a handler's call leaves no note
};

constexpr int kCalls = 5;    // 0, 1: the thread's; 2 to 4: handlers'
constexpr int kThreads = 2;  // how many are the thread's own
constexpr int kDeepest = 3;  // calls inside one another
constexpr uint8_t kAnything = 9, kLength = 1;

enum Step : uint8_t {
  kOut,
  kLooked,
  kMarked,
  kAddressed,
  kNoted,
  kFreed,
  kForgotten,
  kUnmarked,
};
struct Frame {
  uint8_t call, step, outermost, outer_len;
};
// Bytes only and no padding: compared with memcmp().
struct State {
  std::array<Frame, kDeepest> frames;
  uint8_t depth, begun,
      handlers;  // frames in use; calls of the thread, and of handlers, that have begun
  std::array<uint8_t, kCalls> freed, forgotten;
  uint8_t entered, addr, len, inner_addr, inner_len;
  uint8_t waiter, seen_addr, seen_len, seen_inner_addr, seen_inner_len;
};
static_assert(sizeof(State) == 4 * kDeepest + 3 + 2 * kCalls + 10);
bool operator<(const State& a, const State& b) { return std::memcmp(&a, &b, sizeof a) < 0; }

enum WaiterStep : uint8_t {
  kGets,
  kReadsMark,
  kReads1,
  kReads2,
  kReads3,
  kReads4,
  kDecides,
  kThrough
};

// The order in which the compiler reads address and length is not fixed.
enum class Order : uint8_t { kAddressFirst, kLengthFirst };

class Explorer {
 public:
  Explorer(uint8_t target, Order order, Mutant mutant)
      : target_(target), order_(order), mutant_(mutant) {}

  // False if the waiter may finish while the caches still have the address.
  bool is_safe() {
    State s;
    std::memset(&s, 0, sizeof s);
    add(s);
    for (size_t at = 0; at < states_.size(); ++at) {
      const State& now = states_[at];
      if (now.waiter == kThrough) {
        if (now.forgotten[target_] == 0) return false;
        through_ = true;
        if (now.entered != 0) passed_over_ = true;
        continue;
      }
      State next = now;
      if (run_innermost(next)) add(next);
      next = states_[at];
      if (interrupt(next)) add(next);
      next = states_[at];
      if (wait(next)) add(next);
    }
    return true;
  }
  bool through() const { return through_; }
  bool passed_over() const { return passed_over_; }

 private:
  bool is(Mutant mutant) const { return mutant_ == mutant; }
  void add(const State& s) {
    if (known_.insert(s).second) states_.push_back(s);
  }
  static uint8_t address_of(uint8_t call) { return static_cast<uint8_t>(call + 1); }
  static Frame& innermost(State& s) { return s.frames[s.depth - 1u]; }

  static void begin(State& s, uint8_t call) { s.frames[s.depth++] = {call, kOut, 0, 0}; }
  static bool interrupt(State& s) {
    if (s.handlers == kCalls - kThreads || s.depth == kDeepest) return false;
    begin(s, static_cast<uint8_t>(kThreads + s.handlers++));
    return true;
  }

  bool run_innermost(State& s) {
    if (s.depth == 0) {
      if (s.begun == kThreads) return false;
      begin(s, s.begun++);
      return true;
    }
    Frame& f = innermost(s);
    const bool inner = f.outermost == 0;
    const uint8_t addr = address_of(f.call);
    const bool writes = !inner || ((f.outer_len == 0 || is(Mutant::kWritesOverInner)) &&
                                   !is(Mutant::kInnerMarksNothing));
    const bool is_late = is(Mutant::kLateNote);
    switch (f.step) {
      case kOut:
        f.outermost = s.entered == 0;
        f.step = kLooked;
        return true;
      case kLooked:
        if (!inner) {
          s.entered = 1;
        } else {
          f.outer_len = s.inner_len;
          // As one step: a handler between the two restores what it found.
          if (!is(Mutant::kNoAnything) && !is(Mutant::kInnerMarksNothing)) s.inner_len = kAnything;
        }
        f.step = is_late ? kNoted : kMarked;
        return true;
      case kMarked:
        if (writes) (inner ? s.inner_addr : s.addr) = addr;
        f.step = kAddressed;
        return true;
      case kAddressed:
        if (writes) (inner ? s.inner_len : s.len) = kLength;
        f.step = is_late ? kFreed : kNoted;
        return true;
      case kNoted:
        if (s.freed[f.call] == 0) {
          s.freed[f.call] = 1;
          if (is_late) {
            f.step = kMarked;
            return true;
          }
        }
        f.step = kFreed;
        return true;
      case kFreed:
        if (is(Mutant::kMarkGoesEarly) && !inner) s.entered = 0;
        if (is(Mutant::kNoteGoesEarly)) (inner ? s.inner_len : s.len) = 0;
        f.step = kForgotten;
        return true;
      case kForgotten:
        // The reader has read and told: the kernel's call returns, and what settle() waits for is over.
        s.forgotten[f.call] = 1;
        f.step = kUnmarked;
        return true;
      default:
        if (!inner && s.entered != 0) {
          s.entered = 0;
          return true;
        }
        (inner ? s.inner_len : s.len) = inner ? f.outer_len : uint8_t{0};
        f = {};
        --s.depth;
        return true;
    }
  }

  bool may_touch(uint8_t addr, uint8_t len) const {
    return len == kAnything || (len != 0 && addr == address_of(target_));
  }

  bool wait(State& s) const {
    const bool address_first = order_ == Order::kAddressFirst;
    switch (s.waiter) {
      case kGets:
        if (s.freed[target_] == 0) return false;
        s.waiter = kReadsMark;
        return true;
      case kReadsMark: s.waiter = s.entered == 0 ? kThrough : kReads1; return true;
      case kReads1:
        address_first ? s.seen_addr = s.addr : s.seen_len = s.len;
        s.waiter = kReads2;
        return true;
      case kReads2:
        address_first ? s.seen_len = s.len : s.seen_addr = s.addr;
        s.waiter = kReads3;
        return true;
      case kReads3:
        address_first ? s.seen_inner_addr = s.inner_addr : s.seen_inner_len = s.inner_len;
        s.waiter = kReads4;
        return true;
      case kReads4:
        address_first ? s.seen_inner_len = s.inner_len : s.seen_inner_addr = s.inner_addr;
        s.waiter = kDecides;
        return true;
      case kDecides:
        s.waiter =
            may_touch(s.seen_addr, s.seen_len) || may_touch(s.seen_inner_addr, s.seen_inner_len)
                ? kReadsMark
                : kThrough;
        s.seen_addr = s.seen_len = s.seen_inner_addr = s.seen_inner_len = 0;
        return true;
      default: return false;
    }
  }

  const uint8_t target_;
  const Order order_;
  const Mutant mutant_;
  std::set<State> known_;
  std::vector<State> states_;
  bool through_ = false, passed_over_ = false;
};

bool is_found(Mutant mutant) {
  for (uint8_t target = 0; target < kCalls; ++target) {
    for (const Order order : {Order::kAddressFirst, Order::kLengthFirst}) {
      if (!Explorer(target, order, mutant).is_safe()) return true;
    }
  }
  return false;
}

TEST(NoteProtocol, TheCallThatReleasedTheAddressIsWaitedForAndOthersAreNot) {
  for (uint8_t target = 0; target < kCalls; ++target) {
    for (const Order order : {Order::kAddressFirst, Order::kLengthFirst}) {
      Explorer explorer(target, order, Mutant::kNone);
      EXPECT_TRUE(explorer.is_safe()) << "call " << int{target};
      EXPECT_TRUE(explorer.through() && explorer.passed_over());
    }
  }
}

TEST(NoteProtocolMutant, ANoteThatAHandlerMixesIsFound) {
  EXPECT_TRUE(is_found(Mutant::kNoAnything));
  EXPECT_TRUE(is_found(Mutant::kWritesOverInner));
  EXPECT_TRUE(is_found(Mutant::kInnerMarksNothing));
}

TEST(NoteProtocolMutant, ANoteOutsideOfItsCallIsFound) {
  EXPECT_TRUE(is_found(Mutant::kLateNote));
  EXPECT_TRUE(is_found(Mutant::kMarkGoesEarly));
  EXPECT_TRUE(is_found(Mutant::kNoteGoesEarly));
}

}  // namespace
}  // namespace hydrant::model
