// How the extended API waits for other ranks: it looks, polling all the while; gives the processor
// away when somebody who is waited for needs it; and sleeps when what it waits for takes longer
// than to fall asleep and be woken. It does not yield to whoever else may run: beside other
// programs' load a yield costs their time slice, a sleep does not (docs/barriers.md has the
// figures).
//
// Nothing waits silently: after HYDRANT_WAIT_WARN it says once what is missing, and goes on.
#pragma once

#include "am/waiting.hpp"

#include <cstdint>
#include <immintrin.h>

namespace hydrant {

// Rounds of looks before wait_patiently(), some 50 ns each.
inline constexpr uint32_t kQuickPolls = 32;

// To whoever else can run here now.
void give_processor_away() noexcept;

// What is waited for. `done` may do what helps; `ready` only looks, just before a sleep; `hopeless` says that
// looking is in vain, because this thread holds the processor that somebody else needs for it; `complain`
// writes one line. All but `done` may be null.
struct WaitFor {
  bool (*done)(void* context) noexcept;
  bool (*ready)(const void* context) noexcept;
  bool (*hopeless)(const void* context) noexcept;
  void (*complain)(const void* context);
  void* context;
};

// The slow part: polls, and looks, until it is done.
void wait_patiently(const WaitFor& what) noexcept;

// Something between the ranks of a node takes some 100 ns if all are there: look that long before anything
// slow, polling now and then. The pause between looks leaves the line to whoever is about to write it.
template <typename Done, typename Hopeless>
inline bool look_quickly(Done&& done, Hopeless&& hopeless) noexcept {
  constexpr uint32_t kLooksPerPoll = 8;
  for (uint32_t i = 0; i < kQuickPolls; ++i) {
    poll_all();
    for (uint32_t look = 0; look < kLooksPerPoll; ++look) {
      if (done()) return true;
      _mm_pause();
    }
    if (hopeless()) return false;
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
