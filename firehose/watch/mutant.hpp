// Deliberate defects, which prove that the tests of watching can fail: a mutant claims its coverage and drops
// its events, or skips one check. Compiled only where HYDRANT_MUTANTS is 1 (the test presets and the stale
// hunt); elsewhere everything here is a constant false.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

enum class Mutant : int {
  kNone,
  kDropUnmap,             // the reader drops UNMAP events
  kDropRemove,            // the same with REMOVE
  kDropRemap,             // the same with REMAP
  kDelayedReader,         // the reader wakes callers before it makes the sequence odd
  kNoSettle,              // no thread waits for the reader
  kNoSync,                // the hooks' sync() does not check for changes under way
  kNoCheckedLookup,       // memory without hooks is looked up without a check for changes under way
  kNoCheckedTry,          // a try (no registration) hits checked memory without that check
  kNoPublishCheck,        // a registration is published without a check for changes under way
  kRemovedCacheable,      // removed memory is cacheable before its call has returned
  kIgnoreArenas,          // announcements of arenas are not passed to caches
  kUnwatched,             // unwatched memory is reported as watched
  kDropRecall,            // peers are not notified that memory they use was released
  kIgnoreGeneration,      // a returned firehose is taken for the one that has its number now
  kEarlyAcknowledgement,  // a recall is acknowledged while operations are under way
  kNoQuarantine,          // memory that peers use is deregistered before they have returned it
  kKeepPending,           // an invalidation forgets registrations that are under way
  kForgetAwaiting,        // the target does not remember peers that wait for room
  kIgnoreRoom,            // the initiator ignores room notices
  kNoMarks,               // an invalidation without the mutex leaves gates open
  kReadFirst,             // a raw release is read before hits are checked
  kKeepFreeHits,          // raw releases do not end free hits
  kOpenFree,              // regions are opened for free hits after free hits have ended
  kCount
};

struct MutantInfo {
  const char* name;
  const char* what;
};
const MutantInfo& mutant_info(Mutant mutant) noexcept;

#if HYDRANT_MUTANTS
extern std::atomic<int> g_mutant;
extern std::atomic<unsigned> g_mutant_delay_us;
inline void set_mutant(Mutant mutant, unsigned delay_us) noexcept {
  g_mutant_delay_us.store(delay_us, std::memory_order_relaxed);
  g_mutant.store(static_cast<int>(mutant), std::memory_order_relaxed);
}
inline bool is_mutant(Mutant mutant) noexcept {
  return g_mutant.load(std::memory_order_relaxed) == static_cast<int>(mutant);
}
// Widens a window that only real mutants leave open. Sleeps while some delay is set, mutant or not.
void mutant_delay() noexcept;
// Makes invalidations find every domain's mutex held, as under load or in a signal handler.
extern std::atomic<bool> g_busy_mutex;
inline void set_busy_mutex(bool busy) noexcept {
  g_busy_mutex.store(busy, std::memory_order_relaxed);
}
inline bool is_mutex_busy() noexcept { return g_busy_mutex.load(std::memory_order_relaxed); }
// The next looks for the caller of a change find no caller, as if its thread were between two states.
extern std::atomic<unsigned> g_blind_looks;
inline void set_blind_looks(unsigned looks) noexcept {
  g_blind_looks.store(looks, std::memory_order_relaxed);
}
inline bool is_blind_look() noexcept {
  const unsigned left = g_blind_looks.load(std::memory_order_relaxed);
  if (left != 0) g_blind_looks.store(left - 1, std::memory_order_relaxed);
  return left != 0;
}
// Multiplies the library's timeouts for its reader, for test machines that may not run a thread for long.
extern std::atomic<unsigned> g_patience;
inline void set_patience(unsigned times) noexcept {
  g_patience.store(times, std::memory_order_relaxed);
}
inline uint64_t with_patience(uint64_t ns) noexcept {
  return ns * g_patience.load(std::memory_order_relaxed);
}
#else
constexpr bool is_mutant(Mutant) noexcept { return false; }
inline void mutant_delay() noexcept {}
constexpr bool is_mutex_busy() noexcept { return false; }
constexpr bool is_blind_look() noexcept { return false; }
constexpr uint64_t with_patience(uint64_t ns) noexcept { return ns; }
#endif

}  // namespace hydrant
