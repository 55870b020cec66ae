// The state machine of the hold/close protocol, one enabled step at a time. hold_protocol_model.hpp has the
// rules and the state.
#pragma once

#include "tests/model/hold_protocol_model.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hydrant::model {

class Machine {
 public:
  explicit Machine(const Scenario& scenario) : scenario_(scenario) {}

  State start() const {
    State s;
    std::memset(&s, 0, sizeof s);
    s.memory[kAddr] = as_signed(scenario_.ranges[0].addr);
    s.memory[kGate] = as_signed(scenario_.ranges[0].last);
    s.memory[kDenied] = as_signed(scenario_.ranges[0].denied);
    s.slot_of = 1;
    s.registered[0] = 1;
    s.tries = scenario_.tries;
    for (size_t t = 0; t < kHolders; ++t) begin_plan(s, t);
    return s;
  }

  // Calls visit(name, next) for every step that some thread or store buffer can take.
  template <typename Visit>
  void successors(const State& s, Visit&& visit) {
    for (size_t t = 0; t < kThreads; ++t) {
      if (s.buffered[t] == 0) continue;
      State next = s;
      flush_one(next, t);
      visit(static_cast<int>(100 + t), next);
    }
    for (size_t t = 0; t < kHolders; ++t) {
      if (State next = s; take_mail(next, t)) visit(static_cast<int>(200 + t), next);
      if (State next = s; holder_step(next, t)) visit(static_cast<int>(10 * t + s.step[t]), next);
    }
    if (State next = s; closer_step(next)) visit(static_cast<int>(300 + s.closer), next);
  }

  // "" or the violation in this state.
  static const char* violation(const State& s) {
    if (s.wrong_hold == kNobodysSlot) return "a hold on a slot that is free";
    if (s.wrong_hold == kOutsideBounds) return "a hold on bytes outside the slot's region";
    if (s.wrong_hold == kDeniedRight) return "a hold with a right that the slot denies";
    for (size_t t = 0; t < kHolders; ++t) {
      for (const uint8_t range : {s.believes[t], s.believes_in_mail[t]}) {
        if (range == 0) continue;
        if (s.registered[range - 1u] == 0) return "a hold on a region whose registration is undone";
        if (s.slot_of != range) return "a hold on a slot that was given to another region";
      }
    }
    return "";
  }

  const Sightings& sightings() const { return seen_; }

 private:
  static int8_t as_signed(uint8_t value) { return static_cast<int8_t>(value); }
  static uint8_t as_unsigned(int8_t value) { return static_cast<uint8_t>(value); }
  bool mutant(Mutant which) const { return scenario_.mutant == which; }
  const HoldPlan& plan_of(const State& s, size_t t) const { return scenario_.plans[t][s.plan[t]]; }

  static bool store(State& s, size_t t, size_t variable, int8_t value) {
    if (s.buffered[t] == kBufferLength) return false;  // waits until something is written back
    s.buffer[t][s.buffered[t]++] = {static_cast<uint8_t>(variable), value};
    return true;
  }

  static void flush_one(State& s, size_t t) {
    auto& buffer = s.buffer[t];
    s.memory[buffer[0].variable] = buffer[0].value;
    for (size_t i = 0; i + 1 < kBufferLength; ++i) buffer[i] = buffer[i + 1];
    buffer[kBufferLength - 1] = {0, 0};
    --s.buffered[t];
  }
  static void flush_all(State& s, size_t t) {
    while (s.buffered[t] != 0) flush_one(s, t);
  }

  bool add_to_count(State& s, size_t t, int delta) const {
    const auto value = static_cast<int8_t>(s.own_count[t] + delta);
    if (!store(s, t, kCount + t, value)) return false;
    s.own_count[t] = value;
    return true;
  }

  void begin_plan(State& s, size_t t) const {
    const bool done = s.plan[t] == scenario_.plans[t].size();
    s.step[t] = done ? kHolderDone : mutant(Mutant::kCheckBeforePost) ? kLoadAddr : kPost;
  }
  void end_plan(State& s, size_t t) const {
    ++s.plan[t];
    begin_plan(s, t);
  }

