// Looks mappings up and registers them. Misses call it (monitor_cover.cpp), and the unwatcher where the
// watched ranges may lack some.
#include "firehose/watch/mapping_watcher.hpp"

#include "firehose/base/brief_lock.hpp"
#include "firehose/base/signals_blocked.hpp"
#include "firehose/base/table_space.hpp"
#include "firehose/base/watch_windows.hpp"
#include "firehose/watch/mutant.hpp"

#include <algorithm>
#include <utility>

namespace hydrant {
namespace {

constexpr int kQueryTries = 8;
constexpr MemoryRange kWhole{0, SIZE_MAX};

// The time between looking a mapping up and registering it. The library must not map its own tables into that
// mapping meanwhile (watch_windows.hpp).
class WatchWindow {
 public:
  WatchWindow() noexcept { g_watch_windows.open(); }
  ~WatchWindow() { g_watch_windows.close(); }
  WatchWindow(const WatchWindow&) = delete;
  WatchWindow& operator=(const WatchWindow&) = delete;
};

}  // namespace

// Looks up the mapping at addr and registers its part `within` if needed. False if it cannot be watched.
bool MappingWatcher::register_mapping(uintptr_t addr, MemoryRange within, Mapping* found,
                                      bool* needed) noexcept {
  const WatchWindow window;
  if (!mappings_.find(addr, found)) return false;
  const uintptr_t first = std::max(found->range.addr, within.addr);
  found->range = {first, std::min(found->range.end(), within.end()) - first};
  // The program's initialised variables: no report will come, and none is needed.
  *needed = !(found->file_private && statics_.valid() && statics_.covers(found->range));
  if (!*needed) return true;
  // The library's own tables must not be watched.
  if (!found->anonymous_private || g_table_space.overlaps(found->range)) return false;
  g_watch_windows.announce(found->range);
  stacks_.expect(watched_.mutex(), found->range);
  if (is_mutant(Mutant::kNone)) mutant_delay();  // another thread may map a table here
  return userfault_.watch(found->range);
}

// Registers the mapping at addr if needed; *end: its end. False if it cannot be watched, or keeps changing.
bool MappingWatcher::watch_mapping(uintptr_t addr, uintptr_t* end) noexcept {
  // Keeps the unwatcher from unregistering the mapping before watched_ has it.
  const MutexLock watching(watching_mu_);
  for (int tries = 0; tries < kQueryTries; ++tries) {
    const uint64_t changes_before = watched_.changes();
    Mapping before{};
    bool needed = false;
    if (!register_mapping(addr, kWhole, &before, &needed)) return false;
    *end = before.range.end();
    if (!needed) return true;
    // Changes are reported only after the registration: the mapping found before may have been replaced.
    Mapping after{};
    if (!mappings_.find(addr, &after) || !after.anonymous_private) return false;
    const RangesLock lock(watched_.mutex());
    if (after.range.covers(before.range) && enter(lock, before.range, changes_before)) return true;
  }
  return false;
}

// Enters a registered range. False if the mappings have changed since `changes_before` was read.
bool MappingWatcher::enter(const RangesLock& lock, MemoryRange range,
                           uint64_t changes_before) noexcept {
  if (!watched_.is_current(lock, changes_before)) return false;
  stacks_.note(lock, range, calls_);
  watched_.add(lock, range);
  return true;
}

// Registers and enters the part `within` of the mapping at *at, and moves *at to its end. The ranges' mutex
// is only tried: a signal handler may have interrupted its holder. False: a mapping has changed, or it is
// held.
bool MappingWatcher::rewatch_mapping_locked(MemoryRange within, uintptr_t* at) noexcept {
  const uint64_t changes_before = watched_.changes();
  Mapping before{};
  Mapping after{};
  bool needed = false;
  const bool is_registered = register_mapping(*at, within, &before, &needed) && needed;
  if (is_registered) {
    if (!mappings_.find(*at, &after) || !after.anonymous_private ||
        !after.range.covers(before.range) || !lock_briefly(watched_.mutex())) {
      return false;
    }
    const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
    if (!enter(lock, before.range, changes_before)) return false;
  }
  // Otherwise another userfaultfd has it, its kind cannot be watched, or it is unmapped.
  *at = before.range.len != 0 ? before.range.end() : within.end();
  return true;
}

void MappingWatcher::watch_again(MemoryRange range, uint64_t deadline_ns) noexcept {
  const auto each = [](void* context, MemoryRange run) {
    auto& [self, deadline] = *static_cast<std::pair<MappingWatcher*, uint64_t>*>(context);
    int failures = 0;
    for (uintptr_t at = run.addr; at < run.end() && failures < kQueryTries;) {
      const SignalsBlocked blocked;
      if (!lock_briefly(self->watching_mu_)) return;
      const bool goes_on = self->rewatch_mapping_locked(run, &at);
      self->watching_mu_.unlock();
      failures = goes_on ? 0 : failures + 1;
      if (now_ns() >= deadline) return;
    }
  };
  std::pair<MappingWatcher*, uint64_t> context{this, deadline_ns};
  (void)for_each_mapped(range, each, &context);
}

bool MappingWatcher::watch(MemoryRange range) noexcept {
  {
    const RangesLock lock(watched_.mutex());
    watched_.forget_after_loss(lock);
    if (watched_.ranges(lock).covers(range)) return true;
  }
  // A buffer of the program may span several adjacent mappings.
  for (uintptr_t at = range.addr; at <= range.last();) {
    uintptr_t end = 0;
    if (!watch_mapping(at, &end)) return false;
    at = end;
  }
  return true;
}

void MappingWatcher::reset_in_child() noexcept {
  watching_mu_.reset_in_child();
  mappings_.close();
  g_watch_windows.reset_in_child();
}

}  // namespace hydrant
