// Decides at run time whether to register memory or to copy it. For a component that can do both: a network
// layer with a pin cache and a pool of pinned buffers (buffer_pool.hpp).
//
// No fixed size is right. The cost of a registration relative to a copy depends on the kernel, on how often
// memory is used again before eviction, and on charges that return late. The cost of a copy depends on the
// transport: a device reads pinned memory without the processor, while the kernel's copying is cheaper from a
// buffer that was just written. So the caller tries all ways in turn and times them over the whole use,
// transfer included.
//
// Each power of two of lengths has its own state. A trial takes each way several times in a row. The way that
// was fastest over the last trials is then taken, untimed, until the trial's cost is a 256th of the elapsed
// time, but at most for four times as many uses as after the previous trial. A way is repeated in a row
// because a rare use finds its data cold (1 MiB registered now and then: 30 us more).
//
// Threads: not thread-safe; use one per thread or hold a lock. No allocation, no system call.
// Cost: 1 ns outside of trials. Size: 4 KiB.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class CopyPinTuner {
 public:
  enum class Way : uint8_t {
    kCopy,      // through a buffer, without a call of the cache
    kIfPinned,  // hydrant_try_pin(): registers nothing
    kPin,       // hydrant_pin()
  };
  static constexpr size_t kWays = 3;

  struct Turn {
    Way way = Way::kPin;
    bool timed = false;  // the caller times this use and calls note()
    uint8_t size_class = 0;
  };

  // Chooses the way of the next use of `len` bytes. If the cache returns no pin, the caller copies,
  // and the use still counts for the chosen way.
  Turn choose(size_t len) noexcept {
    const auto size_class = static_cast<uint8_t>(len != 0 ? std::bit_width(len) - 1 : 0);
    State& state = states_[size_class];
    if (state.rest == 0) return try_next(&state, size_class);
    --state.rest;
    return {state.best, false, size_class};
  }
  // Reports how long a timed use took; in any order, at any time. A failed use need not be reported.
  void note(Turn turn, size_t len, uint64_t ns) noexcept;

  // The way that is taken outside of trials.
  Way best(size_t len) const noexcept {
    return states_[len != 0 ? static_cast<size_t>(std::bit_width(len) - 1) : 0].best;
  }

 private:
  // A trial takes each way kWarmUps times untimed, then kTimes times timed.
  static constexpr uint32_t kTimes = 5;
  static constexpr uint32_t kWarmUps = 3;
  static constexpr uint32_t kBlock = kWarmUps + kTimes;
  static constexpr uint32_t kAll = kBlock * kWays;

  struct State {
    uint32_t rest = 0;       // uses until the next trial
    uint32_t last_rest = 0;  // length of the previous rest
    uint16_t begun = 0;      // uses of the trial under way
    uint16_t late = 0;       // uses since the last of them began
    uint8_t first = 0;       // the way that this trial begins with
    Way best = Way::kPin;
    bool judged = false;
    std::array<uint8_t, kWays> noted = {};
    // ns, scaled to the class's shortest length: sum and longest of this trial, mean over the last trials.
    std::array<float, kWays> sum = {}, longest = {}, mean = {};
  };

  static Turn try_next(State* state, uint8_t size_class) noexcept;
  static void judge(State* state) noexcept;

  std::array<State, 64> states_ = {};
};

}  // namespace hydrant
