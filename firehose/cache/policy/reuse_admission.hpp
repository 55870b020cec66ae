// Admits by reuse: while the budget is full, memory is kept if new memory has lately been used again before a
// budget's worth of others was missed. All else is used once. Where one such use is held at a time, and takes
// no more than a sixteenth of the budget, it evicts nothing.
//
// Where everything is kept and more is used than the budget holds, each registration evicts one that would
// have been used earlier (a loop over twice the budget never hits); what is kept here stays, and is hit.
//
// * Free room keeps. Under pressure, which is from a miss without room until a budget's worth of missed bytes
//   has fitted, as much as the largest use-once of late stays free: else each would evict what is kept.
// * New memory is kept with a learnt share. One request in 16 is a sample, which is used once: missed again
//   within a budget's worth of missed bytes, it is kept and raises the share; else it lowers it.
// * Memory that was missed before under pressure is known: one miss of 32 keeps it. Its samples have to come
//   again within a budget's worth of used bytes, hits included. Where half of them do, what is kept is hardly
//   used, a phase of the program is over, and the share counts as for new memory.
//
// Missed bytes are charges of misses under pressure; a limit of regions does not count. Hits are those of
// threads that miss. A client that repeats a refused pin counts as another use. Memory is told apart by where
// a request starts. The draws are those of a generator with a constant seed. Cost: a comparison of three
// words until the budget is full; from then on a table's entry, a draw or two and a look through the samples.
#pragma once

#include "firehose/cache/policy/admission_policy.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace hydrant {

// Numbers that look random and are the same in each run.
class AdmissionDraws {
 public:
  uint32_t next() noexcept {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<uint32_t>(state_ >> 32);
  }
  bool one_in(uint32_t n) noexcept { return next() < UINT32_MAX / n; }
  // True in so large a share of the draws, from 0 (none) to 1 (all).
  bool in_share(double share) noexcept { return next() < share * 0x1p32; }

 private:
  uint64_t state_ = 1;
};

class ReuseAdmission final : public AdmissionPolicy {
 public:
  static constexpr double kKnownKept = 1.0 / 32;  // of the misses of known memory, at least
  static constexpr double kNewPhase = 0.5;  // of known memory's samples: what is kept is stale
  static constexpr uint32_t kPerSample = 16;
  static constexpr size_t kSamples = 64;  // at once; no more are taken until one ends
  static constexpr double kStep = 1.0 / 8;
  static constexpr uint64_t kReservedPart = 16;  // no larger part of the budget stays free

  Admission decide(const Candidate& candidate) noexcept override {
    const bool is_full = candidate.lack_bytes != 0 || candidate.lack_regions != 0;
    if (!is_full && state_.pressed_bytes == 0) return Admission::kKeep;
    return decide_under_pressure(candidate, is_full);
  }
  void reset_in_child() noexcept override;

  // The place of memory in the table of known memory: memory of the same place displaces each other.
  static size_t place_of(uintptr_t start) noexcept { return hash(start) >> (64 - kPlaceBits); }

 private:
  static constexpr int kPlaceBits = 14;
  struct Sample {
    uintptr_t start;              // 0: missed again, or none
    uint64_t missed_at, used_at;  // missed_bytes and used_bytes then
    bool is_known;
  };
  struct State {
    uint64_t pressed_bytes = 0;  // pressure lasts for so many missed bytes
    uint64_t missed_bytes = 0;   // ever
    uint64_t used_bytes = 0;     // ever: these, and the mean charge of late for each hit
    uint64_t mean_charge = 0;
    uint64_t budgets = 0;  // of missed_bytes
    // The largest charge used once in this budget's worth, and in the one before.
    std::array<uint64_t, 2> largest{};
    std::array<double, 2> shares{1, 0};  // of samples of new and of known memory that came again
    AdmissionDraws draws;
    std::array<Sample, kSamples> samples{};  // a ring, the oldest at `first`
    size_t first = 0, count = 0;
  };

  static uint64_t hash(uintptr_t start) noexcept { return (start >> 12) * 0x9e3779b97f4a7c15U; }
  Admission decide_under_pressure(const Candidate& candidate, bool is_full) noexcept;
  void note_sample(const Sample& sample, bool came_again) noexcept {
    double& share = state_.shares[sample.is_known];
    share += ((came_again ? 1 : 0) - share) * kStep;
  }
  void note_missed(const Candidate& candidate, bool is_full) noexcept;
  bool note_known(uintptr_t start) noexcept;
  bool is_sample_again(uintptr_t start, uint64_t budget_bytes) noexcept;
  void end_samples(uint64_t budget_bytes) noexcept;
  bool is_kept(uintptr_t start, bool is_known) noexcept;

  State state_;
  std::array<uint16_t, size_t{1} << kPlaceBits>
      known_{};  // a mark of what was missed last; 0: nothing
};

}  // namespace hydrant
