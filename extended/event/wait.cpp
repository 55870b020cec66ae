// Implements wait_blocking(), the slow part of all waits of the extended API. barrier_calls.cpp,
// event_calls.cpp and count_pieces.cpp (extended/rma) call it; it sleeps through am/progress/waiting.cpp.
#include "extended/event/wait.hpp"

#include "am/job/job.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/config/job_knobs.hpp"

#include <algorithm>
#include <immintrin.h>
#include <sched.h>

namespace hydrant {
namespace {

// Checks between two reads of the clock; about 100 ns each.
constexpr uint32_t kLooksPerClock = 16;
// A sleep and its wakeup cost about 30 us on both sides, so spin that long first.
constexpr uint64_t kSpinNs = 50'000;
// Ranks that need the processor have run by then, unless other programs take it. Then a sleep regains
// the processor sooner than a yield.
constexpr uint64_t kYieldNs = 200'000;
// Sleeps between checks of memory that an adapter writes: a quarter of the time waited so far, within
// these limits. So the delay is at most a quarter, and long waits cost little.
constexpr uint64_t kMinNapNs = 20'000;
constexpr uint64_t kMaxNapNs = 500'000;

// Polls without events before a rank that has served another rank yields, if ranks outnumber processors.
constexpr uint32_t kPollsForMore = 20;

uint64_t warn_after_ns() noexcept {
  static const uint64_t value = knob_number(JobKnob::kJobWaitWarn);
  return value;
}

// Number of consecutive yields, each within kInARowNs of the previous one, after which a rank leaves
// its processor; at most once per kBetweenMovesNs. Higher for higher ranks, so that not both ranks
// leave.
constexpr uint32_t kYieldsBeforeLeaving = 64;
constexpr uint64_t kInARowNs = 100'000;
constexpr uint64_t kBetweenMovesNs = 5'000'000;

// Moves to another processor: briefly removes this one from the affinity mask.
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

void refuse_wait(const char* call) noexcept {
  fatal("%s in a handler, and the operation is outstanding: waiting is not allowed there", call);
}

void yield_cpu(bool crowded) noexcept {
  if (!crowded) consider_leaving();
  yield_processor();
}

void wait_blocking(const WaitFor& what) noexcept {
  WaitCondition condition{.holds = what.ready, .context = what.context};
  const bool crowded = !is_spinning_useful();
  const uint64_t begin_ns = now_ns();
  uint64_t idle_since_ns = begin_ns;
  bool was_idle = true;
  uint32_t polls_for_more = 0;
  bool warned = what.log_pending == nullptr || warn_after_ns() == 0;
  for (uint32_t looks = 1; !what.done(what.context); ++looks) {
    // Valid until the next read of the clock: a rank that serves others is not idle.
    if (poll_all() != 0) {
      was_idle = false;
      polls_for_more = kPollsForMore;
    }
    if (what.done(what.context)) return;
    const bool serves = crowded && polls_for_more != 0 && is_reply_expected();
    if (serves) --polls_for_more;
    const bool yields =
        !serves && (crowded || is_spinning_useless(what.where(what.context), false));
    if (yields) {
      yield_cpu(crowded);
    } else {
      _mm_pause();
      if (looks % kLooksPerClock != 0) continue;
    }
    const uint64_t now = now_ns();
    if (!was_idle) idle_since_ns = now;
    was_idle = true;
    if (now - idle_since_ns >= (yields ? kYieldNs : kSpinNs)) {
      const bool naps = what.where(what.context) == WaitTarget::kAdapter;
      condition.max_ns = naps ? std::clamp((now - begin_ns) / 4, kMinNapNs, kMaxNapNs) : 0;
      // UINT32_MAX: treat all polls as empty, so that spin_or_yield() announces a sleep.
      if (spin_or_yield(UINT32_MAX)) sleep_announced(!what.done(what.context), condition);
    }
    if (warned || now - begin_ns < warn_after_ns()) continue;
    what.log_pending(what.context);
    warned = true;
  }
}

}  // namespace hydrant
