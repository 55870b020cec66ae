// Names the deliberate defects, and stores which of them a test has switched on. The stale hunt
// (tests/stale/hunt) and the protocol model (tests/model) print the names.
#include "firehose/watch/mutant.hpp"

#include "firehose/watch/rule_clock.hpp"

#include <algorithm>
#include <array>
#include <ctime>

namespace hydrant {

const MutantInfo& mutant_info(Mutant mutant) noexcept {
  static constexpr std::array<MutantInfo, static_cast<size_t>(Mutant::kCount)> kTable = {{
      {"none", "the library as it is"},
      {"drop-unmap", "the reader takes UNMAP events and tells nobody"},
      {"drop-remove", "the reader takes REMOVE events and tells nobody"},
      {"drop-remap", "the reader takes REMAP events and tells nobody"},
      {"late-reader", "the reader lets changes return before it has marked that it is at work"},
      {"no-settle", "nobody waits for the reader"},
      {"no-sync", "the hooks ask the kernel for no changes in flight"},
      {"no-checked-lookup",
       "memory without hooks is looked up without asking for changes in flight"},
      {"no-checked-try",
       "a look that registers nothing takes checked memory without asking for changes in flight"},
      {"no-publish-check", "a registration is published without asking for changes in flight"},
      {"removed-cacheable", "removed memory is cacheable before the remover has returned"},
      {"deaf-to-arenas", "what an arena announces is not passed on"},
      {"unwatched", "memory that nobody watches is said to be watched"},
      {"drop-recall", "peers are not told that memory they use is gone"},
      {"ignore-generation", "a firehose that comes back is taken for whoever has its number now"},
      {"early-acknowledgement", "a recall is acknowledged while operations are under way"},
      {"no-quarantine", "memory that peers use is deregistered before they have given it back"},
      {"keep-pending", "an invalidation forgets registrations that are under way"},
      {"forget-awaiting", "a peer that waits for room is not remembered"},
      {"deaf-to-room", "a peer that is told of room passes it over"},
      {"no-marks", "what is told without the mutex leaves the gates open"},
      {"read-first", "a release past the hooks is read before free hits end"},
      {"hits-stay-free", "a release past the hooks leaves free what may be hit"},
      {"open-free", "regions are opened for free hits after those have ended"},
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

// In short steps: it ends when the delay is taken back.
void mutant_delay() noexcept {
  constexpr unsigned kStepUs = 1000;
  for (unsigned slept = 0, us = 0;
       slept < (us = g_mutant_delay_us.load(std::memory_order_relaxed));) {
    const unsigned step = std::min(kStepUs, us - slept);
    const timespec ts{0, static_cast<long>(step) * 1000};
    nanosleep(&ts, nullptr);
    slept += step;
  }
}
#endif

}  // namespace hydrant
