// Waits for releases under way. Misses call them, hooks that hand out memory, and threads that start: through
// the functions of monitor.h.
#include "firehose/watch/release_waits.hpp"

#include "firehose/base/cancellation.hpp"
#include "firehose/base/log.hpp"
#include "firehose/watch/mutant.hpp"
#include "firehose/watch/pause.hpp"

#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint64_t kSyncDeadlineNs = 1'000'000'000;
constexpr size_t kSmallPage = 4096;

}  // namespace

// If many threads release memory, some change is always under way. A grace period waits only for the changes
// that have begun, by calls that are inside a hook now; its number separates them from calls that begin
// later. Returns 0 if changes may come from outside all hooks: raw system calls, and pthread_join() of a
// thread whose stack is watched.
uint64_t ReleaseWaits::begin_grace_period() noexcept {
  if (!raw_releases_.are_looked_for() || stacks_.any()) return 0;
  return removals_.begin_grace_period();
}

bool ReleaseWaits::quiet(MemoryRange range, uint64_t timeout_ns) noexcept {
  if (state_.is_running() && userfault_.change_under_way()) {
    Pause pause(timeout_ns);
    const uint64_t number = begin_grace_period();
    // The own thread is left out: in a signal handler, the interrupted call has no change pending in the
    // kernel.
    const auto own = static_cast<uint32_t>(syscall(SYS_gettid));
    HookedCallsUnderWay::Wait wait{number, range, own, true};
    // The sequence to wait for once the calls have returned; 0: they have not. Any change under way is then
    // of a later call, or is the first raw change, and the next reading gets it.
    uint64_t done = 0;
    do {
      if (number != 0 && done == 0 && calls_.have_returned(wait))
        done = sequence_.next_reading_done();
      if (done != 0 && sequence_.has_reached(done)) return true;
      if (!pause.again()) return false;
      // If the descriptor was closed, change_under_way() is true until the reader notices.
    } while (state_.is_running() && userfault_.change_under_way());
  }
  // In this order: a change that is no longer under way has been read, and the sequence was odd at that time.
  return sequence_.settle(timeout_ns);
}

void ReleaseWaits::settle() noexcept {
  if (!sequence_.settle(kSyncDeadlineNs)) sync();
}

void ReleaseWaits::sync() noexcept {
  if (is_mutant(Mutant::kNoSync)) return;
  if (quiet(MonitorClients::kAllMemory, kSyncDeadlineNs)) return;
  const CancellationDisabled guard;
  static RateLimit limit(RateLimit::kSecond);
  log_warning(limit,
              "memory is released faster than the monitor can follow, or its thread does not run: "
              "the pin caches forget everything");
  clients_.forget(MonitorClients::kAllMemory);
}

// Cached regions at these addresses belong to an earlier mapping, whose release has begun: it is under way,
// or has been read, or the caches have forgotten it. In the first two cases the range is removed from
// watched_ and then forgotten. So the caller need not wait for the report, which does no harm when it comes.
// The unwatcher relies on watched_ and keeps the reader from reading: while it runs, the caller waits.
void ReleaseWaits::sync(MemoryRange range) noexcept {
  if (is_mutant(Mutant::kNoSync)) return;
  if (!range.valid() || range.last() > MonitorClients::kAllMemory.last()) return sync();
  const bool waits = state_.is_running() && userfault_.change_under_way();
  if (!waits && sequence_.settle(kSyncDeadlineNs)) return;
  const CancellationDisabled guard;
  const MemoryRange pages = round_out(range, kSmallPage);
  watched_.drop(pages);
  // A range that begins inside a page extends an older mapping: that page was not unmapped.
  const bool is_whole = pages.addr == range.addr;
  if (!is_whole) clients_.forget({pages.addr, kSmallPage});
  const uintptr_t first = is_whole ? pages.addr : pages.addr + kSmallPage;
  if (first < pages.end()) clients_.forget_unmapped({first, pages.end() - first});
  if (unwatcher_.is_at_work()) sync();
}

}  // namespace hydrant
