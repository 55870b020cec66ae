// Deferred pins: requests that do not fit now, which poll() tries again; and registrations that the registrar
// completes later, from a thread of its own.
//
// Invariant: each deferred pin's callback runs once, with no lock held. A registration that its registrar
// completes later is freed by the second of the two that use it: the registrar's completion and the deferred
// pin.
#pragma once

#include "firehose/cache/deferred_queue.hpp"
#include "firehose/cache/span_pins.hpp"

namespace hydrant {

class DeferredPins {
 public:
  DeferredPins(CacheParts& parts, MissPath& miss, Releases& releases, SpanPins& spans) noexcept
      : parts_(parts), miss_(miss), releases_(releases), spans_(spans) {}

  // kOk: done, or deferred: `done` will be called.
  Status pin(MemoryRange range, Access need, hydrant_pinned_fn done, void* context) noexcept;
  // Tries every deferred pin once, oldest first. With kHitOnly it registers nothing; at the deadline it
  // leaves the rest. Returns the number of callbacks that it ran.
  int run(MissPolicy policy, uint64_t deadline_ns) noexcept;
  bool looks_idle() const noexcept { return queue_.empty(); }
  // Completes all with kNotInit, and waits for the registrations that are under way.
  void cancel() noexcept;
  void reset_in_child() noexcept;

 private:
  static void on_async_registered(void* context, Status status, const std::byte* key);
  Status try_once(DeferredPin& pin, MissPolicy policy, const RegionSlot** out) noexcept;
  Status finish_async(DeferredPin& pin, PinRequest& request, const RegionSlot** out) noexcept;
  Status attempt(DeferredPin& pin, PinRequest& request, const RegionSlot** out) noexcept;
  Status start_async(DeferredPin& pin, PinRequest& request, const RegionSlot** out) noexcept;
  void forget(AsyncRegistration* async) noexcept;
  void forget_async(DeferredPin& pin) noexcept;

  CacheParts& parts_;
  MissPath& miss_;
  Releases& releases_;
  SpanPins& spans_;
  DeferredQueue queue_;
  std::atomic<uint32_t> under_way_{0};  // registrations that the registrar will complete
};

}  // namespace hydrant
