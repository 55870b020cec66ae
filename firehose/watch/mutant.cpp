// Names the deliberate defects, and stores which of them a test has switched on. The stale hunt
// (tests/stale/hunt) and the protocol model (tests/model) print the names.
#include "firehose/watch/mutant.hpp"

#include "firehose/base/uncancelled.hpp"
#include "firehose/watch/rule_clock.hpp"

#include <algorithm>
#include <array>

namespace hydrant {

const MutantInfo& mutant_info(Mutant mutant) noexcept {
  static constexpr std::array<MutantInfo, static_cast<size_t>(Mutant::kCount)> kTable = {{
      {"none", "the library as it is"},
      {"drop-unmap", "the reader drops UNMAP events"},
      {"drop-remove", "the reader drops REMOVE events"},
      {"drop-remap", "the reader drops REMAP events"},
      {"late-reader", "the reader wakes callers before it makes the sequence odd"},
      {"no-settle", "no thread waits for the reader"},
      {"no-sync", "the hooks do not check for changes under way"},
      {"no-checked-lookup",
       "memory without hooks is looked up without a check for changes under way"},
      {"no-checked-try",
       "a try (no registration) hits checked memory without a check for changes under way"},
      {"no-publish-check", "a registration is published without a check for changes under way"},
      {"removed-cacheable",
       "removed memory is cacheable before the call that removed it has returned"},
      {"deaf-to-arenas", "announcements of arenas are not passed to caches"},
      {"unwatched", "unwatched memory is reported as watched"},
      {"drop-recall", "peers are not notified that memory they use was released"},
      {"ignore-generation", "a returned firehose is taken for the one that has its number now"},
      {"early-acknowledgement", "a recall is acknowledged while operations are under way"},
      {"no-quarantine", "memory that peers use is deregistered before they have returned it"},
      {"keep-pending", "an invalidation forgets registrations that are under way"},
      {"forget-awaiting", "the target does not remember peers that wait for room"},
      {"deaf-to-room", "the initiator ignores room notices"},
      {"no-marks", "an invalidation without the mutex leaves gates open"},
      {"read-first", "a raw release is read before free hits end"},
      {"hits-stay-free", "a raw release does not end free hits"},
      {"open-free", "regions are opened for free hits after free hits have ended"},
  }};
  return kTable[static_cast<size_t>(mutant)];
}

#if HYDRANT_MUTANTS
std::atomic<int> g_mutant{0};
std::atomic<unsigned> g_mutant_delay_us{0};
std::atomic<bool> g_busy_mutex{false};
std::atomic<unsigned> g_blind_looks{0};
std::atomic<unsigned> g_patience{1};
std::atomic<uint64_t> g_rule_time_ns{0};

// Sleeps in short steps, so that it ends soon after a test resets the delay.
void mutant_delay() noexcept {
  constexpr unsigned kStepUs = 1000;
  for (unsigned slept = 0, us = 0;
       slept < (us = g_mutant_delay_us.load(std::memory_order_relaxed));) {
    const unsigned step = std::min(kStepUs, us - slept);
    uncancelled::sleep_ns(uint64_t{step} * 1000);
    slept += step;
  }
}
#endif

}  // namespace hydrant
