// Register or copy? For whoever can do either: a network layer with a pin cache and a pool of buffers that
// are pinned already (buffer_pool.hpp).
//
// No fixed size answers it. What a registration costs beside a copy depends on the kernel, on how often
// memory is used again before its budget is wanted, on charges that come back late; what a copy costs beside
// it depends on the transport: a device reads pinned memory at no cost to the processor, while the kernel's
// own copying is cheaper from a buffer that has just been written. So all ways are tried in turn, and timed
// by the caller over whatever he wants to be short: the whole use, transfer included.
//
// For each power of two of lengths by itself: a trial takes each way a few times in a row; the way that was
// quickest, over the last trials, is then taken, untimed, until what the trial has cost is a 256th of the
// time since, but at most four times as often as after the trial before. In a row, because a way that
// comes once in a while finds its data cold (1 MiB registered now and then: 30 us more).
//
// Threads: none of its own; one for each thread, or under the caller's lock. No allocation, no system call.
// Cost: 1 ns, beside the trials. 4 KiB.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace hydrant {

class CopyDuel {
 public:
  enum class Way : uint8_t {
    kCopy,      // through a buffer, without asking the cache
    kIfPinned,  // hydrant_try_pin(): registers nothing
    kPin,       // hydrant_pin()
  };
  static constexpr size_t kWays = 3;

  struct Turn {
    Way way = Way::kPin;
    bool timed = false;  // the caller takes the time of this use, and tells note()
    uint8_t size_class = 0;
  };

  // Which way the next use of `len` bytes should go. What the cache does not answer with a pin is copied, and
  // is a use of that way all the same.
  Turn choose(size_t len) noexcept {
    const auto size_class = static_cast<uint8_t>(len != 0 ? std::bit_width(len) - 1 : 0);
    State& state = states_[size_class];
    if (state.rest == 0) return try_next(&state, size_class);
    --state.rest;
    return {state.best, false, size_class};
  }
  // How long a use took that was to be timed; in any order, at any time. A failed use need not be told.
  void note(Turn turn, size_t len, uint64_t ns) noexcept;

  // The way that is taken outside of trials.
  Way best(size_t len) const noexcept {
    return states_[len != 0 ? std::bit_width(len) - 1 : 0].best;
  }

 private:
  static constexpr uint32_t kTimes =
      5;  // of each way in a trial, after so many that are not timed:
  static constexpr uint32_t kWarmUps = 3;
  static constexpr uint32_t kBlock = kWarmUps + kTimes;
  static constexpr uint32_t kAll = kBlock * kWays;

  struct State {
    uint32_t rest = 0;       // uses until the next trial
    uint32_t last_rest = 0;  // that there were before this one
    uint16_t begun = 0;      // uses of the trial under way
    uint16_t late = 0;       // uses since all of them have begun
    uint8_t first = 0;       // the way that this trial begins with
    Way best = Way::kPin;
    bool judged = false;
    std::array<uint8_t, kWays> noted = {};
    // Of a use as long as the class's shortest, ns: in this trial, and over the last ones.
    std::array<float, kWays> sum = {}, longest = {}, mean = {};
  };

  static Turn try_next(State* state, uint8_t size_class) noexcept;
  static void judge(State* state) noexcept;

  std::array<State, 64> states_ = {};
};

}  // namespace hydrant
