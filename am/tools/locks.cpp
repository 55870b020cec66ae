// Implements the lock functions that are not inlined, and the checked variants for GASNET_DEBUG clients.
// Clients call them through hydrant/gasnet/locks.h.
//
// A mutex stores its holder. A reader/writer lock has no room for its readers, so each thread keeps a
// list of the locks that it holds.
#include <hydrant/gasnet/debugging.h>
#include <hydrant/gasnet/locks.h>

#include <cerrno>
#include <cstdlib>
#include <sched.h>

static_assert(sizeof(hydrant_tools_rwlock_t) == sizeof(pthread_rwlock_t));
static_assert(alignof(hydrant_tools_rwlock_t) >= alignof(pthread_rwlock_t));

namespace hydrant {
namespace {

pthread_rwlock_t* posix(hydrant_tools_rwlock_t* lock) noexcept {
  return reinterpret_cast<pthread_rwlock_t*>(lock->rwlock);
}

uintptr_t self() noexcept { return static_cast<uintptr_t>(pthread_self()); }

// Relaxed: a thread only compares with itself, and it has written its own value.
uintptr_t owner_of(const hydrant_tools_mutex_t* mutex) noexcept {
  return __atomic_load_n(&mutex->owner, __ATOMIC_RELAXED);
}
void set_owner(hydrant_tools_mutex_t* mutex, uintptr_t owner) noexcept {
  __atomic_store_n(&mutex->owner, owner, __ATOMIC_RELAXED);
}

[[noreturn]] void misused(const char* what, const void* lock, const char* where) noexcept {
  hydrant_tools_fatalerror_nopos("%s: %s (lock %p)", where, what, lock);
}

void require(bool holds, const char* otherwise, const void* lock, const char* where) noexcept {
  if (!holds) misused(otherwise, lock, where);
}

enum Hold : int { kNone = 0, kReading = 1, kWriting = 2, kEither = 3 };

// The reader/writer locks that this thread holds, unordered.
class HeldLocks {
 public:
  HeldLocks() = default;
  HeldLocks(const HeldLocks&) = delete;
  HeldLocks& operator=(const HeldLocks&) = delete;
  ~HeldLocks() { std::free(entries_); }

  Hold find(const void* lock) const noexcept {
    for (size_t i = 0; i < count_; ++i) {
      if (entries_[i].lock == lock) return entries_[i].hold;
    }
    return kNone;
  }

  void add(const void* lock, Hold hold) noexcept {
    if (count_ == room_) {
      room_ = room_ == 0 ? 8 : 2 * room_;
      entries_ = static_cast<Entry*>(std::realloc(entries_, room_ * sizeof(Entry)));
      if (entries_ == nullptr) gasnett_fatalerror("no memory for a list of %zu held locks", room_);
    }
    entries_[count_++] = {lock, hold};
  }

  void remove(const void* lock) noexcept {
    for (size_t i = 0; i < count_; ++i) {
      if (entries_[i].lock != lock) continue;
      entries_[i] = entries_[--count_];
      return;
    }
  }

 private:
  struct Entry {
    const void* lock;
    Hold hold;
  };
  Entry* entries_ = nullptr;
  size_t count_ = 0;
  size_t room_ = 0;
};

HeldLocks& held_locks() noexcept {
  thread_local HeldLocks held;
  return held;
}

void require_not_held(const hydrant_tools_rwlock_t* lock, const char* where) noexcept {
  require(held_locks().find(lock) == kNone,
          "this thread holds the reader/writer lock already: it is not recursive", lock, where);
}

int remember(int error, const hydrant_tools_rwlock_t* lock, Hold hold) noexcept {
  if (error == 0) held_locks().add(lock, hold);
  return error;
}

}  // namespace
}  // namespace hydrant

using hydrant::held_locks;
using hydrant::posix;
using hydrant::require;

void hydrant_tools_mutex_init(hydrant_tools_mutex_t* mutex) {
  pthread_mutex_init(&mutex->mutex, nullptr);
  hydrant::set_owner(mutex, 0);
}

int hydrant_tools_mutex_destroy(hydrant_tools_mutex_t* mutex) {
  // Destroying a locked mutex is undefined in POSIX, so test it first.
  if (const int error = pthread_mutex_trylock(&mutex->mutex); error != 0) return error;
  pthread_mutex_unlock(&mutex->mutex);
  return pthread_mutex_destroy(&mutex->mutex);
}

void hydrant_tools_mutex_destroy_checked(hydrant_tools_mutex_t* mutex, const char* where) {
  require(hydrant_tools_mutex_destroy(mutex) == 0, "destroys a mutex that is locked", mutex, where);
}

void hydrant_tools_mutex_lock_checked(hydrant_tools_mutex_t* mutex, const char* where) {
  require(hydrant::owner_of(mutex) != hydrant::self(),
          "this thread holds the mutex already: it is not recursive", mutex, where);
  require(pthread_mutex_lock(&mutex->mutex) == 0, "pthread_mutex_lock() failed", mutex, where);
  hydrant::set_owner(mutex, hydrant::self());
}

int hydrant_tools_mutex_trylock_checked(hydrant_tools_mutex_t* mutex, const char* where) {
  require(hydrant::owner_of(mutex) != hydrant::self(),
          "this thread holds the mutex already: it is not recursive", mutex, where);
  const int error = pthread_mutex_trylock(&mutex->mutex);
  if (error == 0) hydrant::set_owner(mutex, hydrant::self());
  return error;
}

