// A registrar behind the public C interface that records every registration and every hold, an arena of
// memory to pin through it, and a check of all guarantees of a hold. It does not look inside the cache.
#pragma once

#include <hydrant/pin_cache.h>

#include "tests/support/patience.hpp"
#include "tests/support/sizes.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hydrant::testing {

// The longest wait of a test; generous, because sanitizers and shared machines are slow.
inline constexpr std::chrono::seconds kDeadline{60};
// Polls until condition() is true; false after `longest`, which HYDRANT_TEST_PATIENCE does not change: for
// what must not happen.
template <typename Condition>
bool happens_within(std::chrono::nanoseconds longest, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + longest;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}
// The same for what has to happen: `longest` times HYDRANT_TEST_PATIENCE.
template <typename Condition>
bool wait_until(Condition condition, std::chrono::nanoseconds longest = kDeadline) {
  return happens_within(patiently(longest), condition);
}

// Anonymous memory that starts at a multiple of kAlignment, with inaccessible memory around it.
class Arena {
 public:
  static constexpr size_t kAlignment = 64 * kPage;

  explicit Arena(size_t pages);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  size_t pages() const { return pages_; }
  std::byte* page(size_t i) const { return base_ + i * kPage; }
  uintptr_t addr(size_t i) const { return reinterpret_cast<uintptr_t>(page(i)); }
  bool contains(uintptr_t start, size_t len) const {
    return start >= addr(0) && len <= pages_ * kPage && start - addr(0) <= pages_ * kPage - len;
  }
  size_t index(uintptr_t inside) const { return (inside - addr(0)) / kPage; }

 private:
  size_t pages_;
  std::byte* mapping_;
  std::byte* base_;
};

// A registrar that pins nothing and records everything. Each pin gets a new serial number, which is part of
// its key. Errors of the cache are collected as text: problems() is "" if there were none.
//
// Threads: all functions from any thread. Looking up a serial takes no lock and orders nothing, so that the
// checks do not hide missing synchronisation of the cache from the thread sanitizer.
class RecordingRegistrar {
 public:
  static constexpr uint32_t kAnyAccess = ~0u;  // refuse(): for any right
  struct Registration {
    uintptr_t addr;
    size_t len;
    uint32_t access;
  };

  explicit RecordingRegistrar(const Arena& arena, uint32_t key_bytes = 8);

  // The C struct for hydrant_domain_create(); a test may edit it before.
  hydrant_registrar_t table{};

  // -- faults, which apply from the next call on --
  void fail_pin(uint64_t nth, int status);  // the nth pin from now (1 is the next) answers `status`
  void fail_pins(uint32_t per_mille,
                 uint64_t seed);  // random failures: NOT_READY, sometimes BROKEN
  void refuse(uintptr_t addr, size_t len, uint32_t rights);
  void refuse_nothing();
  void allow_bytes(uint64_t bytes);  // more than this: NOT_READY
  void answer_unpins(int result) { unpin_answer_ = result; }
  void settle() { pending_ = 0; }  // returns the charges of PENDING unpins
  void sleep_in_pins(std::chrono::microseconds time) { pin_sleep_us_ = time.count(); }
  // Pins block inside the registrar until resume_pins(); wait_for_stopped(n) waits for n blocked calls.
  void stop_pins();
  void resume_pins();
  bool wait_for_stopped(uint64_t n);
  // pin_async answers NOT_READY; complete_async() completes it in the calling thread.
  void offer_async();
  bool complete_async(int status);
  // Records a problem if more than this is registered at once.
  void watch_limits(uint64_t bytes, uint64_t regions);

  // -- books --
  uint64_t live() const;
  uint64_t live_bytes() const;
  uint64_t pin_calls() const { return pin_calls_.load(); }
  uint64_t pins() const { return pins_.load(); }
  uint64_t unpins() const { return unpins_.load(); }
  uint64_t destroyed() const { return destroyed_.load(); }
  uint64_t forgotten() const { return forgotten_.load(); }  // calls of forget_in_child
  uint64_t next_serial() const { return next_serial_.load(); }
  std::vector<Registration> registrations() const;
  std::string problems() const;
  void problem(const std::string& what) const;
  std::string take_problems();  // clears them: for tests that provoke problems
  // Drops records of registrations that HYDRANT_FINI_KEEP left or that belong to a parent process.
  void forget_all();

