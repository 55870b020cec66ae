// The clock of rules about time: how often holds of peers and room for them are checked, when a reduced
// budget grows again, how long a refusal is remembered. In builds with mutants a test may stop the clock and
// set it, so that results do not depend on the machine; elsewhere it is now_ns().
#pragma once

#include "firehose/base/thread.hpp"

#include <atomic>
#include <cstdint>

namespace hydrant {

#if HYDRANT_MUTANTS
extern std::atomic<uint64_t> g_rule_time_ns;  // the time at which the clock is stopped; 0: it runs
inline void set_rule_time(uint64_t ns) noexcept {
  g_rule_time_ns.store(ns, std::memory_order_relaxed);
}
inline uint64_t rule_now_ns() noexcept {
  const uint64_t stopped = g_rule_time_ns.load(std::memory_order_relaxed);
  return stopped != 0 ? stopped : now_ns();
}
#else
inline uint64_t rule_now_ns() noexcept { return now_ns(); }
#endif

}  // namespace hydrant
