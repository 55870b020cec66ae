// Every interleaving of two or three threads that post and arrive (match_queue_machine.hpp has the steps):
// nobody is missed, matched twice, out of turn, or given back too early. Then each rule is left out in turn,
// and the same search must find the damage.
#include "tests/model/match_queue_machine.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hydrant::model {
namespace {

struct Case {
  const char* name;
  QueueProgram first;  // before the threads begin
  std::vector<QueueProgram> programs;
};

constexpr QueueCall post(uint8_t key, uint8_t element) { return {kPostedSide, key, element}; }
constexpr QueueCall arrive(uint8_t key, uint8_t element) { return {kUnexpectedSide, key, element}; }

// Depth first, each state once; stops at the first violation.
class QueueSearch {
 public:
  QueueSearch(const Case& scenario, QueueMutant mutant) : machine_(scenario.programs, mutant) {
    walk(machine_.start(scenario.first));
  }

  const std::string& violation() const { return violation_; }
  size_t states() const { return known_.size(); }
  // Among all ways to the end: the fewest and the most matches.
  int fewest() const { return fewest_; }
  int most() const { return most_; }

 private:
  void walk(const QueueState& s) {
    const std::string key(reinterpret_cast<const char*>(&s), sizeof s);
    const auto [entry, is_new] = known_.try_emplace(key, true);
    if (!is_new) {
      if (entry->second) report("came back to where it was");
      return;
    }
    bool ended = true;
    for (size_t t = 0; t < kQueueThreads && violation_.empty(); ++t) {
      QueueState next = s;
      if (!machine_.step(next, t)) continue;
      ended = false;
      path_.push_back(static_cast<char>('0' + t));
      walk(next);
      path_.pop_back();
    }
    if (!violation_.empty()) return;
    if (const char* wrong = QueueMachine::violation(s, ended); *wrong != '\0') report(wrong);
    if (ended) {
      fewest_ = std::min<int>(fewest_, s.matches);
      most_ = std::max<int>(most_, s.matches);
    }
    known_[key] = false;
  }
  void report(const char* wrong) {
    if (violation_.empty()) violation_ = std::string(wrong) + ", threads in turn: " + path_;
  }

  QueueMachine machine_;
  std::unordered_map<std::string, bool> known_;  // true: on the way from the start to here
  std::string path_;
  std::string violation_;
  int fewest_ = 255, most_ = 0;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"Crossing", {}, {{post(7, 1)}, {arrive(7, 2)}}},
      {"ThreeCross", {}, {{post(7, 1)}, {arrive(7, 2)}, {arrive(7, 3)}}},
      {"TwoWantOne", {arrive(7, 1)}, {{post(7, 2)}, {post(7, 3)}}},
      {"OldestFirst", {arrive(7, 1), arrive(7, 2)}, {{post(7, 3)}, {post(7, 4)}}},
      {"NeighboursLeave", {arrive(5, 1), arrive(6, 2), arrive(7, 3)}, {{post(6, 4)}, {post(5, 5)}}},
      {"NewestAndNextLeave", {arrive(6, 1), arrive(7, 2)}, {{post(6, 3)}, {post(7, 4)}}},
      {"LeavesWhileOneJoins", {post(6, 1), post(7, 2)}, {{arrive(7, 3)}, {post(8, 4)}}},
      {"ReusedForAnotherKey",
       {post(5, 1), post(7, 2)},
       {{arrive(7, 3)}, {arrive(7, 4), post(8, kGotten)}}},
      {"ReusedAtTheSamePlace", {arrive(5, 1)}, {{post(7, 2)}, {post(5, 3), arrive(7, kGotten)}}},
      {"ReusedOnTheOtherSide",
       {arrive(7, 1), arrive(5, 2), arrive(9, 3)},
       {{post(7, 4)}, {post(5, 5), post(6, kGotten)}}},
      {"ThreeOnNeighbours",
       {arrive(5, 1), arrive(6, 2)},
       {{post(5, 3)}, {post(6, 4)}, {arrive(5, 5)}}},
      {"ThreeAndReuse",
       {arrive(5, 1)},
       {{post(7, 2)}, {post(5, 3), arrive(7, kGotten)}, {arrive(7, 4)}}},
  };
  return all;
}

