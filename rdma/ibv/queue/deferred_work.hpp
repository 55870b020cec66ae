// The list of peers with work that could not be done at once: it waits for credits, for room in a queue, or
// for a lock. Each poll runs the list if it is not empty.
//
// Invariant: an item is in the list at most once; add() between run()'s unmarking of an item and its return
// lists the item again, so that no work is lost.
//
// Threads: any.
#pragma once

#include "rdma/ibv/queue/spin_guard.hpp"

#include <atomic>

namespace hydrant::ibv {

class DeferredItem {
 public:
  // True: it was not marked before.
  bool mark() noexcept { return !is_listed_.exchange(true, std::memory_order_acq_rel); }
  void unmark() noexcept { is_listed_.store(false, std::memory_order_release); }
  // Under the lock of the list.
  DeferredItem* next() const noexcept { return next_; }
  void set_next(DeferredItem* next) noexcept { next_ = next; }

 private:
  std::atomic<bool> is_listed_{false};
  DeferredItem* next_ = nullptr;
};

class DeferredWork {
 public:
  void open(bool threaded) noexcept { threaded_ = threaded; }
  bool is_empty() const noexcept { return first_.load(std::memory_order_relaxed) == nullptr; }
  void add(DeferredItem& item) noexcept {
    if (!item.mark()) return;
    const SpinGuard guard(lock_, threaded_);
    item.set_next(first_.load(std::memory_order_relaxed));
    first_.store(&item, std::memory_order_release);
  }
  // Calls work(item) for each item of the list; false lists the item again.
  template <typename Work>
  void run(Work&& work) noexcept {
    DeferredItem* next = take_all();
    while (DeferredItem* item = next) {
      next = item->next();
      item->unmark();
      if (!work(*item)) add(*item);
    }
  }

 private:
  DeferredItem* take_all() noexcept {
    const SpinGuard guard(lock_, threaded_);
    return first_.exchange(nullptr, std::memory_order_acquire);
  }

  SpinLock lock_;
  bool threaded_ = false;
  std::atomic<DeferredItem*> first_{nullptr};
};

}  // namespace hydrant::ibv
