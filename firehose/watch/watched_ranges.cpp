// Enters in the set of watched memory what misses register, what the reader and the hooks report, and what is
// unwatched (mapping_watcher.cpp, change_reader.cpp, unwatcher.cpp).
#include "firehose/watch/watched_ranges.hpp"

#include "firehose/base/brief_lock.hpp"

namespace hydrant {

void WatchedRanges::note_lost() noexcept {
  changes_.fetch_add(1, std::memory_order_seq_cst);
  is_outdated_.store(true, std::memory_order_seq_cst);
}

// The mutex is only tried: a hook may run in a signal handler that interrupted its holder.
void WatchedRanges::drop(MemoryRange range) noexcept {
  if (!lock_briefly(mu_)) return note_lost();
  const RangesLock lock(mu_, RangesLock::Adopt::kLocked);
  begin_change(lock);
  remove(lock, range);
}

void WatchedRanges::forget_after_loss(const RangesLock&) noexcept {
  // Pairs with unwatching, whose mark sync() of a range reads after its own note_lost().
  if (!is_outdated_.load(std::memory_order_seq_cst)) return;
  if (is_outdated_.exchange(false, std::memory_order_seq_cst)) watched_.clear();
}

bool WatchedRanges::is_current(const RangesLock& lock, uint64_t changes_before) noexcept {
  forget_after_loss(lock);
  return changes() == changes_before;
}

void WatchedRanges::add(const RangesLock&, MemoryRange range) noexcept {
  if (watched_.add(range)) return;
  watched_.clear();  // full of fragments: ranges in use will be entered again
  if (!watched_.add(range)) watched_.clear();
}

void WatchedRanges::begin_change(const RangesLock& lock) noexcept {
  forget_after_loss(lock);
  changes_.fetch_add(1, std::memory_order_relaxed);
}

void WatchedRanges::remove(const RangesLock&, MemoryRange range) noexcept {
  if (!watched_.remove(range)) watched_.clear();
}

bool WatchedRanges::take(const RangesLock&, MemoryRange range, uint64_t* changes) noexcept {
  const bool is_taken = watched_.covers(range) && watched_.remove(range);
  *changes = changes_.fetch_add(1, std::memory_order_seq_cst) + 1;
  return is_taken;
}

void WatchedRanges::put_back(const RangesLock&, MemoryRange range, uint64_t changes) noexcept {
  if (this->changes() == changes) (void)watched_.add(range);
}

void WatchedRanges::reset_in_child() noexcept {
  mu_.reset_in_child();
  watched_.clear();
  is_outdated_.store(false, std::memory_order_relaxed);
}

}  // namespace hydrant
