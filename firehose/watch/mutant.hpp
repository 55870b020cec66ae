// Deliberate defects, for the proof that the tests of watching can fail: a mutant claims its coverage and
// drops its events, or skips one check. Compiled only where HYDRANT_MUTANTS is 1 (the test presets and the
// stale hunt); elsewhere everything here is a constant false.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hydrant {

enum class Mutant : int {
  kNone,
  kDropUnmap,             // the reader takes UNMAP events and tells nobody
  kDropRemove,            // the same with REMOVE
  kDropRemap,             // the same with REMAP
  kDelayedReader,         // the reader lets changes return before it has marked that it is at work
  kNoSettle,              // nobody waits for the reader
  kNoSync,                // the hooks' sync() asks the kernel for nothing
  kNoCheckedLookup,       // memory without hooks is looked up without asking for changes in flight
  kNoCheckedTry,          // a look that registers nothing takes checked memory unasked
  kNoPublishCheck,        // a registration is published without asking for changes in flight
  kRemovedCacheable,      // removed memory is cacheable at once, before the remover has returned
  kIgnoreArenas,          // what an arena announces is not passed on
  kUnwatched,             // memory that nobody watches is said to be watched
  kDropRecall,            // peers are not told that memory they use is gone
  kIgnoreGeneration,      // a firehose that comes back is taken for whoever has its number now
  kEarlyAcknowledgement,  // a recall is acknowledged while operations are under way
  kNoQuarantine,          // memory that peers use is deregistered before they have given it back
  kKeepPending,           // an invalidation forgets registrations that are under way
  kForgetAwaiting,        // the target does not remember peers that wait for room
  kIgnoreRoom,            // the initiator ignores room notices
  kNoMarks,               // an invalidation without the mutex leaves gates open
  kReadFirst,             // a raw release is read before hits are checked
  kKeepFreeHits,          // raw releases do not end free hits
  kOpenFree,              // what is opened once hits are checked is opened for free hits
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
// Invalidations find every domain's mutex held, as under load or in a signal handler.
extern std::atomic<bool> g_busy_mutex;
inline void set_busy_mutex(bool busy) noexcept {
  g_busy_mutex.store(busy, std::memory_order_relaxed);
}
inline bool is_mutex_busy() noexcept { return g_busy_mutex.load(std::memory_order_relaxed); }
// The next looks for the caller of a change find none, as between two states of its thread.
extern std::atomic<unsigned> g_blind_looks;
inline void set_blind_looks(unsigned looks) noexcept {
  g_blind_looks.store(looks, std::memory_order_relaxed);
}
inline bool is_blind_look() noexcept {
  const unsigned left = g_blind_looks.load(std::memory_order_relaxed);
  if (left != 0) g_blind_looks.store(left - 1, std::memory_order_relaxed);
  return left != 0;
}
// Times the library's own patience with its reader: for tests on machines where threads may not run for long.
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
