// How the extended API waits for other ranks: it looks, polling all the while; gives the processor away where
// somebody who is waited for needs it; and sleeps when it takes longer than to fall asleep and be woken. It
// does not yield to whoever else may run: beside other programs a yield costs a time slice, a sleep does not.
// docs/barriers.md has the figures.
//
// Nothing waits silently: after HYDRANT_WAIT_WARN it says once what is missing, and goes on.
#pragma once

#include "am/waiting.hpp"
#include "extended/event.hpp"

#include <cstdint>
#include <immintrin.h>

namespace hydrant {

// Rounds of looks before wait_patiently(), some 0.5 us each. Where ranks outnumber processors, who is waited
// for elsewhere may stand behind somebody who looks, too.
inline constexpr uint32_t kQuickPolls = 32;
inline constexpr uint32_t kLooksPerPoll = 8;
inline constexpr uint32_t kQuickPollsIfCrowded = 4;

// To whoever else can run here now. Where there are processors for all (not `crowded`), a rank that does so
// again and again moves to another one: the kernel leaves two ranks on one as long as other programs keep
// the rest busy.
void give_processor_away(bool crowded) noexcept;

// True if looking is in vain as long as this thread keeps its processor.
inline bool is_hopeless(WaitsFor where, bool crowded) noexcept {
  return where == WaitsFor::kThisProcessor || (where != WaitsFor::kOtherProcessors && crowded);
}

// What is waited for. `done` may do what helps; `ready` only looks, just before a sleep; `where` says
// who it is that has to do something; `complain` writes one line and may be null.
struct WaitFor {
  bool (*done)(void* context) noexcept;
  bool (*ready)(const void* context) noexcept;
  WaitsFor (*where)(const void* context) noexcept;
  void (*complain)(const void* context);
  void* context;
};

// The slow part: polls, and looks, until it is done.
void wait_patiently(const WaitFor& what) noexcept;

// For what only polls bring, as a put's acknowledgement: looking between them would keep it waiting, by
// 0.1 us on average where a pause takes 25 ns.
template <typename Done>
inline bool poll_quickly(Done&& done, bool crowded) noexcept {
  const uint32_t polls = crowded ? kQuickPollsIfCrowded : kQuickPolls * kLooksPerPoll;
  for (uint32_t i = 0; i < polls; ++i) {
    poll_all();
    if (done()) return true;
    if (crowded) give_processor_away(true);
  }
  return false;
}

// Something between the ranks of a node takes some 100 ns if all are there: look that long before anything
// slow, polling now and then. The pause between looks leaves the line to whoever is about to write it.
template <typename Done, typename Where>
inline bool look_quickly(Done&& done, Where&& where) noexcept {
  const bool crowded = !spinning_pays();
  if (where() == WaitsFor::kPolls) return poll_quickly(done, crowded);
  const uint32_t polls = crowded ? kQuickPollsIfCrowded : kQuickPolls;
  for (uint32_t i = 0; i < polls; ++i) {
    poll_all();
    // Where it is unlikely, the question is not worth the line that answers it.
    if (crowded && is_hopeless(where(), true)) {
      give_processor_away(true);
      if (done()) return true;
      continue;
    }
    for (uint32_t look = 0; look < kLooksPerPoll; ++look) {
      if (done()) return true;
      _mm_pause();
    }
    if (is_hopeless(where(), crowded)) return false;
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
