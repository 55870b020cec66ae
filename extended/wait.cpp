#include "extended/wait.hpp"

#include "firehose/base/config.hpp"
#include "firehose/base/thread.hpp"

#include <immintrin.h>
#include <sched.h>

namespace hydrant {
namespace {

// Looks between two looks at the clock while nobody sleeps; some 100 ns each.
constexpr uint32_t kLooksPerClock = 16;
// A sleep and the waking cost some 30 us on both sides: who has waited that long may as well.
constexpr uint64_t kSpinNs = 50'000;
// Whoever needs the processor has come by then, unless other programs take it: then a sleep gets it back
// sooner than a yield.
constexpr uint64_t kYieldNs = 200'000;

uint64_t warn_after_ns() noexcept {
  static const uint64_t value = knob_number(Knob::kJobWaitWarn);
  return value;
}

}  // namespace

void give_processor_away() noexcept { sched_yield(); }

void wait_patiently(const WaitFor& what) noexcept {
  const Awaited awaited{.holds = what.ready, .context = what.context};
  const bool crowded = !spinning_pays();
  const uint64_t begin_ns = now_ns();
  uint64_t idle_since_ns = begin_ns;
  bool warned = what.complain == nullptr || warn_after_ns() == 0;
  for (uint32_t looks = 1; !what.done(what.context); ++looks) {
    const uint32_t events = poll_all();
    if (what.done(what.context)) return;
    const bool yields = crowded || is_hopeless(what.where(what.context), false);
    if (yields) {
      give_processor_away();
    } else {
      _mm_pause();
      if (looks % kLooksPerClock != 0) continue;
    }
    const uint64_t now = now_ns();
    if (events != 0) idle_since_ns = now;
    if (now - idle_since_ns >= (yields ? kYieldNs : kSpinNs)) {
      // As if all its polls had been in vain: it announces that this thread sleeps, if it may.
      if (give_way(UINT32_MAX)) sleep_announced(!what.done(what.context), awaited);
    }
    if (warned || now - begin_ns < warn_after_ns()) continue;
    what.complain(what.context);
    warned = true;
  }
}

}  // namespace hydrant