  // Takes the other holder's mail between two plans, and releases a hold in it.
  bool take_mail(State& s, size_t t) {
    const size_t other = 1 - t;
    const bool between = s.step[t] == kHolderDone || s.step[t] == kPost;
    if (!between || s.mail_taken[t] != 0 || s.memory[kMail + other] == 0) return false;
    if (s.memory[kMail + other] == 1) {
      if (!add_to_count(s, t, -1)) return false;
      s.believes_in_mail[other] = 0;
      seen_.handed_over = true;
    }
    s.mail_taken[t] = 1;
    return true;
  }

  bool holder_step(State& s, size_t t) {
    if (s.step[t] == kHolderDone) return false;
    const HoldPlan& plan = plan_of(s, t);
    const bool check_first = mutant(Mutant::kCheckBeforePost);
    switch (s.step[t]) {
      case kPost:
        if (!add_to_count(s, t, +1)) return false;
        if (check_first) return believe(s, t, plan);
        s.step[t] = kLoadAddr;
        return true;
      case kLoadAddr:
        s.step[t] = as_unsigned(s.memory[kAddr]) <= plan.first ? kLoadGate : kGiveUp;
        break;
      case kLoadGate:
        s.step[t] = plan.last <= as_unsigned(s.memory[kGate]) ? kLoadDenied : kGiveUp;
        break;
      case kLoadDenied:
        if ((as_unsigned(s.memory[kDenied]) & plan.access) != 0) {
          seen_.denied = true;
          s.step[t] = kGiveUp;
        } else if (check_first) {
          s.step[t] = kPost;
        } else {
          return believe(s, t, plan);
        }
        break;
      case kGiveUp:
        if (!check_first && !add_to_count(s, t, -1)) return false;
        if (plan.hand_over && !store(s, t, kMail + t, 2)) return false;
        end_plan(s, t);
        return true;
      case kUse: return give_back(s, t, plan);
    }
    return true;
  }

  // The checks passed: the thread now relies on the region that is really in the slot.
  bool believe(State& s, size_t t, const HoldPlan& plan) {
    seen_.hold = true;
    if (s.slot_of == 2) seen_.hold_of_second = true;
    s.believes[t] = s.slot_of;
    s.step[t] = kUse;
    if (s.slot_of == 0) {
      s.wrong_hold = kNobodysSlot;
      return true;
    }
    const Bounds& truth = scenario_.ranges[s.slot_of - 1u];
    if (plan.first < truth.addr || plan.last > truth.last) s.wrong_hold = kOutsideBounds;
    if ((truth.denied & plan.access) != 0) s.wrong_hold = kDeniedRight;
    return true;
  }

  bool give_back(State& s, size_t t, const HoldPlan& plan) const {
    if (plan.hand_over) {
      if (!store(s, t, kMail + t, 1)) return false;
      s.believes_in_mail[t] = s.believes[t];
    } else if (!add_to_count(s, t, -1)) {
      return false;
    }
    s.believes[t] = 0;
    end_plan(s, t);
    return true;
  }

  bool closer_step(State& s) {
    switch (s.closer) {
      case kClose:
        --s.tries;
        return store_then(s, kGate, 0, mutant(Mutant::kNoFence) ? kSum : kFenceOwn);
      case kFenceOwn: return fence_own(s, mutant(Mutant::kLocalFence) ? kSum : kFenceOthers);
      case kFenceOthers: return fence_others(s, kSum);
      case kSum: return add_count(s, kDecide);
      case kDecide: return decide(s);
      case kReopen:
        return store_then(s, kGate, as_signed(scenario_.ranges[s.range].last),
                          s.tries != 0 ? kClose : kCloserDone);
      case kWipe:
        if (mutant(Mutant::kNoAddrWipe)) return go(s, kUndo);
        return store_then(s, kAddr, as_signed(kNoAddr), kUndo);
      case kUndo: return undo(s);
      case kQuarantineFenceOwn: return fence_own(s, kQuarantineFenceOthers);
      case kQuarantineFenceOthers: return fence_others(s, kQuarantineSum);
      case kQuarantineSum: return add_count(s, kQuarantineDecide);
      case kQuarantineDecide: return decide_reuse(s);
      case kPublishAddr:
      case kPublishDenied:
      case kPublishGate: return publish(s);
      default: return false;
    }
  }

