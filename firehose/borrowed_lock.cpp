#include "firehose/borrowed_lock.hpp"

#include <atomic>
#include <sched.h>

namespace hydrant {
namespace {

constinit Mutex g_turns;
// Written under g_turns by who holds all domains' mutexes.
std::atomic<bool> g_lent{false};
constexpr int kYields = 64;

}  // namespace

BorrowedLock::BorrowedLock(Mutex& mu) noexcept HYDRANT_NO_TSA : mu_(mu) {
  for (int tries = 0; !mu_.try_lock(); ++tries) {
    if (g_lent.load(std::memory_order_acquire)) {
      g_turns.lock();
      if (g_lent.load(std::memory_order_relaxed)) {
        borrowed_ = true;
        return;
      }
      g_turns.unlock();
      continue;
    }
    // The mutex is held for short work only. Sleeping on it would outlast the beginning of a fork.
    if (tries < kYields) {
      sched_yield();
    } else {
      timespec ts{0, 10'000};
      nanosleep(&ts, nullptr);
    }
  }
}

BorrowedLock::~BorrowedLock() HYDRANT_NO_TSA {
  if (borrowed_) {
    g_turns.unlock();
  } else {
    mu_.unlock();
  }
}

void BorrowedLock::lend_all() noexcept {
  MutexLock lock(g_turns);
  g_lent.store(true, std::memory_order_release);
}

void BorrowedLock::take_back() noexcept {
  MutexLock lock(g_turns);
  g_lent.store(false, std::memory_order_release);
}

void BorrowedLock::reset_in_child() noexcept {
  g_turns.reset_in_child();
  g_lent.store(false, std::memory_order_relaxed);
}

}  // namespace hydrant
