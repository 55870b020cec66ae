// Waits of the extended API for other ranks. A wait polls and checks; it yields if an awaited rank needs
// this processor, and sleeps if it takes longer than sleeping and waking. It does not yield to unrelated
// processes: next to other programs a yield costs a time slice, a sleep does not.
// docs/barriers.md has measurements.
//
// No wait is silent: after HYDRANT_WAIT_WARN it logs once what is missing, and continues.
#pragma once

#include "am/call/thread_state.hpp"
#include "am/progress/waiting.hpp"
#include "extended/event/event.hpp"

#include <cstdint>
#include <immintrin.h>

namespace hydrant {

// Polls before wait_blocking(), about 0.5 us each. Fewer if ranks outnumber processors, because then
// the awaited rank may need the processor of a waiting rank.
inline constexpr uint32_t kQuickPolls = 32;
inline constexpr uint32_t kLooksPerPoll = 8;
inline constexpr uint32_t kQuickPollsIfCrowded = 4;

// Yields the processor to any runnable thread. If there are enough processors (not `crowded`), a rank
// that yields repeatedly moves to another processor, because the kernel leaves two ranks on one
// processor while other programs keep the rest busy.
void yield_cpu(bool crowded) noexcept;

// Called by waits inside a handler, which may wait for complete operations (without GASNET_DEBUG). Ends the
// job: the operation is outstanding, and its completion may need handlers.
[[noreturn]] void refuse_wait(const char* call) noexcept;

// True if further checks are useless while this thread keeps its processor.
inline bool is_spinning_useless(WaitTarget where, bool crowded) noexcept {
  return where == WaitTarget::kThisProcessor || (where != WaitTarget::kOtherProcessors && crowded);
}

// A condition to wait for. `done` may advance it; `ready` only checks, just before a sleep; `where`
// returns where the awaited ranks run; `log_pending` logs one line and may be null.
struct WaitFor {
  bool (*done)(void* context) noexcept;
  bool (*ready)(const void* context) noexcept;
  WaitTarget (*where)(const void* context) noexcept;
  void (*log_pending)(const void* context);
  void* context;
};

// The slow part: polls and checks until the condition is done.
void wait_blocking(const WaitFor& what) noexcept;

// For operations that only polls complete, such as an acknowledged put: checks between polls would
// delay them by 0.1 us on average (a pause takes 25 ns).
template <typename Done>
inline bool poll_briefly(Done&& done, bool crowded) noexcept {
  const uint32_t polls = crowded ? kQuickPollsIfCrowded : kQuickPolls * kLooksPerPoll;
  for (uint32_t i = 0; i < polls; ++i) {
    poll_all();
    if (done()) return true;
    if (crowded) yield_cpu(true);
  }
  return false;
}

// An operation between ranks of a node takes about 100 ns if all ranks run. So check that long before
// anything slow, with occasional polls. The pause between checks leaves the cache line to its writer.
template <typename Done, typename Where>
inline bool spin_briefly(Done&& done, Where&& where) noexcept {
  const bool crowded = !is_spinning_useful();
  if (where() == WaitTarget::kPolls) return poll_briefly(done, crowded);
  const uint32_t polls = crowded ? kQuickPollsIfCrowded : kQuickPolls;
  for (uint32_t i = 0; i < polls; ++i) {
    poll_all();
    // If completion is unlikely, do not read the cache line that `done` needs.
    if (crowded && is_spinning_useless(where(), true)) {
      yield_cpu(true);
      if (done()) return true;
      continue;
    }
    for (uint32_t look = 0; look < kLooksPerPoll; ++look) {
      if (done()) return true;
      _mm_pause();
    }
    if (is_spinning_useless(where(), crowded)) return false;
  }
  return false;
}

// Polls in every 8th call. For calls that were complete at once: a client that never waits still serves other
// ranks, which may wait for its polls. docs/core_api.md lists the calls.
inline void poll_now_and_then() noexcept {
  if (++idle_calls % 8 == 0 && handler_depth == 0) poll_all();
}

}  // namespace hydrant
