// State that a thread has for itself and that outlives it: events, counters, free lists. The first
// use by a thread adopts what an ended thread left, or makes a new one; nothing is ever freed, so
// others may hold pointers into it for as long as they like, and memory is bounded by the most
// threads there ever were at once.
//
// T has T* next_of_all and T* next_orphan, a default constructor, and
//   void joined() noexcept   the calling thread has it now
//   void left() noexcept     the calling thread ends
#pragma once

#include "firehose/base/thread.hpp"

#include <atomic>
#include <new>
#include <pthread.h>

namespace hydrant {

template <typename T>
class Adopted {
 public:
  // Null if there is no memory. Destructors of thread-local objects, and what runs at exit(), have it still;
  // what a key's destructor (pthread_key_create) adopts anew is left by the next round of these.
  // Cost: a load, but for the first time.
  static T* mine() noexcept {
    T* own = mine_;
    return own != nullptr ? own : adopt();
  }
  static bool is_mine(const T* object) noexcept { return object == mine_; }

  // Visits all there are; adoption waits meanwhile.
  template <typename Visit>
  static void for_each(Visit visit) noexcept {
    const MutexLock lock(mu_);
    for (T* object = all_; object != nullptr; object = object->next_of_all) visit(*object);
  }

 private:
  // Tells when a thread ends, later than a thread-local object would: its client's come first.
  struct EndKey {
    EndKey() noexcept : exists(pthread_key_create(&key, leave) == 0) {}
    pthread_key_t key = 0;
    const bool exists;
  };

  static void leave(void* ended) noexcept {
    auto* object = static_cast<T*>(ended);
    mine_ = nullptr;
    object->left();
    abandon(object);
  }
  static void abandon(T* object) noexcept {
    const MutexLock lock(mu_);
    object->next_orphan = orphans_;
    orphans_ = object;
  }

  [[gnu::noinline]] static T* adopt() noexcept {
    static const EndKey end;
    if (!end.exists) return nullptr;
    T* object = nullptr;
    {
      const MutexLock lock(mu_);
      object = orphans_;
      if (object != nullptr) {
        orphans_ = object->next_orphan;
      } else {
        object = new (std::nothrow) T;
        if (object == nullptr) return nullptr;
        object->next_of_all = all_;
        all_ = object;
      }
    }
    if (pthread_setspecific(end.key, object) != 0) {
      abandon(object);
      return nullptr;
    }
    mine_ = object;
    object->joined();
    return object;
  }

  static inline constinit Mutex mu_;
  static inline constinit T* all_ HYDRANT_GUARDED_BY(mu_) = nullptr;
  static inline constinit T* orphans_ HYDRANT_GUARDED_BY(mu_) = nullptr;
  static inline constinit thread_local T* mine_ = nullptr;
};

// Objects that their owner takes and any thread gives back: to the owner's list without atomics, to another's
// by one compare-and-swap. The owner takes all that came back at once, so nothing is ever taken from the
// middle, and no tag is needed against the same object coming back. T has T* next.
template <typename T>
class ReturnableList {
 public:
  // Null if there is none.
  T* take() noexcept {
    if (free_ == nullptr) free_ = returned_.exchange(nullptr, std::memory_order_acquire);
    T* object = free_;
    if (object != nullptr) free_ = object->next;
    return object;
  }
  void give_mine(T* object) noexcept {
    object->next = free_;
    free_ = object;
  }
  void give_back(T* object) noexcept {
    T* head = returned_.load(std::memory_order_relaxed);
    do {
      object->next = head;
      // Pairs with the acquire in take().
    } while (!returned_.compare_exchange_weak(head, object, std::memory_order_release,
                                              std::memory_order_relaxed));
  }

 private:
  T* free_ = nullptr;                              // the owner's
  alignas(64) std::atomic<T*> returned_{nullptr};  // written by other threads
};

}  // namespace hydrant
