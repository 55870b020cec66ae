// The admission by reuse alone: against a model of its rule in plain containers, and what the rule leads to.
#include "firehose/cache/policy/reuse_admission.hpp"

#include "tests/support/sizes.hpp"
#include "tests/support/test_seed.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <set>
#include <vector>

namespace hydrant::testing {
namespace {

using Candidate = AdmissionPolicy::Candidate;

constexpr uint64_t kBudget = 64 * kPage;
constexpr uint32_t kManyRegions = 1000;

// A miss of memory at `start` with so much room in the budget.
Candidate miss(uintptr_t start, uint64_t room_bytes, uint64_t charge = kPage,
               uint32_t room_regions = kManyRegions) {
  const MemoryRange range{start, charge};
  return {.range = range,
          .request = range,
          .charge = charge,
          .lack_bytes = charge - std::min(charge, room_bytes),
          .lack_regions = room_regions == 0 ? 1U : 0U,
          .room_bytes = room_bytes,
          .room_regions = room_regions,
          .budget_bytes = kBudget};
}

// Starts of memory of which none displaces another in the table of known memory.
std::vector<uintptr_t> starts_apart(size_t count) {
  std::vector<uintptr_t> starts;
  std::set<size_t> places;
  for (uintptr_t page = 1; starts.size() < count; ++page) {
    if (places.insert(ReuseAdmission::place_of(page * kPage)).second)
      starts.push_back(page * kPage);
  }
  return starts;
}

class Model {
 public:
  Admission decide(const Candidate& miss) {
    const bool is_full = miss.lack_bytes != 0 || miss.lack_regions != 0;
    if (!is_full && !(full_at_ && missed_ - *full_at_ < kBudget)) return Admission::kKeep;
    const bool has_room =
        miss.is_stream || (miss.room_bytes >= miss.charge + reserve() && miss.room_regions >= 2);
    used_ += miss.hits * mean_;
    if (miss.is_beyond_need && !has_room) return Admission::kUseOnce;
    while (!samples_.empty() && missed_ - samples_.front().missed_at > kBudget) {
      if (!samples_.front().was_again) end(samples_.front(), 0);
      samples_.pop_front();
    }
    mean_ = mean_ - mean_ / 32 + miss.charge / 32;
    const bool keeps = judge(miss.request.addr, has_room);
    missed_ += miss.charge;
    used_ += miss.charge;
    if (is_full) full_at_ = missed_;
    if (!keeps && miss.charge <= kBudget / 16) used_once_.push_back({missed_, miss.charge});
    return keeps ? Admission::kKeep : Admission::kUseOnce;
  }

  double shares[2] = {1, 0};  // of new and of known memory

 private:
  struct Sample {
    uintptr_t start;
    uint64_t missed_at, used_at;
    bool is_known, was_again;
  };
  struct UsedOnce {
    uint64_t at, charge;
  };

  void end(const Sample& sample, double outcome) {
    double& share = shares[sample.is_known ? 1 : 0];
    share += (outcome - share) / 8;
  }
  // The largest charge that was used once within this budget's worth of missed bytes and the one before.
  uint64_t reserve() {
    while (!used_once_.empty() && used_once_.front().at / kBudget + 1 < missed_ / kBudget)
      used_once_.pop_front();
    uint64_t largest = 0;
    for (const UsedOnce& one : used_once_) largest = std::max(largest, one.charge);
    return largest;
  }
  bool judge(uintptr_t start, bool has_room) {
    const bool is_known = !known_.insert(start).second;
    for (Sample& sample : samples_) {
      if (sample.start != start || sample.was_again) continue;
      sample.was_again = true;
      const bool is_soon = !sample.is_known || used_ - sample.used_at <= kBudget;
      end(sample, is_soon ? 1 : 0);
      if (is_soon) return true;
    }
    if (has_room) return true;
    if (draws_.one_in(16) && samples_.size() < 64) {
      samples_.push_back({start, missed_, used_, is_known, false});
      return false;
    }
    if (!is_known) return draws_.in_share(shares[0]);
    return draws_.in_share(shares[1] < 0.5 ? 1.0 / 32 : shares[1]);
  }