class MatchQueueModel : public ::testing::TestWithParam<Case> {};

TEST_P(MatchQueueModel, IsRightInEveryOrder) {
  const QueueSearch search(GetParam(), QueueMutant::kNone);
  RecordProperty("states", static_cast<int>(search.states()));
  EXPECT_EQ(search.violation(), "");
  EXPECT_GT(search.states(), 40u);
  EXPECT_GT(search.fewest(), 0) << "a match that depends on luck is none";
  EXPECT_GE(search.most(), search.fewest());
}

INSTANTIATE_TEST_SUITE_P(Cases, MatchQueueModel, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return std::string(one.param.name); });

// What the lists below begin with: the elements 1 and 2, both sides, equal and different keys.
const std::vector<QueueProgram>& beginnings() {
  static const std::vector<QueueProgram> all = {
      {}, {arrive(7, 1), arrive(5, 2)}, {post(7, 1), post(7, 2)}, {post(5, 1), arrive(7, 2)}};
  return all;
}

size_t explore_all(const std::vector<std::vector<QueueProgram>>& programs) {
  size_t states = 0;
  for (const QueueProgram& first : beginnings()) {
    for (const auto& each : programs) {
      const QueueSearch search({"", first, each}, QueueMutant::kNone);
      states += search.states();
      if (search.violation().empty()) continue;
      ADD_FAILURE() << search.violation();
      return states;
    }
  }
  ::testing::Test::RecordProperty("states", static_cast<int>(states));
  return states;
}

TEST(MatchQueuePrograms, AnyTwoThreadsWithTwoCallsEach) {
  const auto programs_of = [](uint8_t element) {
    std::vector<QueueProgram> programs;
    for (int choice = 0; choice < 32; ++choice) {
      const auto call = [choice](int bit, uint8_t with) {
        return QueueCall{(choice >> bit & 1) != 0 ? kPostedSide : kUnexpectedSide,
                         static_cast<uint8_t>((choice >> (bit + 1) & 1) != 0 ? 5 : 7), with};
      };
      const auto next = static_cast<uint8_t>(element + 1);
      programs.push_back({call(0, element), call(2, (choice & 16) != 0 ? kGotten : next)});
    }
    return programs;
  };
  std::vector<std::vector<QueueProgram>> pairs;
  for (const QueueProgram& one : programs_of(3)) {
    for (const QueueProgram& other : programs_of(5)) pairs.push_back({one, other});
  }
  EXPECT_GT(explore_all(pairs), 500'000u);
}

TEST(MatchQueuePrograms, AnyThreeThreadsWithOneCallEach) {
  std::vector<std::vector<QueueProgram>> programs;
  for (int choice = 0; choice < 64; ++choice) {
    std::vector<QueueProgram> each;
    for (int t = 0; t < 3; ++t) {
      const uint8_t key = (choice >> (2 * t) & 1) != 0 ? 5 : 7;
      const auto element = static_cast<uint8_t>(3 + t);
      each.push_back(
          {(choice >> (2 * t + 1) & 1) != 0 ? post(key, element) : arrive(key, element)});
    }
    programs.push_back(each);
  }
  EXPECT_GT(explore_all(programs), 100'000u);
}

std::string damage_of(QueueMutant mutant) {
  for (const Case& scenario : cases()) {
    const QueueSearch search(scenario, mutant);
    if (!search.violation().empty()) {
      return std::string(scenario.name) + ": " + search.violation();
    }
  }
  return "";
}

TEST(MatchQueueMutant, EachRuleIsNeeded) {
  using enum QueueMutant;
  for (const QueueMutant mutant :
       {kNoMiddleVersion, kNoLinkVersion, kNoLook, kOwnHalfOnly, kLateMiddle, kGiveBackAtOnce,
        kTakenElsewhere, kTakeByStore, kNewestMatch, kNoHelp}) {
    const std::string damage = damage_of(mutant);
    EXPECT_NE(damage, "") << "mutant " << static_cast<int>(mutant);
    RecordProperty("mutant" + std::to_string(static_cast<int>(mutant)), damage);
  }
}

}  // namespace
}  // namespace hydrant::model
