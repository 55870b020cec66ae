// Detects raw releases: memory that is released without a hook. Hits are free of checks until the first raw
// release is seen.
//
// A hooked call notes in its thread's record what it may release, before the kernel can report it. The caller
// of a change sleeps in the kernel until the change is read. So a change that is pending while no thread is
// inside a hooked call is raw. Free hits then end before the change is read: its caller, the first thread
// that can use the addresses again, finds nothing there that was cached before. If another thread may be
// releasing memory at the same time, the change must be read to find its caller. Either that thread's note
// covers the change, or free hits end then, a moment late.
#include "firehose/base/config/config.hpp"
#include "firehose/base/log.hpp"
#include "firehose/watch/monitor.hpp"
#include "firehose/watch/mutant.hpp"

#include <cinttypes>
#include <sched.h>

namespace hydrant {
namespace {

// Number of looks for a hooked caller before free hits end for good. A look costs up to 10 us.
constexpr int kLooksForCaller = 4;

const char* text_of(MemoryChange::Kind kind) {
  switch (kind) {
    case MemoryChange::Kind::kUnmapped: return "unmapped or mapped over";
    case MemoryChange::Kind::kMoved: return "moved";
    case MemoryChange::Kind::kRemoved: return "emptied";
  }
  return "changed";
}

}  // namespace

// False if the hooks are incomplete or have too few records for all threads: hits are checked anyway.
bool Monitor::looks_for_raw_changes() const noexcept {
  return checked_.load(std::memory_order_relaxed) == 0 && hooked_calls_.are_complete();
}

// Called before a change is read. Returns true in doubt: if the mutex is held, its holder may wait for the
// reader in a signal handler. Free hits end for good, so one look is not enough: the caller's thread may be
// between two states, and a change whose caller has just been woken is still reported as pending.
bool Monitor::may_be_hooked() noexcept {
  if (stacks_.any() || !watched_.mutex().try_lock()) return true;
  bool may_be = true;
  {
    const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
    may_be = hooked_calls_.may_have_caller(watched_.ranges(lock));
  }
  for (int look = 1; !may_be && look < kLooksForCaller; ++look) {
    if (!userfault_.has_reports()) return true;
    sched_yield();
    may_be = hooked_calls_.may_still_have_caller();
  }
  return may_be;
}

bool Monitor::is_explained(const MemoryChange& change) noexcept {
  if (hooked_calls_.explain(change.range)) return true;
  if (!stacks_.any()) return false;
  if (!watched_.mutex().try_lock()) return true;
  const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
  return stacks_.are_changed(lock, change);
}

// True if the hooks will show when the caller of this removal, which was just read, has returned. After the
// first raw release doubtful cases count as raw.
bool Monitor::knows_caller(const MemoryChange& removal) noexcept {
  return !hooked_calls_.have_hooks() || checked_.load(std::memory_order_relaxed) == 0 ||
         hooked_calls_.name(removal.range);
}

// Ends free hits in every cache, for good.
void Monitor::check_all_hits() noexcept {
  checked_.store(1, std::memory_order_seq_cst);
  if (is_mutant(Mutant::kKeepFreeHits)) return;
  clients_.end_free_hits();
}

// Returns the first raw change among those just read, or null. Their callers may be running again. If no
// caller was found before the reading, the first change is raw: a call that began later explains it only by
// accident.
const MemoryChange* Monitor::look_for_raw(const MemoryChange* changes, size_t n,
                                          bool caller_found) noexcept {
  for (size_t i = 0; i < n; ++i) {
    if (caller_found && is_explained(changes[i])) continue;
    raw_changes_.fetch_add(1, std::memory_order_relaxed);
    check_all_hits();
    return &changes[i];
  }
  return nullptr;
}

void Monitor::report_raw(const MemoryChange& change) noexcept {
  static RateLimit once(RateLimit::kOnce);
  log_warning(once,
              "memory [%#" PRIxPTR
              ", +%zu) was %s by a system call that the hooks library does not "
              "see (syscall(), or a runtime without libc): from now on each use of cached memory "
              "asks the kernel (0.3 us). Call the C library's functions, or set "
              "FIREHOSE_HITS=checked to have it so from the beginning",
              change.range.addr, change.range.len, text_of(change.kind));
}

}  // namespace hydrant