void hydrant_tools_mutex_unlock_checked(hydrant_tools_mutex_t* mutex, const char* where) {
  require(hydrant::owner_of(mutex) == hydrant::self(), "unlocks a mutex that it does not hold",
          mutex, where);
  hydrant::set_owner(mutex, 0);
  require(pthread_mutex_unlock(&mutex->mutex) == 0, "pthread_mutex_unlock() failed", mutex, where);
}

void hydrant_tools_mutex_assert(const hydrant_tools_mutex_t* mutex, int locked, const char* where) {
  const bool is_held = hydrant::owner_of(mutex) == hydrant::self();
  require(is_held == (locked != 0),
          locked ? "this thread should hold the mutex" : "this thread should not hold the mutex",
          mutex, where);
}

void hydrant_tools_cond_init(hydrant_tools_cond_t* cond) {
  pthread_cond_init(&cond->cond, nullptr);
}

void hydrant_tools_cond_destroy(hydrant_tools_cond_t* cond) { pthread_cond_destroy(&cond->cond); }

void hydrant_tools_cond_wait_alone(hydrant_tools_cond_t* cond, hydrant_tools_mutex_t* mutex) {
  (void)mutex;
  gasnett_fatalerror("the only thread waits for condition %p, which no thread can signal",
                     static_cast<void*>(cond));
}

void hydrant_tools_cond_wait_checked(hydrant_tools_cond_t* cond, hydrant_tools_mutex_t* mutex,
                                     const char* where) {
  hydrant_tools_mutex_assert(mutex, 1, where);
  hydrant::set_owner(mutex, 0);
  require(pthread_cond_wait(&cond->cond, &mutex->mutex) == 0, "pthread_cond_wait() failed", mutex,
          where);
  hydrant::set_owner(mutex, hydrant::self());
}

void hydrant_tools_rwlock_init(hydrant_tools_rwlock_t* rwlock) {
  pthread_rwlock_init(posix(rwlock), nullptr);
}

void hydrant_tools_rwlock_destroy(hydrant_tools_rwlock_t* rwlock) {
  (void)pthread_rwlock_destroy(posix(rwlock));
}

void hydrant_tools_rwlock_rdlock(hydrant_tools_rwlock_t* rwlock) {
  // EAGAIN: too many readers; retry until one unlocks.
  while (pthread_rwlock_rdlock(posix(rwlock)) == EAGAIN) sched_yield();
}

void hydrant_tools_rwlock_wrlock(hydrant_tools_rwlock_t* rwlock) {
  (void)pthread_rwlock_wrlock(posix(rwlock));
}

int hydrant_tools_rwlock_tryrdlock(hydrant_tools_rwlock_t* rwlock) {
  return pthread_rwlock_tryrdlock(posix(rwlock));
}

int hydrant_tools_rwlock_trywrlock(hydrant_tools_rwlock_t* rwlock) {
  return pthread_rwlock_trywrlock(posix(rwlock));
}

void hydrant_tools_rwlock_unlock(hydrant_tools_rwlock_t* rwlock) {
  (void)pthread_rwlock_unlock(posix(rwlock));
}

void hydrant_tools_rwlock_destroy_checked(hydrant_tools_rwlock_t* rwlock, const char* where) {
  hydrant_tools_rwlock_assert(rwlock, hydrant::kNone, where);
  // glibc destroys a held lock silently, so test whether it is free.
  require(pthread_rwlock_trywrlock(posix(rwlock)) == 0,
          "destroys a reader/writer lock that another thread holds", rwlock, where);
  hydrant_tools_rwlock_unlock(rwlock);
  hydrant_tools_rwlock_destroy(rwlock);
}

void hydrant_tools_rwlock_rdlock_checked(hydrant_tools_rwlock_t* rwlock, const char* where) {
  hydrant::require_not_held(rwlock, where);
  hydrant_tools_rwlock_rdlock(rwlock);
  held_locks().add(rwlock, hydrant::kReading);
}

void hydrant_tools_rwlock_wrlock_checked(hydrant_tools_rwlock_t* rwlock, const char* where) {
  hydrant::require_not_held(rwlock, where);
  hydrant_tools_rwlock_wrlock(rwlock);
  held_locks().add(rwlock, hydrant::kWriting);
}

int hydrant_tools_rwlock_tryrdlock_checked(hydrant_tools_rwlock_t* rwlock, const char* where) {
  hydrant::require_not_held(rwlock, where);
  return hydrant::remember(hydrant_tools_rwlock_tryrdlock(rwlock), rwlock, hydrant::kReading);
}

int hydrant_tools_rwlock_trywrlock_checked(hydrant_tools_rwlock_t* rwlock, const char* where) {
  hydrant::require_not_held(rwlock, where);
  return hydrant::remember(hydrant_tools_rwlock_trywrlock(rwlock), rwlock, hydrant::kWriting);
}

void hydrant_tools_rwlock_unlock_checked(hydrant_tools_rwlock_t* rwlock, const char* where) {
  require(held_locks().find(rwlock) != hydrant::kNone,
          "unlocks a reader/writer lock that it does not hold", rwlock, where);
  held_locks().remove(rwlock);
  hydrant_tools_rwlock_unlock(rwlock);
}

void hydrant_tools_rwlock_assert(const hydrant_tools_rwlock_t* rwlock, int held,
                                 const char* where) {
  const hydrant::Hold hold = held_locks().find(rwlock);
  const bool is_as_expected = held == hydrant::kEither ? hold != hydrant::kNone : hold == held;
  static constexpr const char* kExpected[] = {
      "this thread should not hold the reader/writer lock",
      "this thread should hold the reader/writer lock for reading",
      "this thread should hold the reader/writer lock for writing",
      "this thread should hold the reader/writer lock"};
  require(is_as_expected, kExpected[held & 3], rwlock, where);
}
