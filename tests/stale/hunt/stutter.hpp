// Makes a thread stop now and then, wherever it is, for about as long as a preemption on a busy
// machine: between two instructions that elsewhere follow each other at once, another thread can then
// do all that it needs to. By a timer's signal and a handler that sleeps.
//
// Threads: an object belongs to the thread that made it, and stops that one.
#pragma once

#include <cstdint>
#include <ctime>

namespace hydrant::stale {

class Stutter {
 public:
  // Stops the calling thread about every `period_us`, for about half as long, until destruction.
  explicit Stutter(uint32_t period_us);
  ~Stutter();
  Stutter(const Stutter&) = delete;
  Stutter& operator=(const Stutter&) = delete;

 private:
  timer_t timer_{};
  bool started_ = false;
};

}  // namespace hydrant::stale
