#include "extended/wait.hpp"

#include "am/job.hpp"
#include "firehose/base/config.hpp"
#include "firehose/base/thread.hpp"

#include <algorithm>
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
// Between two looks at what an adapter writes: a quarter of what was waited so far, within these. The wait
// gets no longer than by that, and a long one costs little.
constexpr uint64_t kLeastNapNs = 20'000;
constexpr uint64_t kMostNapNs = 500'000;

// Polls in vain before a rank that has served another one yields, where ranks outnumber processors.
constexpr uint32_t kPollsForMore = 20;

uint64_t warn_after_ns() noexcept {
  static const uint64_t value = knob_number(Knob::kJobWaitWarn);
  return value;
}

// Yields in a row, none longer than kInARowNs after the one before, that make a rank leave; not again within
// kBetweenMovesNs. More for higher ranks, so that not both leave.
constexpr uint32_t kYieldsBeforeLeaving = 64;
constexpr uint64_t kInARowNs = 100'000;
constexpr uint64_t kBetweenMovesNs = 5'000'000;

// Forbids itself this processor for a moment.
void leave_processor() noexcept {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int here = sched_getcpu();
  if (here < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<size_t>(here), &others);
  if (CPU_COUNT(&others) == 0) return;
  if (sched_setaffinity(0, sizeof others, &others) == 0)
    sched_setaffinity(0, sizeof allowed, &allowed);
}

void consider_leaving() noexcept {
  struct Record {
    uint64_t last_ns = 0;
    uint64_t moved_ns = 0;
    uint32_t in_a_row = 0;
  };
  static constinit thread_local Record record;
  const uint64_t now = now_ns();
  record.in_a_row = now - record.last_ns < kInARowNs ? record.in_a_row + 1 : 0;
  record.last_ns = now;
  const uint32_t enough = kYieldsBeforeLeaving * (1 + job().rank() % 4);
  if (record.in_a_row < enough || now - record.moved_ns < kBetweenMovesNs) return;
  leave_processor();
  record.moved_ns = now;
  record.in_a_row = 0;
}

}  // namespace

void give_processor_away(bool crowded) noexcept {
  if (!crowded) consider_leaving();
  yield_processor();
}

void wait_patiently(const WaitFor& what) noexcept {
  Awaited awaited{.holds = what.ready, .context = what.context};
  const bool crowded = !spinning_pays();
  const uint64_t begin_ns = now_ns();
  uint64_t idle_since_ns = begin_ns;
  bool was_idle = true;
  uint32_t polls_for_more = 0;
  bool warned = what.complain == nullptr || warn_after_ns() == 0;
  for (uint32_t looks = 1; !what.done(what.context); ++looks) {
    // Kept until the next look at the clock: whoever serves others in the meantime is not idle.
    if (poll_all() != 0) {
      was_idle = false;
      polls_for_more = kPollsForMore;
    }
    if (what.done(what.context)) return;
    const bool serves = crowded && polls_for_more != 0 && answer_is_near();
    if (serves) --polls_for_more;
    const bool yields = !serves && (crowded || is_hopeless(what.where(what.context), false));
    if (yields) {
      give_processor_away(crowded);
    } else {
      _mm_pause();
      if (looks % kLooksPerClock != 0) continue;
    }
    const uint64_t now = now_ns();
    if (!was_idle) idle_since_ns = now;
    was_idle = true;
    if (now - idle_since_ns >= (yields ? kYieldNs : kSpinNs)) {
      const bool naps = what.where(what.context) == WaitsFor::kAdapter;
      awaited.longest_ns = naps ? std::clamp((now - begin_ns) / 4, kLeastNapNs, kMostNapNs) : 0;
      // As if all its polls had been in vain: it announces that this thread sleeps, if it may.
      if (give_way(UINT32_MAX)) sleep_announced(!what.done(what.context), awaited);
    }
    if (warned || now - begin_ns < warn_after_ns()) continue;
    what.complain(what.context);
    warned = true;
  }
}

}  // namespace hydrant
