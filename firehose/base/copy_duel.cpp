#include "firehose/base/copy_duel.hpp"

#include <algorithm>

namespace hydrant {
namespace {

constexpr uint32_t kShortestRest = 32;
constexpr uint32_t kGrowth = 4;
constexpr uint32_t kLongestRest = 1 << 14;
constexpr float kShareOfTrials = 1.0F / 256;
// What taking the time twice costs.
constexpr float kLooksNs = 60;
// The last trials' mean counts three times as much as a new one.
constexpr float kNews = 1.0F / 4;
// A challenger is better by so much, or noise would change the way all the time.
constexpr float kClearly = 31.0F / 32;
// Uses that may pass before a trial ends without those of its times that have not been told.
constexpr uint32_t kMostLate = 1024;

}  // namespace

CopyDuel::Turn CopyDuel::try_next(State* state, uint8_t size_class) noexcept {
  if (state->begun < kAll) {
    const uint32_t block = state->begun / kBlock;
    const bool timed = state->begun % kBlock >= kWarmUps;
    ++state->begun;
    return {static_cast<Way>((block + state->first) % kWays), timed, size_class};
  }
  if (++state->late > kMostLate) judge(state);
  return {state->best, false, size_class};
}

void CopyDuel::note(Turn turn, size_t len, uint64_t ns) noexcept {
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

void CopyDuel::judge(State* state) noexcept {
  for (size_t way = 0; way < kWays; ++way) {
    if (state->noted[way] < 2) continue;  // whoever tells nothing is not judged anew
    // Without the longest, which more often than not is somebody else's time slice.
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
  const uint32_t most =
      best == before && state->judged ? kGrowth * state->last_rest : kShortestRest;
  State next;
  next.best = static_cast<Way>(best);
  next.judged = true;
  next.first = static_cast<uint8_t>((state->first + 1) % kWays);  // each finds another one's traces
  next.mean = mean;
  next.rest = static_cast<uint32_t>(std::min(wanted, static_cast<float>(kLongestRest)));
  next.rest = next.last_rest = std::clamp(next.rest, kShortestRest, std::max(most, kShortestRest));
  *state = next;
}

}  // namespace hydrant
