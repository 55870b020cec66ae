// The hold/close protocol of the pin cache, written down as a machine small enough to be explored: what a
// state is, what the threads want to do, and which rules can be left out. It shares no code with the
// cache: the rules are repeated here by hand, so that a wrong rule is found even where the code follows
// it faithfully. hold_protocol_machine.hpp has the steps, hold_protocol_test.cpp walks through all of them.
//
// Memory   one slot {addr, gate, denied}, one count per holder, one mailbox per holder. Every store goes
//          to the storing thread's FIFO buffer first and reaches memory at some later step; a thread's
//          loads happen in program order (x86 does not reorder loads) and see memory, since no thread
//          here loads what it stores itself (a count's single writer remembers its value).
// hold     count[t] += 1; load addr, load gate, load denied; a check that fails: count[t] -= 1
// release  count[t] -= 1, where t is the thread that gives the hold back, whoever took it
// close    gate = 0; fence; sum of the counts; if not 0: reopen, or stay closed and sum again later
// free     addr = all ones; the registration is undone
// reuse    fence; the sum is again 0 (the quarantine); then addr, denied and, last, gate of the next range
// fence    membarrier: the own buffer is empty, then the others' are emptied one after the other
//
// Wrong is: a check passes on a slot that is free, has other bounds, or denies the right; or the slot's
// registration is undone or its slot given away while somebody relies on it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace hydrant::model {

inline constexpr size_t kHolders = 2;
inline constexpr size_t kCloser = kHolders;
inline constexpr size_t kThreads = kHolders + 1;
inline constexpr size_t kBufferLength = 6;
inline constexpr uint8_t kNoAddr = 255;
inline constexpr uint8_t kWrite = 1;

// What a range looks like in the slot. Range 0 is there first, range 1 takes the slot over.
struct Bounds {
  uint8_t addr;
  uint8_t last;
  uint8_t denied;
};

// One attempt of a holder to use the bytes [first, last].
struct HoldPlan {
  uint8_t first;
  uint8_t last;
  uint8_t access;
  bool hand_over = false;  // the other holder gives it back; at most one such plan per holder
};

enum class IfHeld : uint8_t { kReopen, kStayClosed };

// Rules that can be left out, to show that the search finds the damage.
enum class Mutant : uint8_t {
  kNone,
  kNoFence,            // close: sum without a fence
  kLocalFence,         // close: the fence empties the closer's own buffer alone
  kCheckBeforePost,    // hold: look at the slot first, count afterwards
  kNoSum,              // close: undo whatever the counts say
  kForgottenThread,    // close: a thread's counts are left out of the sum
  kNoQuarantine,       // reuse: neither second fence nor second sum
  kNoQuarantineFence,  // reuse: second sum without its fence
  kNoQuarantineSum,    // reuse: second fence, but nobody looks at the counts
  kNoAddrWipe,         // free: the old addr stays in the slot
  kGateBeforeRights,   // reuse: gate is written before denied
};

struct Scenario {
  std::array<Bounds, 2> ranges;
  std::array<std::vector<HoldPlan>, kHolders> plans;
  IfHeld if_held = IfHeld::kReopen;
  uint8_t tries = 2;  // closes of range 0 (kReopen) or sums of the closed slot (kStayClosed)
  Mutant mutant = Mutant::kNone;
};

enum Variable : uint8_t {
  kAddr,
  kGate,
  kDenied,
  kCount,
  kMail = kCount + kHolders,
  kVariables = kMail + kHolders
};

enum HolderStep : uint8_t { kPost, kLoadAddr, kLoadGate, kLoadDenied, kGiveUp, kUse, kHolderDone };

enum CloserStep : uint8_t {
  kClose,
  kFenceOwn,
  kFenceOthers,
  kSum,
  kDecide,
  kReopen,
  kWipe,
  kUndo,
  kQuarantineFenceOwn,
  kQuarantineFenceOthers,
  kQuarantineSum,
  kQuarantineDecide,
  kPublishAddr,
  kPublishDenied,
  kPublishGate,
  kCloserDone
};

// How a hold can be wrong from its first moment (State::wrong_hold; 0 is right).
enum WrongHold : uint8_t { kNobodysSlot = 1, kOutsideBounds, kDeniedRight };

struct Store {
  uint8_t variable;
  int8_t value;
};

// Bytes only and no padding, so that states are compared and hashed as they lie in memory.
struct State {
  std::array<int8_t, kVariables> memory;
  std::array<std::array<Store, kBufferLength>, kThreads> buffer;
  std::array<uint8_t, kThreads> buffered;
  std::array<uint8_t, kHolders> plan, step, mail_taken;
  std::array<int8_t, kHolders> own_count;
  uint8_t closer, next_holder, tries, range, was_held;
  int8_t sum;
  // Ghosts: what is true, as opposed to what the threads can see. 0 is none, else the range + 1.
  std::array<uint8_t, kHolders> believes, believes_in_mail;
  uint8_t slot_of;
  uint8_t wrong_hold;
  std::array<uint8_t, 2> registered;

  bool operator==(const State& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};
static_assert(sizeof(State) == kVariables + kThreads * kBufferLength * 2 + kThreads + 4 * kHolders +
                                   6 + 2 * kHolders + 4);

// What the search came by at least once: one that never gets there proves nothing.
struct Sightings {
  bool hold = false, hold_of_second = false, denied = false, handed_over = false;
  bool reopened = false, drained = false, undone = false, quarantined = false, reused = false;
};

}  // namespace hydrant::model
