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

#include <cerrno>
#include <cinttypes>
#include <sched.h>
#include <sys/uio.h>
#include <unistd.h>

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

// True if a thread's descriptor may be at addr. On x86-64 libc keeps a descriptor's address in its first
// word, also after the thread's end.
bool may_be_descriptor(uintptr_t addr) {
#ifdef __x86_64__
  uintptr_t found = 0;
  const iovec here{&found, sizeof found};
  const iovec there{reinterpret_cast<void*>(addr), sizeof found};
  const ssize_t n = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
  if (n >= 0 || errno == EFAULT) return found == addr;
#endif
  (void)addr;
  return true;
}

}  // namespace

// False if the hooks are incomplete or have too few records for all threads: hits are checked anyway.
bool Monitor::looks_for_raw_changes() const noexcept {
  return checked_.load(std::memory_order_relaxed) == 0 && hooks_complete();
}

// Notes the thread stacks in a mapping that is watched from now on. libc unmaps stacks inside calls without
// hooks, such as pthread_join(), and empties them when their threads end. Only the thread's descriptor is
// noted, because the mapping may contain memory of the program, too. If the set is full a stack is not noted,
// and its end counts as a raw release.
void Monitor::note_stacks(MemoryRange mapping) noexcept {
  if (hooks_ == nullptr) return;
  uint32_t position = 0;
  while (const uintptr_t stack = hooked_calls_.next_stack(mapping, &position)) {
    if (may_be_descriptor(stack) && stacks_.add({stack, 1}))
      has_stacks_.store(true, std::memory_order_relaxed);
  }
}

// A descriptor lies at the end of its stack. libc empties a stack from its start almost to the frame of the
// function that its thread ends in, and unmaps it as a whole.
bool Monitor::is_of_stack(const MemoryChange& change) const noexcept {
  constexpr size_t kMaxKept = size_t{64} << 10;
  switch (change.kind) {
    case MemoryChange::Kind::kUnmapped: return stacks_.has_any_inside(change.range);
    case MemoryChange::Kind::kRemoved: return stacks_.overlaps({change.range.end(), kMaxKept});
    case MemoryChange::Kind::kMoved: return false;
  }
  return false;
}

// Called before a change is read. Returns true in doubt: if the mutex is held, its holder may wait for the
// reader in a signal handler. Free hits end for good, so one look is not enough: the caller's thread may be
// between two states, and a change whose caller has just been woken is still reported as pending.
bool Monitor::may_be_hooked() noexcept {
  if (has_stacks_.load(std::memory_order_relaxed) || !ranges_mu_.try_lock()) return true;
  bool may_be = hooked_calls_.may_have_caller(watched_);
  ranges_mu_.unlock();
  for (int look = 1; !may_be && look < kLooksForCaller; ++look) {
    if (!userfault_.has_reports()) return true;
    sched_yield();
    may_be = hooked_calls_.may_still_have_caller();
  }
  return may_be;
}

bool Monitor::is_explained(const MemoryChange& change) noexcept {
  if (hooked_calls_.explain(change.range)) return true;
  if (!has_stacks_.load(std::memory_order_relaxed)) return false;
  if (!ranges_mu_.try_lock()) return true;
  const bool is_stack = is_of_stack(change);
  ranges_mu_.unlock();
  return is_stack;
}

// True if the hooks will show when the caller of this removal, which was just read, has returned. After the
// first raw release doubtful cases count as raw.
bool Monitor::knows_caller(const MemoryChange& removal) noexcept {
  return hooks_ == nullptr || checked_.load(std::memory_order_relaxed) == 0 ||
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
