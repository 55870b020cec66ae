// The time of a simulation: this program's clock_gettime(), nanosleep() and getrandom() replace those of libc
// (virtual_time.cpp), so that neither real time nor chance decides anything in the libraries that are linked
// into it. Outside a simulation they are libc's.
#pragma once

#include <cstdint>

namespace hydrant::simulation {

class VirtualTime {
 public:
  static constexpr uint64_t kMicrosecond = 1000;
  static constexpr uint64_t kMillisecond = 1'000'000;
  static constexpr uint64_t kSecond = 1'000'000'000;

  // Starts a simulation, at the same time each: the clock stands until elapse(), and `seed` decides what
  // getrandom() answers. One simulation at a time.
  explicit VirtualTime(uint64_t seed);
  ~VirtualTime();
  VirtualTime(const VirtualTime&) = delete;
  VirtualTime& operator=(const VirtualTime&) = delete;

  // Since the start, in nanoseconds.
  static uint64_t elapsed_ns();
  // Also moves the clock of the stand-in for libibverbs, which counts milliseconds.
  static void elapse(uint64_t ns);
};

// splitmix64
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t bits = state_ += 0x9e37'79b9'7f4a'7c15;
    bits = (bits ^ bits >> 30) * 0xbf58'476d'1ce4'e5b9;
    bits = (bits ^ bits >> 27) * 0x94d0'49bb'1331'11eb;
    return bits ^ bits >> 31;
  }
  uint32_t below(uint64_t limit) { return static_cast<uint32_t>(next() % limit); }
  // Both ends included.
  uint32_t between(uint32_t least, uint32_t most) {
    return least + below(uint64_t{most} - least + 1);
  }
  bool one_in(uint32_t count) { return below(count) == 0; }

 private:
  uint64_t state_;
};

}  // namespace hydrant::simulation
