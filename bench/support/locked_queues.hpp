// What match_queue_bench compares the queue with: the same calls under one lock. Elements are the caller's
// here, too, and nothing is allocated.
#pragma once

#include "firehose/base/match_queue.hpp"
#include "firehose/base/thread.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <sched.h>

namespace hydrant::bench {

struct LockedElement {
  LockedElement* newer = nullptr;
  LockedElement* older = nullptr;
  MatchKey key;
};

// Tests before it sets, and yields: the machine may have other things to do.
class SpinLock {
 public:
  void lock() noexcept {
    for (int spins = 0; busy_.exchange(true, std::memory_order_acquire);) {
      while (busy_.load(std::memory_order_relaxed)) {
        __builtin_ia32_pause();
        if (++spins % 128 == 0) sched_yield();
      }
    }
  }
  void unlock() noexcept { busy_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> busy_{false};
};

template <typename Lock>
class Locked {
 public:
  explicit Locked(Lock& lock) noexcept : lock_(lock) { lock_.lock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { lock_.unlock(); }

 private:
  Lock& lock_;
};

inline void link(LockedElement& element, LockedElement& older, LockedElement& newer) noexcept {
  element.older = &older;
  element.newer = &newer;
  older.newer = &element;
  newer.older = &element;
}
inline LockedElement* unlink(LockedElement* element) noexcept {
  element->older->newer = element->newer;
  element->newer->older = element->older;
  return element;
}

// The unified list with its three dummies, under a lock. For the posted part `newer` is towards the
// middle; for the unexpected part it is away from it, and so the roles of the two links change.
template <typename Lock>
class UnifiedUnderLock {
 public:
  UnifiedUnderLock() noexcept {
    posted_.newer = unexpected_.older = &middle_;
    middle_.older = &posted_;
    middle_.newer = &unexpected_;
  }
  LockedElement* post(LockedElement& element, const MatchKey& key) noexcept {
    const Locked<Lock> locked(lock_);
    for (LockedElement* e = unexpected_.older; e != &middle_; e = e->older) {
      if (e->key.matches(key)) return unlink(e);
    }
    element.key = key;
    link(element, *middle_.older, middle_);
    return nullptr;
  }
  LockedElement* arrive(LockedElement& element, const MatchKey& key) noexcept {
    const Locked<Lock> locked(lock_);
    for (LockedElement* e = posted_.newer; e != &middle_; e = e->newer) {
      if (e->key.matches(key)) return unlink(e);
    }
    element.key = key;
    link(element, middle_, *middle_.newer);
    return nullptr;
  }

 private:
  alignas(64) Lock lock_;
  LockedElement posted_, middle_, unexpected_;
};

// A ring of those who wait, the oldest first.
class WaitingList {
 public:
  LockedElement* take(const MatchKey& key) noexcept {
    for (LockedElement* e = ring_.newer; e != &ring_; e = e->newer) {
      if (e->key.matches(key)) return unlink(e);
    }
    return nullptr;
  }
  void join(LockedElement& element, const MatchKey& key) noexcept {
    element.key = key;
    link(element, *ring_.older, ring_);
  }

 private:
  struct Ring : LockedElement {
    Ring() noexcept { newer = older = this; }
  } ring_;
};

template <typename Lock>
class TwoLists {
 public:
  LockedElement* post(LockedElement& element, const MatchKey& key) noexcept {
    return take_or_join(unexpected_, posted_, element, key);
  }
  LockedElement* arrive(LockedElement& element, const MatchKey& key) noexcept {
    return take_or_join(posted_, unexpected_, element, key);
  }

 private:
  LockedElement* take_or_join(WaitingList& other, WaitingList& own, LockedElement& element,
                              const MatchKey& key) noexcept {
    const Locked<Lock> locked(lock_);
    if (LockedElement* match = other.take(key)) return match;
    own.join(element, key);
    return nullptr;
  }

  alignas(64) Lock lock_;
  WaitingList posted_, unexpected_;
};

// Two lists for each hash of a key. No masks: they would have to look everywhere.
template <typename Lock>
class HashedLists {
 public:
  LockedElement* post(LockedElement& element, const MatchKey& key) noexcept {
    return take_or_join(kUnexpected, kPosted, element, key);
  }
  LockedElement* arrive(LockedElement& element, const MatchKey& key) noexcept {
    return take_or_join(kPosted, kUnexpected, element, key);
  }

 private:
  enum Side : size_t { kPosted, kUnexpected };

  LockedElement* take_or_join(Side other, Side own, LockedElement& element,
                              const MatchKey& key) noexcept {
    auto& lists = buckets_[key.id * 0x9e3779b97f4a7c15u >> 56];
    const Locked<Lock> locked(lock_);
    if (LockedElement* match = lists[other].take(key)) return match;
    lists[own].join(element, key);
    return nullptr;
  }

  alignas(64) Lock lock_;
  std::array<std::array<WaitingList, 2>, 256> buckets_;
};

}  // namespace hydrant::bench