  uint64_t missed_ = 0, used_ = 0, mean_ = 0;
  std::optional<uint64_t> full_at_;
  std::set<uintptr_t> known_;
  std::deque<Sample> samples_;
  std::deque<UsedOnce> used_once_;
  AdmissionDraws draws_;
};

TEST(ReuseAdmission, AnswersAsItsRule) {
  std::mt19937_64 random(test_seed());
  const auto chance = [&](uint64_t n) { return random() % n == 0; };
  ReuseAdmission policy;
  Model model;
  const std::vector<uintptr_t> starts = starts_apart(2000);
  size_t answers[3] = {};
  double lowest = 1, highest = 0;
  for (int phase = 0; phase < 300; ++phase) {
    // Phases with room end the pressure; in the others memory comes again early, late or never.
    const uint64_t most_room = chance(4) ? kBudget : kPage * (random() % 8 + 1);
    const size_t first = random() % starts.size();
    const size_t span = size_t{1} << random() % 11;
    for (int step = 0; step < 100; ++step) {
      const uint64_t charge = (chance(8) ? random() % 8 + 1 : 1) * kPage;
      Candidate one =
          miss(starts[(first + random() % span) % starts.size()], random() % (most_room + 1),
               charge, chance(16) ? static_cast<uint32_t>(random() % 3) : kManyRegions);
      one.hits = chance(2) ? random() % 4 : 0;
      one.is_beyond_need = chance(8);
      one.is_stream = !one.is_beyond_need && chance(16);
      const Admission answer = policy.decide(one);
      ASSERT_EQ(answer, model.decide(one)) << "phase " << phase << ", step " << step;
      ++answers[static_cast<size_t>(answer)];
    }
    lowest = std::min(lowest, model.shares[0]);
    highest = std::max(highest, model.shares[1]);
  }
  EXPECT_GT(answers[static_cast<size_t>(Admission::kKeep)], 1000u);
  EXPECT_GT(answers[static_cast<size_t>(Admission::kUseOnce)], 1000u);
  EXPECT_LT(lowest, 0.5);
  EXPECT_GT(highest, 0.5);
}

// Misses of `count` pages without room, from a page on; the number that is kept.
size_t kept_of(ReuseAdmission& policy, uintptr_t first_page, size_t count) {
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i)
    kept += policy.decide(miss((first_page + i) * kPage, 0)) == Admission::kKeep ? 1 : 0;
  return kept;
}

TEST(ReuseAdmission, KeepsEverythingUntilTheBudgetIsFull) {
  ReuseAdmission policy;
  for (uintptr_t page = 1; page < 10000; ++page)
    ASSERT_EQ(policy.decide(miss(page % 100 * kPage, kPage, kPage, 1)), Admission::kKeep);
}

TEST(ReuseAdmission, SoonKeepsNothingOfMemoryThatNeverComesAgain) {
  ReuseAdmission policy;
  EXPECT_GT(kept_of(policy, 1, 64), 50u);
  kept_of(policy, 1000, 3000);
  EXPECT_LT(kept_of(policy, 10000, 1000), 50u);
}

TEST(ReuseAdmission, KeepsNewMemoryAgainOnceSamplesOfItComeAgain) {
  ReuseAdmission policy;
  kept_of(policy, 1, 4000);
  for (uintptr_t page = 10000; page < 12000; page += 20) {
    kept_of(policy, page, 20);
    kept_of(policy, page, 20);
  }
  EXPECT_GT(kept_of(policy, 20000, 64), 40u);
}

TEST(ReuseAdmission, FindsSamplesAmongMoreMemoryThanItKnows) {
  ReuseAdmission policy;
  kept_of(policy, 1, 4000);
  constexpr uintptr_t kPages = 3 << 14;  // of each place of its table others are missed in between
  size_t kept = 0;
  for (int round = 0; round < 3; ++round) {
    kept = 0;
    for (uintptr_t page = 10000; page < 10000 + kPages; ++page) {
      Candidate one = miss(page * kPage, 0);
      one.budget_bytes = 2 * kPages * kPage;
      if (policy.decide(one) == Admission::kKeep) ++kept;
    }
  }
  EXPECT_GT(kept, kPages / 2);
}

TEST(ReuseAdmission, KeepsOneOf32MissesOfKnownMemory) {
  ReuseAdmission policy;
  kept_of(policy, 1, 1000);
  size_t kept = 0;
  for (int round = 0; round < 32; ++round) kept += kept_of(policy, 1, 1000);
  EXPECT_GT(kept, 800u);
  EXPECT_LT(kept, 1200u);
}

TEST(ReuseAdmission, KeepsKnownMemoryOnceWhatIsKeptIsNotHit) {
  for (const uint64_t hits : {uint64_t{0}, uint64_t{9}}) {
    ReuseAdmission policy;
    kept_of(policy, 1, 1000);
    size_t kept = 0;
    for (int round = 0; round < 100; ++round) {
      for (uintptr_t page = 1; page <= 32; ++page) {
        Candidate one = miss(page * kPage, 0);
        one.hits = hits;
        if (policy.decide(one) == Admission::kKeep) ++kept;
      }
    }
    EXPECT_EQ(kept > 1600, hits == 0) << kept;
    EXPECT_EQ(kept < 320, hits != 0) << kept;
  }
}

TEST(ReuseAdmission, KeepsNothingInTheRoomOfUsesUnderPressure) {
  ReuseAdmission policy;
  for (int round = 0; round < 2; ++round) kept_of(policy, 1, 128);
  size_t kept = 0;
  for (uintptr_t page = 1; page < 64; ++page)
    kept += policy.decide(miss(page * kPage, kPage)) == Admission::kKeep ? 1 : 0;
  EXPECT_LT(kept, 8u);
  // A budget's worth of missed bytes had room: the pressure is over.
  EXPECT_EQ(policy.decide(miss(kPage, 2 * kPage)), Admission::kKeep);
  EXPECT_EQ(policy.decide(miss(kPage, kPage)), Admission::kKeep);
}

TEST(ReuseAdmission, KeepsNoRoomForLargeUses) {
  ReuseAdmission policy;
  const uint64_t large = kBudget / ReuseAdmission::kReservedPart + kPage;
  for (int i = 0; i < 64; ++i) (void)policy.decide(miss(kPage, 0, large));
  EXPECT_EQ(policy.decide(miss(kPage, kPage)), Admission::kKeep);
}

TEST(ReuseAdmission, AsksForTheRequestAloneWithoutRoomAndKeepsStreams) {
  ReuseAdmission policy;
  for (int round = 0; round < 2; ++round) kept_of(policy, 1, 128);
  Candidate longer = miss(kPage, 0, 4 * kPage);
  longer.request.len = kPage;
  longer.is_beyond_need = true;
  EXPECT_EQ(policy.decide(longer), Admission::kUseOnce);
  longer.is_beyond_need = false;
  longer.is_stream = true;
  for (int i = 0; i < 64; ++i) ASSERT_EQ(policy.decide(longer), Admission::kKeep);
}

TEST(ReuseAdmission, ChildForgetsEverything) {
  ReuseAdmission policy;
  for (int round = 0; round < 4; ++round) kept_of(policy, 1, 1000);
  policy.reset_in_child();
  EXPECT_EQ(policy.decide(miss(kPage, kPage)), Admission::kKeep);
  ReuseAdmission fresh;
  for (int round = 0; round < 4; ++round) {
    for (uintptr_t page = 1; page < 1000; ++page) {
      ASSERT_EQ(policy.decide(miss(page * kPage, 0)), fresh.decide(miss(page * kPage, 0)));
    }
  }
}

}  // namespace
}  // namespace hydrant::testing
