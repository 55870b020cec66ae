// Explores every interleaving of two holders and one closer, with store buffers (hold_protocol_model.hpp has
// the rules): no thread ever holds a region that is undone or a slot of another region. Then each rule is
// left out in turn, and the same search must find a violation: otherwise the rule would be untested.
#include "tests/model/hold_protocol_machine.hpp"
#include "tests/model/hold_protocol_model.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace hydrant::model {
namespace {

struct Hash {
  size_t operator()(const State& s) const {
    return std::hash<std::string_view>{}({reinterpret_cast<const char*>(&s), sizeof s});
  }
};

struct Findings {
  size_t states = 0;
  std::string violation;  // "" or the violation and the steps that lead to it
  Sightings seen;
};

// Depth-first search that visits each state once and stops at the first violation.
class Search {
 public:
  explicit Search(const Scenario& scenario) : machine_(scenario) {}

  Findings run() {
    walk(machine_.start());
    findings_.states = known_.size();
    findings_.seen = machine_.sightings();
    return findings_;
  }

 private:
  void walk(const State& state) {
    if (!known_.insert(state).second) return;
    if (const char* wrong = Machine::violation(state); *wrong != '\0') {
      findings_.violation = std::string(wrong) + " after steps:";
      for (const int step : path_) findings_.violation += " " + std::to_string(step);
      return;
    }
    machine_.successors(state, [this](int step, const State& next) {
      if (!findings_.violation.empty()) return;
      path_.push_back(step);
      walk(next);
      path_.pop_back();
    });
  }

  Machine machine_;
  std::unordered_set<State, Hash> known_;
  std::vector<int> path_;
  Findings findings_;
};

// The second range lies above the first: old addr with new gate would admit a hold on the first range.
constexpr std::array<Bounds, 2> kSecondAbove = {{{10, 19, 0}, {20, 29, kWrite}}};
// The second range lies below the first.
constexpr std::array<Bounds, 2> kSecondBelow = {{{20, 29, 0}, {10, 19, kWrite}}};
// The second range contains the first.
constexpr std::array<Bounds, 2> kSecondAround = {{{12, 17, 0}, {10, 19, kWrite}}};

HoldPlan use(const std::array<Bounds, 2>& ranges, uint8_t range, uint8_t access = 0) {
  const Bounds& bounds = ranges[range];
  return {static_cast<uint8_t>(bounds.addr + 3), static_cast<uint8_t>(bounds.addr + 4), access};
}

Scenario scenario(const std::array<Bounds, 2>& ranges, IfHeld if_held,
                  Mutant mutant = Mutant::kNone) {
  Scenario s;
  s.ranges = ranges;
  s.plans[0] = {use(ranges, 0), use(ranges, 0, kWrite)};
  s.plans[1] = {use(ranges, 0), use(ranges, 1)};
  s.if_held = if_held;
  s.mutant = mutant;
  return s;
}

// The second holder releases the first one's hold.
Scenario handing_over(const std::array<Bounds, 2>& ranges, IfHeld if_held,
                      Mutant mutant = Mutant::kNone) {
  Scenario s = scenario(ranges, if_held, mutant);
  s.plans[0] = {use(ranges, 0), use(ranges, 1)};
  s.plans[0][0].hand_over = true;
  s.plans[1] = {use(ranges, 0)};
  return s;
}

// The second holder tries to write to the second range, which denies it.
Scenario denied_writer(const std::array<Bounds, 2>& ranges, Mutant mutant = Mutant::kNone) {
  Scenario s = scenario(ranges, IfHeld::kReopen, mutant);
  s.plans[0] = {use(ranges, 0)};
  s.plans[1] = {use(ranges, 1, kWrite), use(ranges, 1, kWrite)};
  return s;
}

Findings explore(const Scenario& s) {
  Findings findings = Search(s).run();
  ::testing::Test::RecordProperty("states", static_cast<int>(findings.states));
  return findings;
}

class HoldProtocol : public ::testing::TestWithParam<std::array<Bounds, 2>> {};

TEST_P(HoldProtocol, NoHoldOnAnUndoneRegionWhenHeldSlotsReopen) {
  const Findings f = explore(scenario(GetParam(), IfHeld::kReopen));
  EXPECT_EQ(f.violation, "");
  EXPECT_TRUE(f.seen.hold && f.seen.reopened && f.seen.undone && f.seen.reused);
  EXPECT_TRUE(f.seen.quarantined && f.seen.hold_of_second);
}

TEST_P(HoldProtocol, NoHoldOnAnUndoneRegionWhenHeldSlotsDie) {
  const Findings f = explore(scenario(GetParam(), IfHeld::kStayClosed));
  EXPECT_EQ(f.violation, "");
  EXPECT_TRUE(f.seen.hold && f.seen.drained && f.seen.undone && f.seen.reused);
  EXPECT_TRUE(f.seen.quarantined && f.seen.hold_of_second);
}

TEST_P(HoldProtocol, AnotherThreadMayReleaseAHold) {
  for (const IfHeld if_held : {IfHeld::kReopen, IfHeld::kStayClosed}) {
    const Findings f = explore(handing_over(GetParam(), if_held));
    EXPECT_EQ(f.violation, "");
    EXPECT_TRUE(f.seen.handed_over && f.seen.reused && f.seen.hold_of_second);
  }
}

TEST_P(HoldProtocol, DeniedRightIsNeverGranted) {
  const Findings f = explore(denied_writer(GetParam()));
  EXPECT_EQ(f.violation, "");
  EXPECT_TRUE(f.seen.denied && f.seen.reused);
}

INSTANTIATE_TEST_SUITE_P(Ranges, HoldProtocol,
                         ::testing::Values(kSecondAbove, kSecondBelow, kSecondAround));

std::string damage_of(Mutant mutant) {
  std::string first;
  for (const auto& ranges : {kSecondAbove, kSecondBelow, kSecondAround}) {
    for (const IfHeld if_held : {IfHeld::kReopen, IfHeld::kStayClosed}) {
      for (const Scenario& s :
           {scenario(ranges, if_held, mutant), handing_over(ranges, if_held, mutant)}) {
        if (first.empty()) first = explore(s).violation;
      }
    }
    if (first.empty()) first = explore(denied_writer(ranges, mutant)).violation;
  }
  return first;
}

TEST(HoldProtocolMutant, MissingFenceIsFound) {
  EXPECT_NE(damage_of(Mutant::kNoFence), "");
  EXPECT_NE(damage_of(Mutant::kLocalFence), "");
}

TEST(HoldProtocolMutant, CheckingBeforePostingIsFound) {
  EXPECT_NE(damage_of(Mutant::kCheckBeforePost), "");
}

TEST(HoldProtocolMutant, MissingSumIsFound) {
  EXPECT_NE(damage_of(Mutant::kNoSum), "");
  EXPECT_NE(damage_of(Mutant::kForgottenThread), "");
}

TEST(HoldProtocolMutant, ReuseWithoutQuarantineIsFound) {
  EXPECT_NE(damage_of(Mutant::kNoQuarantine), "");
  EXPECT_NE(damage_of(Mutant::kNoQuarantineFence), "");
  EXPECT_NE(damage_of(Mutant::kNoQuarantineSum), "");
}

TEST(HoldProtocolMutant, OldAddrLeftInTheSlotIsFound) {
  EXPECT_NE(damage_of(Mutant::kNoAddrWipe), "");
}

TEST(HoldProtocolMutant, GateWrittenBeforeRightsIsFound) {
  EXPECT_NE(damage_of(Mutant::kGateBeforeRights), "");
}

}  // namespace
}  // namespace hydrant::model