  static bool go(State& s, CloserStep next) {
    s.closer = next;
    return true;
  }
  static bool store_then(State& s, size_t variable, int8_t value, CloserStep next) {
    return store(s, kCloser, variable, value) && go(s, next);
  }
  static bool fence_own(State& s, CloserStep next) {
    return s.buffered[kCloser] == 0 && go(s, next);
  }
  static bool fence_others(State& s, CloserStep next) {
    flush_all(s, s.next_holder);
    if (++s.next_holder < kHolders) return true;
    s.next_holder = 0;
    return go(s, next);
  }

  // Reads a single count: the sum is not atomic.
  bool add_count(State& s, CloserStep next) const {
    const bool forgotten = mutant(Mutant::kForgottenThread) && s.next_holder == kHolders - 1;
    if (!forgotten) s.sum = static_cast<int8_t>(s.sum + s.memory[kCount + s.next_holder]);
    if (++s.next_holder < kHolders) return true;
    s.next_holder = 0;
    return go(s, next);
  }

  bool decide(State& s) {
    const bool held = s.sum != 0 && !mutant(Mutant::kNoSum);
    s.sum = 0;
    if (!held) {
      if (s.was_held != 0 && scenario_.if_held == IfHeld::kStayClosed) seen_.drained = true;
      return go(s, kWipe);
    }
    s.was_held = 1;
    if (scenario_.if_held == IfHeld::kReopen) {
      seen_.reopened = true;
      return go(s, kReopen);
    }
    if (s.tries == 0) return go(s, kCloserDone);  // stays dead, which must be harmless
    --s.tries;
    return go(s, kSum);
  }

  bool undo(State& s) {
    s.registered[s.range] = 0;
    s.slot_of = 0;
    seen_.undone = true;
    if (s.range == 1) return go(s, kCloserDone);
    s.range = 1;
    s.tries = scenario_.tries;
    if (mutant(Mutant::kNoQuarantine)) return go(s, kPublishAddr);
    return go(s, mutant(Mutant::kNoQuarantineFence) ? kQuarantineSum : kQuarantineFenceOwn);
  }

  bool decide_reuse(State& s) {
    const bool posted = s.sum != 0 && !mutant(Mutant::kNoQuarantineSum);
    s.sum = 0;
    if (!posted) return go(s, kPublishAddr);
    seen_.quarantined = true;
    if (--s.tries == 0) return go(s, kCloserDone);
    return go(s, kQuarantineFenceOwn);
  }

  bool publish(State& s) {
    const bool gate_first = mutant(Mutant::kGateBeforeRights);
    const Bounds& bounds = scenario_.ranges[1];
    if (s.closer == kPublishAddr) {
      s.registered[1] = 1;
      s.slot_of = 2;
      return store_then(s, kAddr, as_signed(bounds.addr),
                        gate_first ? kPublishGate : kPublishDenied);
    }
    const bool gate = s.closer == kPublishGate;
    if (!store(s, kCloser, gate ? kGate : kDenied, as_signed(gate ? bounds.last : bounds.denied))) {
      return false;
    }
    if (gate != gate_first) {  // the second region
      seen_.reused = true;
      s.tries = 1;
      s.was_held = 0;
      return go(s, kClose);
    }
    return go(s, gate ? kPublishDenied : kPublishGate);
  }

  Scenario scenario_;
  Sightings seen_;
};

}  // namespace hydrant::model
