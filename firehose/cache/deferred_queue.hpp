// Deferred pins that wait for their next attempt, oldest first.
//
// Invariant: empty() says that no pin was pushed and not finished: queued, or taken for an attempt. A pin
// that is put back stands before all that were pushed meanwhile.
//
// Threads: any; a mutex of its own, level 3.
#pragma once

#include <hydrant/pin_cache.h>

#include "firehose/base/memory_range.hpp"
#include "firehose/base/thread.hpp"
#include "firehose/cache/policy/admission_policy.hpp"

#include <atomic>
#include <optional>

namespace hydrant {

struct AsyncRegistration;

struct DeferredPin {
  DeferredPin* next;
  MemoryRange range;
  Access need;
  hydrant_pinned_fn done;
  void* context;
  AsyncRegistration* async;              // null: none started
  std::optional<Admission> admission{};  // of its first attempt
};

// A list of pins outside of the queue.
class DeferredList {
 public:
  void push(DeferredPin* pin) noexcept {
    pin->next = nullptr;
    *tail_ = pin;
    tail_ = &pin->next;
  }
  DeferredPin* pop() noexcept {
    DeferredPin* pin = head_;
    if (pin == nullptr) return nullptr;
    head_ = pin->next;
    if (head_ == nullptr) tail_ = &head_;
    return pin;
  }
  bool empty() const noexcept { return head_ == nullptr; }
  void clear() noexcept {
    head_ = nullptr;
    tail_ = &head_;
  }
  // Moves all of `other` to the end.
  void append(DeferredList& other) noexcept {
    if (other.empty()) return;
    *tail_ = other.head_;
    tail_ = other.tail_;
    other.clear();
  }
  DeferredList() noexcept = default;
  DeferredList(const DeferredList&) = delete;
  DeferredList& operator=(const DeferredList&) = delete;

 private:
  DeferredPin* head_ = nullptr;
  DeferredPin** tail_ = &head_;
};

class DeferredQueue {
 public:
  void push(DeferredPin* pin) noexcept {
    const MutexLock lock(mu_);
    pins_.push(pin);
    count_.fetch_add(1, std::memory_order_relaxed);
  }
  // Takes all for one attempt each: finish() or requeue() for each.
  void take_all(DeferredList* out) noexcept {
    const MutexLock lock(mu_);
    out->append(pins_);
  }
  // Puts the pins back before newer ones.
  void requeue(DeferredList* pins) noexcept {
    if (pins->empty()) return;
    const MutexLock lock(mu_);
    pins->append(pins_);
    pins_.append(*pins);
  }
  // The oldest one; null if none is queued.
  DeferredPin* pop() noexcept {
    const MutexLock lock(mu_);
    return pins_.pop();
  }
  // A pin that was taken has completed.
  void finish() noexcept { count_.fetch_sub(1, std::memory_order_relaxed); }
  // A hint.
  bool empty() const noexcept { return count_.load(std::memory_order_relaxed) == 0; }
  void reset_in_child() noexcept HYDRANT_NO_TSA {
    mu_.reset_in_child();
    pins_.clear();
    count_.store(0, std::memory_order_relaxed);
  }

 private:
  Mutex mu_;
  DeferredList pins_ HYDRANT_GUARDED_BY(mu_);
  std::atomic<uint32_t> count_{0};
};

}  // namespace hydrant
