// A thread on the second core that repeatedly registers and unregisters a large piece of memory: through a
// cache, or with its own ring as the control, whose effects are the kernel's and not a cache's.
#pragma once

#include <hydrant/pin_cache.h>

#include "bench/support/bare_pins.hpp"
#include "bench/support/bench_main.hpp"
#include "bench/support/machine.hpp"
#include "bench/support/memory.hpp"

#include <atomic>
#include <thread>
#include <vector>

namespace hydrant::bench {

class RepeatedRegistration {
 public:
  // `domain` 0 means an own ring. Returns after the first registration. The memory must outlive this object.
  explicit RepeatedRegistration(const Memory& memory, hydrant_domain_t domain = 0)
      : memory_(memory), domain_(domain), thread_([this] { run(); }) {
    while (done_.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
  }
  RepeatedRegistration(const RepeatedRegistration&) = delete;
  RepeatedRegistration& operator=(const RepeatedRegistration&) = delete;
  ~RepeatedRegistration() { stop(); }

  // Median nanoseconds of a registration, negative if one failed.
  double stop() {
    running_.store(false, std::memory_order_relaxed);
    if (thread_.joinable()) thread_.join();
    return good_ ? median(ns_) : -1.0;
  }

 private:
  void run() {
    const OnCore here(1);
    while (running_.load(std::memory_order_relaxed)) {
      const uint64_t start = now_ns();
      hydrant_pin_t pin{};
      if (domain_ == 0) {
        good_ &= ring_.pin_patiently(0, memory_.data(), memory_.bytes());
      } else {
        pin = hydrant_pin(domain_, memory_.data(), memory_.bytes(), HYDRANT_LOCAL_WRITE);
        good_ &= pin.region != nullptr;
      }
      ns_.push_back(static_cast<double>(now_ns() - start));
      if (domain_ == 0) {
        good_ &= ring_.unpin(0);
      } else {
        hydrant_release(pin);
        good_ &= hydrant_invalidate(domain_, memory_.data(), memory_.bytes()) == GASNET_OK;
      }
      done_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  const Memory& memory_;
  hydrant_domain_t domain_;
  BareRing ring_;
  bool good_ = true;        // owned by the thread until it is joined
  std::vector<double> ns_;  // as good_
  std::atomic<bool> running_{true};
  std::atomic<uint64_t> done_{0};
  std::thread thread_;  // last: it uses all the others
};

}  // namespace hydrant::bench
