// How the extended API waits: a few looks without giving the processor away, then by am/waiting.hpp's
// policy; polling all the while. Nothing waits silently: after HYDRANT_WAIT_WARN it says once what is
// missing, and goes on.
#pragma once

#include "am/waiting.hpp"

#include <cstdint>

namespace hydrant {

// What is waited for. `done` may do what helps; `ready` only looks, just before a sleep; `complain` writes one
// line and may be null.
struct WaitFor {
  bool (*done)(void* context) noexcept;
  bool (*ready)(const void* context) noexcept;
  void (*complain)(const void* context);
  void* context;
};

// The slow part: polls, and looks, until it is done.
void wait_patiently(const WaitFor& what) noexcept;

// Something between the ranks of a node takes some 100 ns if all are there: look that long before anything
// slow, polling now and then.
template <typename Done>
inline bool look_quickly(Done&& done) noexcept {
  constexpr uint32_t kLooks = 64;
  constexpr uint32_t kLooksPerPoll = 16;
  if (!spinning_pays()) {
    poll_all();
    return done();
  }
  for (uint32_t i = 0; i < kLooks; ++i) {
    if (i % kLooksPerPoll == 0) poll_all();
    if (done()) return true;
  }
  return false;
}

// True now and then: a call that did not have to wait polls then, so that one that never has to wait still
// serves others.
inline bool should_poll_anyway() noexcept {
  static constinit thread_local uint32_t calls = 0;
  return ++calls % 8 == 0;
}

}  // namespace hydrant
