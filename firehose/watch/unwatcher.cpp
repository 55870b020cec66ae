// Unregisters ranges in batches. The functions behind monitor.h call it; the hook of ioctl() and the end of a
// domain are behind those.
#include "firehose/watch/unwatcher.hpp"

#include "firehose/base/brief_lock.hpp"
#include "firehose/base/signals_blocked.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <atomic>

namespace hydrant {
namespace {

// Number of ranges that are handled before the reader may read again.
constexpr int kBatch = 16;
constexpr int kMaxFailures = 100;
constexpr size_t kPageBytes = 4096;
// Limit of the time that unwatch_range() continues while it makes progress; a longer timeout still applies.
constexpr uint64_t kMaxProgressNs = 2'000'000'000;
// unwatch_idle() only handles mappings up to this size: the kernel walks the page tables of a whole mapping,
// while no thread can map or unmap (50 ms for 1 GiB of small pages), and the next miss may register it again.
constexpr size_t kMaxIdleBytes = size_t{16} << 20;

class UnwatchScope {
 public:
  explicit UnwatchScope(std::atomic<bool>& flag) noexcept : flag_(flag) {
    flag_.store(true, std::memory_order_seq_cst);
  }
  ~UnwatchScope() { flag_.store(false, std::memory_order_release); }
  UnwatchScope(const UnwatchScope&) = delete;
  UnwatchScope& operator=(const UnwatchScope&) = delete;

