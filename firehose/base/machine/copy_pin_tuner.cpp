// Judges the trials of copy_pin_tuner.hpp: scales times to one length, keeps means, and picks the fastest
// way.
#include "firehose/base/machine/copy_pin_tuner.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr uint32_t kMinRest = 32;
constexpr uint32_t kGrowth = 4;
constexpr uint32_t kMaxRest = 1 << 14;
constexpr float kShareOfTrials = 1.0F / 256;
// Cost of reading the clock twice.
constexpr float kLooksNs = 60;
// Weight of a new trial: the mean of earlier trials counts three times as much.
constexpr float kNews = 1.0F / 4;
// A new way must be faster by this factor; otherwise noise would switch ways all the time.
constexpr float kClearly = 31.0F / 32;
// A trial ends after so many further uses even if some of its times were not reported.
constexpr uint32_t kMaxLate = 1024;

}  // namespace

CopyPinTuner::Turn CopyPinTuner::try_next(State* state, uint8_t size_class) noexcept {
  if (state->begun < kAll) {
    const uint32_t block = state->begun / kBlock;
    const bool timed = state->begun % kBlock >= kWarmUps;
    ++state->begun;
    return {static_cast<Way>((block + state->first) % kWays), timed, size_class};
  }
  if (++state->late > kMaxLate) judge(state);
  return {state->best, false, size_class};
}

void CopyPinTuner::note(Turn turn, size_t len, uint64_t ns) noexcept {
  State& state = states_[turn.size_class];
  const auto way = static_cast<size_t>(turn.way);
  if (!turn.timed || state.noted[way] >= kTimes) return;
  const auto shortest = static_cast<float>(size_t{1} << turn.size_class);
  const float scaled =
      static_cast<float>(ns) * shortest / static_cast<float>(std::max(len, size_t{1}));
  ++state.noted[way];
  state.sum[way] += scaled;
  state.longest[way] = std::max(state.longest[way], scaled);
  for (const uint8_t noted : state.noted) {
    if (noted < kTimes) return;
  }
  judge(&state);
}

void CopyPinTuner::judge(State* state) noexcept {
  for (size_t way = 0; way < kWays; ++way) {
    if (state->noted[way] < 2) continue;  // too few times reported: keeps the old mean
    // Without the longest, which mostly contains another process's time slice.
    const float now =
        (state->sum[way] - state->longest[way]) / static_cast<float>(state->noted[way] - 1);
    float& mean = state->mean[way];
    mean = mean == 0 ? now : mean + (now - mean) * kNews;
  }
  const auto& mean = state->mean;
  const auto quicker = [](float a, float b) { return a != 0 && (b == 0 || a < b); };  // 0: unknown
  const auto quickest =
      static_cast<size_t>(std::min_element(mean.begin(), mean.end(), quicker) - mean.begin());
  const auto before = static_cast<size_t>(state->best);
  const bool changed = !state->judged || mean[quickest] < mean[before] * kClearly;
  const size_t best = changed ? quickest : before;
  float price = kWays * kTimes * kLooksNs;
  for (const float each : mean) price += std::max(each - mean[best], 0.0F) * kBlock;
  const float wanted = price / std::max(mean[best] * kShareOfTrials, 1.0F);
  const uint32_t most = best == before && state->judged ? kGrowth * state->last_rest : kMinRest;
  State next;
  next.best = static_cast<Way>(best);
  next.judged = true;
  next.first = static_cast<uint8_t>(
      (state->first + 1) % kWays);  // rotates, so that each way finds the cache state of another
  next.mean = mean;
  next.rest = static_cast<uint32_t>(std::min(wanted, static_cast<float>(kMaxRest)));
  next.rest = next.last_rest = std::clamp(next.rest, kMinRest, std::max(most, kMinRest));
  *state = next;
}

}  // namespace hydrant
