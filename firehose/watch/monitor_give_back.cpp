// The end of watching: the monitor unregisters memory that no cache uses any more from its userfaultfd, so
// that the program may register it with another (the kernel allows one for a mapping).
//
// Three things must not come between the decision and the kernel's call:
//  - A miss that registers the range again: watch_mapping() holds watching_mu_ as this does.
//  - A miss that finds the range watched: the set forgets it first. A miss that came before has its
//    region listed as pending, and the range counts as pinned.
//  - Another owner of the addresses, which may have registered them: munmap() of watched memory returns
//    when the reader has read, and the reader does not read meanwhile (reading_mu_). Hooks that hand out the
//    addresses earlier wait beside it (giving_back_).
// Signals are blocked, since the reader waits for reading_mu_. Mutexes that an interrupted thread may hold
// are only tried.
#include "firehose/base/brief_lock.hpp"
#include "firehose/base/signals_blocked.hpp"
#include "firehose/watch/monitor.hpp"

#include <algorithm>
#include <atomic>
#include <ctime>

namespace hydrant {
namespace {

// Ranges between two moments in which the reader may read.
constexpr int kBatch = 16;
constexpr int kMostFailures = 100;

class GivingBack {
 public:
  explicit GivingBack(std::atomic<bool>& flag) noexcept : flag_(flag) {
    flag_.store(true, std::memory_order_seq_cst);
  }
  ~GivingBack() { flag_.store(false, std::memory_order_release); }
  GivingBack(const GivingBack&) = delete;
  GivingBack& operator=(const GivingBack&) = delete;

 private:
  std::atomic<bool>& flag_;
};

void nap() noexcept {
  const timespec time{0, 100'000};
  nanosleep(&time, nullptr);
}

}  // namespace

// The next watched range from *from on, and before `end`, that has no removal in it; or only *from goes on,
// over a removal.
// Without the hooks a removal ends when its memory is unmapped, which has to be reported: the memory stays
// watched.
bool Monitor::next_to_give_back_locked(uintptr_t* from, uintptr_t end, MemoryRange* range) {
  if (!watched_.next(*from, range) || range->addr >= end) return false;
  const uintptr_t range_end = std::min(range->end(), end);
  range->addr = std::max(range->addr, *from);
  range->len = range_end - range->addr;
  const MemoryRange removed = removed_.first_in(*range);
  if (removed.len != 0) range->len = removed.addr - range->addr;
  *from = range->len != 0 ? range->end() : removed.end();
  return true;
}

// The next of the watched ranges from *from on. True if there may be more, or it has to be tried again.
bool Monitor::give_back_some_locked(uintptr_t* from, uintptr_t end) noexcept {
  const MutexLock reading(reading_mu_);
  if (!userfault_.usable()) return false;
  if (behind_.load(std::memory_order_acquire)) return true;
  const GivingBack giving(giving_back_);
  for (int i = 0; i < kBatch; ++i) {
    if (!lock_briefly(ranges_mu_)) return true;
    drop_lost_locked();
    MemoryRange range{};
    const bool found = next_to_give_back_locked(from, end, &range);
    const bool taken = found && range.len != 0 && watched_.remove(range);
    const uint64_t changes = changes_.fetch_add(1, std::memory_order_seq_cst) + 1;
    ranges_mu_.unlock();
    if (!found) return false;
    if (!taken || (!pinned(range) && userfault_.unwatch(range))) continue;
    if (!lock_briefly(ranges_mu_)) return true;  // the next miss registers it again
    if (changes_.load(std::memory_order_seq_cst) == changes) (void)watched_.add(range);
    ranges_mu_.unlock();
  }
  return true;
}

bool Monitor::give_back_some(uintptr_t* from, uintptr_t end) noexcept {
  const SignalsBlocked blocked;
  // A handler may have interrupted a miss that holds it.
  if (!lock_briefly(watching_mu_)) return true;
  const bool goes_on = give_back_some_locked(from, end);
  watching_mu_.unlock();
  return goes_on;
}

// One pass over the range. False if it could not be ended.
bool Monitor::give_back_all(MemoryRange range) noexcept {
  (void)removal_under_way(range);  // with the hooks: drops removals that are over
  uintptr_t from = range.addr;
  for (int failures = 0; failures < kMostFailures;) {
    const uintptr_t before = from;
    if (!give_back_some(&from, range.end())) return true;
    if (from != before) continue;
    ++failures;
    nap();
  }
  return false;
}

bool Monitor::watches_any(MemoryRange range) noexcept {
  if (!lock_briefly(ranges_mu_)) return true;
  drop_lost_locked();
  const bool any = watched_.overlaps(range);
  ranges_mu_.unlock();
  return any;
}

void Monitor::give_back() noexcept {
  if (running_.load(std::memory_order_acquire)) (void)give_back_all(kAllMemory);
}

bool Monitor::give_back(MemoryRange range, uint64_t timeout_ns) noexcept {
  if (!range.valid() || !running_.load(std::memory_order_acquire)) return false;
  const uint64_t deadline = now_ns() + timeout_ns;
  for (;;) {
    invalidate(range);  // each time: another thread may have pinned it meanwhile
    if (give_back_all(range) && !watches_any(range)) return true;
    if (now_ns() >= deadline) return false;
    nap();
  }
}

}  // namespace hydrant