 private:
  std::atomic<bool>& flag_;
};

void nap() noexcept { uncancelled::sleep_ns(100'000); }

}  // namespace

// Finds the next watched range between *from and `end` that contains no removal, and moves *from behind it.
// The range is empty if a removal was skipped instead. Without the hooks a removal ends when its memory is
// unmapped, which the kernel must report: that memory stays watched.
bool Unwatcher::next(const RangesLock& lock, uintptr_t* from, uintptr_t end,
                     MemoryRange* range) noexcept {
  // A watched range may go on behind the end.
  if (*from >= end || !watched_.ranges(lock).next(*from, range) || range->addr >= end) return false;
  const uintptr_t range_end = std::min(range->end(), end);
  range->addr = std::max(range->addr, *from);
  range->len = range_end - range->addr;
  const MemoryRange removed = removals_.first_in(lock, *range);
  if (removed.len != 0) range->len = removed.addr - range->addr;
  *from = range->len != 0 ? range->end() : removed.end();
  return true;
}

// Unregisters the range from the userfaultfd. The kernel proceeds mapping by mapping, and fails in the middle
// if the range ends inside a mapping that it cannot split (too many mappings). The part before is then
// registered again, which needs no split. False: the whole range is watched as before.
bool Unwatcher::unregister(MemoryRange range) noexcept {
  return userfault_.unwatch(range) || !userfault_.watch(range);
}

// Stops watching a range of watched_. The set forgets it first; if the kernel refuses, the range is entered
// again unless there were changes meanwhile. False: try again.
bool Unwatcher::unwatch_one(MemoryRange range, Request& what) noexcept {
  if (clients_.have_pinned(range)) return true;  // first: editing a large set is costly
  if (!lock_briefly(watched_.mutex())) return false;
  uint64_t changes = 0;
  {
    const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
    if (!watched_.take(lock, range, &changes)) return true;
    stacks_.remove(lock, range);
  }
  if (!clients_.have_pinned(range) && unregister(range)) {
    what.note_progress();
    return true;
  }
  if (!lock_briefly(watched_.mutex())) return false;  // the next miss registers it again
  const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
  watched_.put_back(lock, range, changes);
  return true;
}

// Handles the next watched ranges from *from on. True if there may be more, or a range has to be tried again.
bool Unwatcher::unwatch_some_locked(uintptr_t* from, Request& what) noexcept {
  const MutexLock reading(changes_.mutex());
  if (!userfault_.usable()) return false;
  if (deferred_.any()) return true;
  const UnwatchScope scope(unwatching_);
  for (int i = 0; i < kBatch; ++i) {
    if (!lock_briefly(watched_.mutex())) return true;
    MemoryRange range{};
    {
      const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
      watched_.forget_after_loss(lock);
      if (!next(lock, from, what.range.end(), &range)) return false;
    }
    if (range.len != 0 && range.len <= what.max_bytes && !unwatch_one(range, what)) return true;
  }
  return true;
}

bool Unwatcher::unwatch_some(uintptr_t* from, Request& what) noexcept {
  const SignalsBlocked blocked;
  // Only tried: this may run in a signal handler that interrupted a miss which holds the mutex.
  if (!lock_briefly(mappings_.mutex())) return true;
  const bool goes_on = unwatch_some_locked(from, what);
  mappings_.mutex().unlock();
  return goes_on;
}

// Makes one pass over the range. False if it ended at the deadline or after too many failures.
bool Unwatcher::unwatch_all(Request& what) noexcept {
  removals_.forget_ended(what.range);
  uintptr_t from = what.range.addr;
  for (int failures = 0; failures < kMaxFailures;) {
    const uintptr_t before = from;
    if (!unwatch_some(&from, what)) return true;
    if (now_ns() >= what.deadline_ns) return false;
    if (from != before) continue;
    ++failures;
    nap();
  }
  return false;
}

bool Unwatcher::watches_any(MemoryRange range) noexcept {
  if (!lock_briefly(watched_.mutex())) return true;
  const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
  watched_.forget_after_loss(lock);
  return watched_.ranges(lock).overlaps(range);
}

void Unwatcher::unwatch_unused() noexcept {
  Request what{MonitorClients::kAllMemory};
  if (state_.is_running()) (void)unwatch_all(what);
}

// Complete hooks make room when another userfaultfd needs it; then this does nothing.
void Unwatcher::unwatch_idle() noexcept {
  if (!state_.is_running() || calls_.are_complete()) return;
  Request what{MonitorClients::kAllMemory, kMaxIdleBytes};
  (void)unwatch_all(what);
}

// A bit for each of the 64 parts of the range that is pinned.
uint64_t Unwatcher::pinned_parts(MemoryRange range) noexcept {
  const size_t bytes = (range.len / kPageBytes / 64 + 1) * kPageBytes;
  uint64_t bits = 0;
  uintptr_t at = range.addr;
  for (int i = 0; i < 64 && at < range.end(); ++i, at += bytes) {
    if (clients_.have_pinned({at, std::min(bytes, range.end() - at)})) bits |= uint64_t{1} << i;
  }
  return bits;
}

bool Unwatcher::unwatch_range(MemoryRange range, uint64_t timeout_ns) noexcept {
  if (!range.valid() || !state_.is_running()) return false;
  const uint64_t begun = now_ns();
  Request what{range, SIZE_MAX, begun + timeout_ns};
  what.patience_ns = timeout_ns;
  what.latest_ns = begun + std::max(timeout_ns, kMaxProgressNs);
  if (!watches_any(range)) mappings_.watch_again(range, what.deadline_ns);
  uint64_t parts = UINT64_MAX;  // pinned at the last look
  for (;;) {
    // Before the look: one that finds progress is followed by another attempt, however long this thread waits
    // for a processor meanwhile.
    const uint64_t now = now_ns();
    releases_.invalidate(range);  // each time: another thread may have pinned it meanwhile
    const bool is_pinned = clients_.have_pinned(range);
    // While a part is pinned the call fails, so the rest is not unwatched for nothing.
    if (!is_pinned && unwatch_all(what) && !watches_any(range)) return true;
    if (is_pinned && (parts == UINT64_MAX || now >= what.deadline_ns)) {
      const uint64_t left = pinned_parts(range);
      if (parts != UINT64_MAX && (parts & ~left) != 0) what.note_progress();
      parts = left;
    }
    if (now >= what.deadline_ns) return false;
    clients_.notify_wanted();
    nap();
  }
}

}  // namespace hydrant
