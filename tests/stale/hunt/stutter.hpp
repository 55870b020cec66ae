// Stops a thread now and then at any point, for about as long as a preemption on a busy machine, by a timer
// signal whose handler sleeps. Between two instructions that normally follow each other at once, other
// threads can then run.
//
// Threads: an object stops the thread that created it.
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
