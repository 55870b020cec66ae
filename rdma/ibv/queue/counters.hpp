// Events off the fast paths, counted for statistics. Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace hydrant::ibv {

class Counter {
 public:
  void add() noexcept { value_.fetch_add(1, std::memory_order_relaxed); }
  uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

struct Counters {
  Counter connected;   // peers
  Counter handshakes;  // sent
  Counter strangers;   // datagrams that were ignored
  Counter early;       // of them, handshakes of processes that are not joined here
  Counter ud_errors;   // failed sends of handshakes, and failures of their queue pair
  Counter control;     // messages that only report credits
  Counter probes;      // empty writes to idle peers
  Counter stalls;      // cells that waited for a receive slot
  Counter lost;        // peers
  Counter striped;     // puts and gets that were cut over several rails
};

}  // namespace hydrant::ibv