  // -- keys and holds --
  uint64_t serial_of(const void* key) const;  // 0: not a key of this registrar
  bool is_live(uint64_t serial, uintptr_t addr, size_t len, uint32_t access) const;
  // The same for a part of the registration: peers may be granted less than all of it.
  bool is_live_around(uint64_t serial, uintptr_t addr, size_t len, uint32_t access) const;
  // "" if this part of a pin is registered with this right and has no outdated serial.
  std::string check_part(const hydrant_region_t& part, uint32_t access,
                         const uint64_t* oldest) const;
  // Records that a hold is in use, so that an unpin of its region becomes a problem.
  void note_hold(const hydrant_region_t& region, int delta);

  const Arena& arena() const { return arena_; }

 private:
  template <typename Function>
  auto locked(Function function) const {
    const std::lock_guard guard(mutex_);
    return function();
  }
  static constexpr auto relaxed = std::memory_order_relaxed;
  static constexpr size_t kPinRecords = size_t{1} << 16;
  // Facts about a serial, found without a lock at index serial % kPinRecords.
  struct PinRecord {
    std::atomic<uint64_t> live_serial{0};
    std::atomic<uintptr_t> addr{0};
    std::atomic<size_t> len{0};
    std::atomic<uint32_t> access{0};
    std::atomic<int32_t> held{0};
  };
  struct Refusal {
    uintptr_t addr;
    size_t len;
    uint32_t rights;
  };
  struct Job {
    Registration what;
    hydrant_pin_done_fn done;
    void* context;
  };

  PinRecord& card(uint64_t serial) const { return pin_records_[serial % kPinRecords]; }
  void problem_locked(const std::string& what) const { problems_ += what + "\n"; }
  void pass_gate();
  int pin(uintptr_t addr, size_t len, uint32_t access, void* key);
  int answer_locked(uintptr_t addr, size_t len, uint32_t access);
  uint64_t new_serial();
  void register_locked(uint64_t serial, uintptr_t addr, size_t len, uint32_t access, void* key);
  int unpin(uintptr_t addr, size_t len, const void* key);
  uint64_t find_locked(uintptr_t addr, size_t len, const void* key) const;
  void write_key(uint64_t serial, void* key) const;
  uint64_t charge_of(uintptr_t addr, size_t len) const {
    return table.charge ? table.charge(table.user, addr, len) : len;
  }

  const Arena& arena_;
  mutable std::mutex mutex_;
  std::condition_variable gate_changed_;
  // All of these under mutex_.
  std::map<uint64_t, Registration> registrations_;
  std::vector<Refusal> refusals_;
  std::vector<Job> jobs_;
  mutable std::string problems_;
  uint64_t live_bytes_ = 0, allowed_bytes_ = UINT64_MAX;
  uint64_t watched_bytes_ = UINT64_MAX, watched_regions_ = UINT64_MAX;
  uint64_t fail_at_ = 0, random_state_ = 1;
  int fail_status_ = GASNET_OK;
  uint32_t fail_per_mille_ = 0;
  bool stopped_ = false;
  uint64_t stopped_calls_ = 0;

  std::atomic<uint64_t> next_serial_{1}, pin_calls_{0}, pins_{0}, unpins_{0}, destroyed_{0};
  std::atomic<uint64_t> forgotten_{0};
  std::atomic<uint64_t> pending_{0};
  std::atomic<int> unpin_answer_{HYDRANT_UNPIN_DONE};
  std::atomic<int64_t> pin_sleep_us_{0};
  std::unique_ptr<PinRecord[]> pin_records_;
  std::unique_ptr<std::atomic<int32_t>[]> page_pins_, page_holds_;
};

// Checks all guarantees of a hold on [addr, addr+len); "" if they are met. `oldest` (by page of the arena,
// or null) is the least serial that a region with this page may carry. Takes no lock.
std::string check_hold(const RecordingRegistrar& registrar, hydrant_pin_t pin, uintptr_t addr,
                       size_t len, uint32_t access, const uint64_t* oldest = nullptr);
// Calls visit(part) for every part of a pin.
template <typename Visit>
void for_each_part(hydrant_pin_t pin, Visit&& visit) {
  hydrant_region_t part{};
  const size_t n = hydrant_pin_parts(pin, 0, &part);
  for (size_t i = 0; i < n; ++i) {
    if (i != 0) hydrant_pin_parts(pin, i, &part);
    visit(part);
  }
}

}  // namespace hydrant::testing
