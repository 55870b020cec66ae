// Compares changes with the hooks' records. The reader calls it around each reading (change_reader.cpp).
#include "firehose/watch/raw_releases.hpp"

#include "firehose/base/log.hpp"
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

// Called before a change is read. Returns true in doubt: if the mutex is held, its holder may wait for the
// reader in a signal handler. Free hits end for good, so one look is not enough: the caller's thread may be
// between two states, and a change whose caller has just been woken is still reported as pending.
bool RawReleases::may_be_hooked() noexcept {
  if (stacks_.any() || !watched_.mutex().try_lock()) return true;
  bool may_be = true;
  {
    const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
    may_be = calls_.may_have_caller(watched_.ranges(lock));
  }
  for (int look = 1; !may_be && look < kLooksForCaller; ++look) {
    if (!userfault_.has_reports()) return true;
    sched_yield();
    may_be = calls_.may_still_have_caller();
  }
  return may_be;
}

bool RawReleases::is_explained(const MemoryChange& change) noexcept {
  if (calls_.explain(change.range)) return true;
  if (!stacks_.any()) return false;
  if (!watched_.mutex().try_lock()) return true;
  const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
  return stacks_.are_changed(lock, change);
}

// After the first raw release doubtful cases count as raw.
bool RawReleases::knows_caller(const MemoryChange& removal) noexcept {
  return !calls_.have_hooks() || !are_hits_checked() || calls_.name(removal.range);
}

// Ends free hits in every cache, for good.
void RawReleases::check_all_hits() noexcept {
  checked_.store(1, std::memory_order_seq_cst);
  if (is_mutant(Mutant::kKeepFreeHits)) return;
  clients_.end_free_hits();
}

// A raw change's caller wakes when the change is read, and must not find free hits then.
RawReleases::Look RawReleases::begin_reading() noexcept {
  const bool looks = are_looked_for();
  if (looks) calls_.begin_reading();
  const bool caller_found = !looks || is_mutant(Mutant::kReadFirst) || may_be_hooked();
  if (!caller_found) check_all_hits();
  return {looks, caller_found};
}

// If no caller was found before the reading, the first change is raw: a call that began later explains it
// only by accident.
const MemoryChange* RawReleases::find(const Look& look, const MemoryChange* changes,
                                      size_t n) noexcept {
  for (size_t i = 0; look.looks && i < n; ++i) {
    if (look.caller_found && is_explained(changes[i])) continue;
    seen_.fetch_add(1, std::memory_order_relaxed);
    check_all_hits();
    return &changes[i];
  }
  return nullptr;
}

void RawReleases::report(const MemoryChange& change) noexcept {
  static RateLimit once(RateLimit::kOnce);
  log_warning(
      once,
      "memory [%#" PRIxPTR
      ", +%zu) was %s by a system call that the hooks library does not "
      "see (syscall(), a runtime without libc, or libc_malloc_debug.so): from now on each use "
      "of cached memory asks the kernel (0.3 us). Call the C library's functions, start "
      "the program without the other malloc, or set FIREHOSE_HITS=checked to have it so "
      "from the beginning",
      change.range.addr, change.range.len, text_of(change.kind));
}

}  // namespace hydrant
