// Per-thread objects that outlive their thread: events, counters, free lists. A thread's first use
// adopts the object of an ended thread, or makes a new one. Objects are never freed, so other threads
// may keep pointers into them. Memory is bounded by the maximum number of threads that existed at once.
//
// T has T* next_of_all and T* next_orphan, a default constructor, and
//   void joined() noexcept   called when the calling thread adopts the object
//   void left() noexcept     called when the owning thread ends
#pragma once

#include "firehose/base/thread.hpp"

#include <atomic>
#include <new>
#include <pthread.h>

namespace hydrant {

template <typename T>
class ThreadLocalPool {
 public:
  // Returns the calling thread's object; null if there is no memory. Still valid in destructors of
  // thread-local objects and in exit() handlers. If the destructor of a pthread key adopts an object
  // anew, the next round of destructors abandons it. Cost: one load, except the first time.
  static T* mine() noexcept {
    T* own = mine_;
    return own != nullptr ? own : adopt();
  }
  static bool is_mine(const T* object) noexcept { return object == mine_; }

  // Visits all objects; adoption waits meanwhile.
  template <typename Visit>
  static void for_each(Visit visit) noexcept {
    const MutexLock lock(mu_);
    for (T* object = all_; object != nullptr; object = object->next_of_all) visit(*object);
  }

 private:
  // Detects the end of a thread. A pthread key, because its destructors run after those of thread-local
  // objects, which may still use T.
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

// A free list: its owner takes objects, and any thread returns them. The owner returns without atomics,
// other threads by one compare-and-swap. The owner takes the whole returned list at once, so objects
// are never removed from its middle, and ABA cannot occur. T has T* next.
template <typename T>
class CrossThreadFreeList {
 public:
  // Returns null if the list is empty.
  T* take() noexcept {
    if (free_ == nullptr) free_ = returned_.exchange(nullptr, std::memory_order_acquire);
    T* object = free_;
    if (object != nullptr) free_ = object->next;
    return object;
  }
  void free_local(T* object) noexcept {
    object->next = free_;
    free_ = object;
  }
  void free_from_any(T* object) noexcept {
    T* head = returned_.load(std::memory_order_relaxed);
    do {
      object->next = head;
      // Pairs with the acquire in take().
    } while (!returned_.compare_exchange_weak(head, object, std::memory_order_release,
                                              std::memory_order_relaxed));
  }

 private:
  T* free_ = nullptr;                              // used by the owner only
  alignas(64) std::atomic<T*> returned_{nullptr};  // written by other threads
};

}  // namespace hydrant
