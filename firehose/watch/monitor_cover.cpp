// What may be cached, and how.
#include "firehose/watch/monitor.hpp"
#include "firehose/watch/mutant.hpp"

#include <cerrno>
#include <csignal>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr int kTries = 8;

}  // namespace

// Registers the mapping at addr, where that is needed; *end is where it ends. False if it cannot be watched,
// or changes all the time.
bool Monitor::watch_mapping(uintptr_t addr, uintptr_t* end) noexcept {
  for (int tries = 0; tries < kTries; ++tries) {
    uint64_t changes_before = 0;
    {
      MutexLock lock(ranges_mu_);
      changes_before = changes_;
    }
    Mapping before{};
    if (!mappings_.find(addr, &before)) return false;
    if (before.file_private && statics_.valid() && statics_.covers(before.range)) {
      // The program's initialised variables: no report will come, and none is needed.
      *end = before.range.end();
      return true;
    }
    if (!before.anonymous_private) return false;
    if (!userfault_.watch(before.range)) return false;
    // Once it is registered every change of it is reported; what was found before may have been replaced.
    Mapping after{};
    if (!mappings_.find(addr, &after) || !after.anonymous_private) return false;
    MutexLock lock(ranges_mu_);
    if (changes_ != changes_before || !after.range.covers(before.range)) continue;
    *end = before.range.end();
    if (watched_.add(before.range)) return true;
    watched_.clear();  // full of fragments: what is still used will be entered again
    // The set is a memory of what was registered; when it is full, that is done again.
    if (!watched_.add(before.range)) watched_.clear();
    return true;
  }
  return false;
}

bool Monitor::watch(MemoryRange range) noexcept {
  {
    MutexLock lock(ranges_mu_);
    if (watched_.covers(range)) return true;
  }
  // Several mappings side by side, as the kernel sees them, may be one buffer to the program.
  for (uintptr_t at = range.addr; at <= range.last();) {
    uintptr_t end = 0;
    if (!watch_mapping(at, &end)) return false;
    at = end;
  }
  return true;
}

// True when every call that was under way when this removal was reported has returned.
bool Monitor::callers_returned(uint64_t removal) const noexcept {
  if (hooks_ == nullptr || !hooks_complete()) return false;
  const uint32_t count = __atomic_load_n(&hooks_->thread_count, __ATOMIC_ACQUIRE);
  for (uint32_t i = 0; i < count; ++i) {
    const hydrant_hooks_thread_t& thread = hooks_->threads[i];
    const uint64_t entered = __atomic_load_n(&thread.entered, __ATOMIC_ACQUIRE);
    if (entered == 0 || entered >= removal) continue;
    const auto tid = static_cast<pid_t>(__atomic_load_n(&thread.tid, __ATOMIC_ACQUIRE));
    if (tid == 0) continue;
    // A thread that is ending stays entered; it is over when the kernel does not know it any more.
    if (__atomic_load_n(&thread.ending, __ATOMIC_ACQUIRE) != 0 &&
        syscall(SYS_tgkill, getpid(), tid, 0) != 0 && errno == ESRCH) {
      continue;
    }
    return false;
  }
  return true;
}

bool Monitor::removal_under_way(MemoryRange range) noexcept {
  if (is_mutant(Mutant::kRemovedCacheable)) return false;
  uint64_t newest = 0;
  {
    MutexLock lock(ranges_mu_);
    newest = removed_.newest(range);
  }
  if (newest == 0) return false;
  if (!callers_returned(newest)) return true;
  MutexLock lock(ranges_mu_);
  removed_.forget_up_to(newest);
  return false;
}

bool Monitor::hooks_complete() const noexcept {
  return hooks_ != nullptr && hooks_->families == HYDRANT_HOOKS_ALL &&
         __atomic_load_n(&hooks_->overflowed, __ATOMIC_ACQUIRE) == 0;
}

// Heaps of libc's malloc beside its main one are mapped and unmapped inside libc, past every hook,
// while other threads take memory from them.
bool Monitor::in_libc_heap(MemoryRange range) const noexcept {
  const uint64_t* heaps = hooks_->heap_blocks;
  if (heaps == nullptr) return true;
  for (uintptr_t b = range.addr >> HYDRANT_HOOKS_HEAP_SHIFT;
       b <= range.last() >> HYDRANT_HOOKS_HEAP_SHIFT; ++b) {
    if ((__atomic_load_n(&heaps[b / 64], __ATOMIC_ACQUIRE) >> b % 64 & 1) != 0) return true;
  }
  return false;
}

uint32_t Monitor::cover(MemoryRange range, bool only_arenas) noexcept {
  if (!range.valid() || range.last() >> 47 != 0) return HYDRANT_COVER_NONE;
  if (in_arena(range)) return HYDRANT_COVER_ARENA;
  if (only_arenas) return HYDRANT_COVER_NONE;
  if (is_mutant(Mutant::kUnwatched)) return HYDRANT_COVER_WATCHED;
  if (!start() || !watch(range)) return HYDRANT_COVER_NONE;
  if (removal_under_way(range)) return HYDRANT_COVER_NONE;
  return hooks_complete() && !in_libc_heap(range) ? HYDRANT_COVER_WATCHED : HYDRANT_COVER_CHECKED;
}

}  // namespace hydrant
