// Memory that a signal handler replaces 1000 times a second, wherever its thread is: inside the cache or in
// libc. The handler makes only system calls, through libc's functions, so that hooks see them.
//
// Threads: all functions on the thread that created the object; the handler runs there, too.
#pragma once

#include "tests/stale/hunt/cache.hpp"
#include "tests/stale/hunt/random.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <ctime>

namespace hydrant::stale {

class Handler {
 public:
  static constexpr size_t kAreas = 3;
  static constexpr size_t kPages = 8;

  explicit Handler(uint64_t seed);
  // Without a timer or memory the handler never runs, and lives() stays 0.
  ~Handler();
  Handler(const Handler&) = delete;
  Handler& operator=(const Handler&) = delete;

  // Counts every change of any area. Equal values before and after an access prove that no handler ran in
  // between.
  uint64_t lives() const { return lives_.load(std::memory_order_relaxed); }
  Range area(size_t i) const;

  // Blocks the handler during this object's lifetime.
  class Away {
   public:
    Away();
    ~Away();
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;

   private:
    sigset_t before_;
  };

 private:
  static void run(int signal);
  void change();
  void move_onto(uintptr_t addr, std::atomic<uintptr_t>& target);

  Random random_;  // used by the handler only
  std::array<std::atomic<uintptr_t>, kAreas> areas_{};
  std::atomic<uint64_t> lives_{0};
  timer_t timer_{};
  bool started_ = false;
};

}  // namespace hydrant::stale
