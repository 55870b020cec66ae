// The hold/close protocol of the pin cache as a state machine that is small enough for exhaustive search: the
// state, the plans of the threads, and the rules that can be left out. It shares no code with the cache: the
// rules are written again by hand, so that a wrong rule is found even if the code implements it faithfully.
// hold_protocol_machine.hpp has the steps, hold_protocol_test.cpp explores them.
//
// Memory   one slot {addr, gate, denied}, one count per holder, one mailbox per holder. Every store first
// enters the
//          storing thread's FIFO buffer and reaches memory at a later step. A thread's loads happen in
//          program order (x86 does not reorder loads) and read memory: no thread here loads its own stores
//          (the single writer of a count remembers its value).
// hold     count[t] += 1; load addr, load gate, load denied; a check that fails: count[t] -= 1
// release  count[t] -= 1, where t is the thread that releases the hold, not the one that took it
// close    gate = 0; fence; sum of the counts; if not 0: reopen, or stay closed and sum again later
// free     addr = all ones; the registration is undone
// reuse    fence; the sum is again 0 (the quarantine); then addr, denied and, last, gate of the next range
// fence    membarrier: the own buffer is empty, then the others' are emptied one after the other
//
// Violations: a check passes on a slot that is free, has other bounds, or denies the right; or the slot's
// registration is undone, or its slot reused, while a thread relies on it.
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

// The slot's contents for a range. Range 0 has the slot first, range 1 reuses it.
struct Bounds {
  uint8_t addr;
  uint8_t last;
  uint8_t denied;
};

// An attempt of a holder to use the bytes [first, last].
struct HoldPlan {
  uint8_t first;
  uint8_t last;
  uint8_t access;
  bool hand_over = false;  // the other holder releases it; at most one such plan per holder
};

enum class IfHeld : uint8_t { kReopen, kStayClosed };

// Rules that can be left out, to show that the search finds the violation.
enum class Mutant : uint8_t {
  kNone,
  kNoFence,            // close: sum without a fence
  kLocalFence,         // close: the fence empties only the closer's own buffer
  kCheckBeforePost,    // hold: check the slot first, count afterwards
  kNoSum,              // close: undo regardless of the counts
  kForgottenThread,    // close: a thread's counts are left out of the sum
  kNoQuarantine,       // reuse: neither second fence nor second sum
  kNoQuarantineFence,  // reuse: second sum without its fence
  kNoQuarantineSum,    // reuse: second fence without the second sum
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

// Ways in which a hold is wrong from its start (State::wrong_hold; 0 is right).
enum WrongHold : uint8_t { kNobodysSlot = 1, kOutsideBounds, kDeniedRight };

struct Store {
  uint8_t variable;
  int8_t value;
};

// Bytes only and no padding, so that states can be compared and hashed as bytes.
struct State {
  std::array<int8_t, kVariables> memory;
  std::array<std::array<Store, kBufferLength>, kThreads> buffer;
  std::array<uint8_t, kThreads> buffered;
  std::array<uint8_t, kHolders> plan, step, mail_taken;
  std::array<int8_t, kHolders> own_count;
  uint8_t closer, next_holder, tries, range, was_held;
  int8_t sum;
  // Ghost variables: the truth, which the threads cannot see. 0 is none, else the range + 1.
  std::array<uint8_t, kHolders> believes, believes_in_mail;
  uint8_t slot_of;
  uint8_t wrong_hold;
  std::array<uint8_t, 2> registered;

  bool operator==(const State& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};
static_assert(sizeof(State) == kVariables + kThreads * kBufferLength * 2 + kThreads + 4 * kHolders +
                                   6 + 2 * kHolders + 4);

// Events that the search has to reach at least once; otherwise it proves nothing.
struct Sightings {
  bool hold = false, hold_of_second = false, denied = false, handed_over = false;
  bool reopened = false, drained = false, undone = false, quarantined = false, reused = false;
};

}  // namespace hydrant::model
