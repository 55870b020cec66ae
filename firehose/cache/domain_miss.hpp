// Pins one region: the slow way of a hit, and a miss from the request to a published region.
//
// Invariant: of the regions that a miss touches, each is in exactly one of the states of region_info.hpp
// between two phases; what a phase has claimed, the next one publishes or abandons. The mutex is not held
// while the registrar or the monitor is called.
#pragma once

#include "firehose/cache/cache_parts.hpp"

namespace hydrant {

class MissPath {
 public:
  enum class Step { kDone, kAgain, kRegister };

  // A reservation, and the victims that pay for it.
  struct Payment {
    explicit Payment(CacheParts& parts) noexcept : reservation(parts.budget, parts.mu) {}
    Reservation reservation;
    RegionQueue victims;
    uint64_t regrown_budget = 0;  // not 0: the budget in force has just become this much
  };
  // A victim that is unpinned; the phase that publishes the registration returns its slot.
  struct UnsettledRange {
    RegionQueue victims;
    Unpinner::Outcome outcome;
  };

  explicit MissPath(CacheParts& parts) noexcept : parts_(parts) {}

  Status check_range(MemoryRange range) const noexcept;
  PinRequest make_request(MemoryRange range, Access need, MissPolicy policy) noexcept {
    return {range, round_out(range, parts_.config.granule_bytes), need,
            parts_.threads.current_thread_state(), policy};
  }
  static void count_outcome(ThreadDomain* thread, Status status) noexcept {
    if (thread == nullptr || status == Status::kOk) return;
    if (status == Status::kNotReady) ThreadCounters::add(thread->counters.not_ready);
    if (status == Status::kRefused) ThreadCounters::add(thread->counters.refusals);
  }

  // The complete path of a pin. kOk: *out is held.
  Status pin(PinRequest& request, const RegionSlot** out) noexcept;

  // Its steps, for registrations that complete later.
  // A hold by the thread's own table, else by the shared ones; null: look under the mutex.
  const RegionSlot* hold_without_lock(const PinRequest& request) noexcept;
  // A hold by the shared tables, for a thread whose own table has none.
  const RegionSlot* hold_shared(const PinRequest& request) noexcept;
  // kRegister: the registration is claimed as pending. kDone: *status, and *held on success. `unsettled`
  // may be null: then everything is settled.
  Step prepare(PinRequest& request, Plan* plan, UnsettledRange* unsettled, Status* status,
               RegionIndex* held) noexcept;
  // `status` is the registrar's. *again: the registration was spoiled by an invalidation.
  Status finish(const PinRequest& request, const Plan& plan, Status status,
                UnsettledRange* unsettled, bool* again, RegionIndex* held) noexcept;

  // Takes budget, and evicts for it. `requested` is for the text: the request, or the first of several.
  Status reserve(const CacheLock&, MemoryRange requested, Budget::Share share, uint64_t pending,
                 Payment* payment) noexcept;
  // Unpins the victims before the pin that they pay for. kNotReady: the kernel still charges them, and
  // there is no other room.
  Status pay(MemoryRange requested, uint64_t charge, Payment* payment,
             UnsettledRange* unsettled) noexcept;

  // Takes a hold on an open region.
  void take(const CacheLock&, ThreadDomain* thread, RegionIndex region) noexcept;

 private:
  bool find_checked(PinRequest& request, const RegionSlot** out) noexcept;
  Status acquire(PinRequest& request, const RegionSlot** out) noexcept;
  Status acquire_uncounted(PinRequest& request, const RegionSlot** out) noexcept;
  Step look(const CacheLock&, PinRequest& request, Status* status, RegionIndex* held) noexcept;
  bool use_found(const CacheLock&, PinRequest& request, RegionIndex found, Step* step,
                 RegionIndex* held) noexcept;
  void wait_for_pending(const CacheLock&, PinRequest& request) noexcept;
  Status claim(const CacheLock&, PinRequest& request, uint64_t kernel_pending, Plan* plan,
               Payment* payment) noexcept;
  bool admit(const CacheLock&, PinRequest& request, uint64_t kernel_pending, Plan* plan) noexcept;
  void abandon(const CacheLock&, const PinRequest& request, const Plan& plan) noexcept;
  Status register_now(PinRequest& request, const Plan& plan, UnsettledRange* unsettled, bool* again,
                      RegionIndex* held) noexcept;
  Status after_failure(PinRequest& request, const Plan& plan, Status status, bool* again) noexcept;
  void log_missing_index() const noexcept;
  Status after_no_budget(PinRequest& request, const Plan& plan, bool* again) noexcept;
  void settle(const CacheLock&, UnsettledRange* unsettled) noexcept;

  CacheParts& parts_;
};

// Identifies the calling thread by the address of its static TLS.
inline uint32_t thread_mark() noexcept {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(&t_hit_context) >> 4);
}

}  // namespace hydrant
