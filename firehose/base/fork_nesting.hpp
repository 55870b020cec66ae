// Determines whether a fork handler may lock the library's mutexes.
//
// fork() may be called in a signal handler that interrupted this thread while it held a mutex of the library,
// or in the middle of another fork(). Then a fork handler must take no lock: it would wait for its own
// thread, or for a thread that waits for it. The child of such a fork may find tables in the middle of a
// change; it resets them without following their links, as the child of a raw clone() does. Interrupted calls
// do not continue in the child, so its own forks lock again.
//
// Each library's handlers have a ForkNesting of their own per thread.
#pragma once

#include "firehose/base/thread.hpp"

#include <cstdint>

namespace hydrant {

class ForkNesting {
 public:
  // In the handler before a fork. True: lock, then call locked().
  bool begin() noexcept {
    if (Mutex::any_held() || is_locked_ != 0) {
      ++skipped_;
      return false;
    }
    is_locked_ = 1;
    return true;
  }
  // Other fork handlers of this thread see no mutex held.
  static void locked() noexcept { Mutex::discount_held(); }

  // In the handler in the parent. True: unlock, then call unlocked(). False: begin() returned false for this
  // fork, and nothing is locked for it.
  bool end() noexcept {
    if (skipped_ == 0) return true;
    --skipped_;
    return false;
  }
  void unlocked() noexcept {
    Mutex::discount_held();
    is_locked_ = 0;
  }
  // In the handler in the child, whose thread holds no mutex and is in no fork. True: the fork had locked.
  bool finish_in_child() noexcept {
    const bool had_locked = skipped_ == 0;
    *this = {};
    Mutex::discount_held();
    return had_locked;
  }

 private:
  // In a single byte, because libfirehose may use 64 bytes of static TLS.
  uint8_t is_locked_ : 1 = 0;
  uint8_t skipped_ : 7 = 0;
};

}  // namespace hydrant
