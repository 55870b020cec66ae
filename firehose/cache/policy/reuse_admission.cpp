// Implements the rule of reuse_admission.hpp for misses under pressure.
#include "firehose/cache/policy/reuse_admission.hpp"

#include <algorithm>
#include <utility>

namespace hydrant {
namespace {

constexpr uint64_t kMeanOf = 32;  // misses that the mean charge follows

}  // namespace

// (Not by assignment of a new object: the forking thread's stack may be small.)
void ReuseAdmission::reset_in_child() noexcept {
  state_ = {};
  known_.fill(0);
}

Admission ReuseAdmission::decide_under_pressure(const Candidate& candidate, bool is_full) noexcept {
  const uint64_t reserve = std::max(state_.largest[0], state_.largest[1]);
  // A region stays free for the next use-once, too. What a stream registers serves its next requests.
  const bool has_room = candidate.is_stream ||
                        (candidate.room_regions > 1 && candidate.charge <= candidate.room_bytes &&
                         reserve <= candidate.room_bytes - candidate.charge);
  state_.used_bytes += candidate.hits * state_.mean_charge;
  // The request alone is asked for next, and counts as the miss.
  if (candidate.is_beyond_need && !has_room) return Admission::kUseOnce;
  end_samples(candidate.budget_bytes);
  state_.mean_charge += candidate.charge / kMeanOf - state_.mean_charge / kMeanOf;
  const uintptr_t start = candidate.request.addr;
  const bool is_known = note_known(start);
  const bool is_again = is_sample_again(start, candidate.budget_bytes);
  const bool keeps = has_room || is_again || is_kept(start, is_known);
  note_missed(candidate, is_full);
  if (!keeps && candidate.charge <= candidate.budget_bytes / kReservedPart)
    state_.largest[0] = std::max(state_.largest[0], candidate.charge);
  return keeps ? Admission::kKeep : Admission::kUseOnce;
}

bool ReuseAdmission::is_kept(uintptr_t start, bool is_known) noexcept {
  if (state_.draws.one_in(kPerSample) && state_.count != kSamples) {
    state_.samples[(state_.first + state_.count++) % kSamples] = {start, state_.missed_bytes,
                                                                  state_.used_bytes, is_known};
    return false;
  }
  const double share = state_.shares[is_known];
  return state_.draws.in_share(is_known && share < kNewPhase ? kKnownKept : share);
}

void ReuseAdmission::note_missed(const Candidate& candidate, bool is_full) noexcept {
  const uint64_t left = state_.pressed_bytes - std::min(state_.pressed_bytes, candidate.charge);
  state_.pressed_bytes = is_full ? candidate.budget_bytes : left;
  state_.missed_bytes += candidate.charge;
  state_.used_bytes += candidate.charge;
  const uint64_t budgets = state_.missed_bytes / std::max<uint64_t>(candidate.budget_bytes, 1);
  if (budgets == state_.budgets) return;
  state_.largest = {0, budgets == state_.budgets + 1 ? state_.largest[0] : 0};
  state_.budgets = budgets;
}

// Makes the memory known. True: it was.
bool ReuseAdmission::note_known(uintptr_t start) noexcept {
  const auto mark = static_cast<uint16_t>((hash(start) >> (48 - kPlaceBits)) | 1);
  return std::exchange(known_[place_of(start)], mark) == mark;
}

// True if the memory is a sample that came again soon enough.
bool ReuseAdmission::is_sample_again(uintptr_t start, uint64_t budget_bytes) noexcept {
  for (size_t i = 0; i < state_.count; ++i) {
    Sample& sample = state_.samples[(state_.first + i) % kSamples];
    if (sample.start != start) continue;
    sample.start = 0;
    const bool is_soon = !sample.is_known || state_.used_bytes - sample.used_at <= budget_bytes;
    note_sample(sample, is_soon);
    return is_soon;
  }
  return false;
}

// Ends the samples that were not missed again in time.
void ReuseAdmission::end_samples(uint64_t budget_bytes) noexcept {
  while (state_.count != 0) {
    const Sample& oldest = state_.samples[state_.first];
    if (state_.missed_bytes - oldest.missed_at <= budget_bytes) return;
    if (oldest.start != 0) note_sample(oldest, false);
    state_.first = (state_.first + 1) % kSamples;
    --state_.count;
  }
}

}  // namespace hydrant
