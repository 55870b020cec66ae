// Runs the upkeep thread, which unpins regions of released memory if no miss and no poll does so within
// kDelayNs. The invalidator wakes it.
#include "firehose/cache/coherence/upkeep.hpp"

#include "firehose/base/cancellation.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/raw_memory.hpp"
#include "firehose/base/signals_blocked.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant {
namespace {

// Bytes of the stack, on which the client's unpin() runs. Address space, of which some pages are touched. A
// program with many thread-local variables needs more, since they lie there, too.
constexpr size_t kStackBytes = size_t{512} << 10;
constexpr size_t kMaxStackBytes = size_t{64} << 20;
constexpr size_t kGuardBytes = 4096;
constexpr long kNapNs = 50'000;

// Starts a detached thread on a stack between inaccessible pages; an errno. The lower ones stop an overflow.
// The upper ones keep the kernel from making one mapping of the stack and memory of the program, which would
// be watched as a whole.
int start_on_stack(size_t bytes, void* (*main)(void*), void* argument) noexcept {
  auto* reserved = static_cast<std::byte*>(raw_reserve(bytes + 2 * kGuardBytes));
  if (reserved == nullptr) return ENOMEM;
  std::byte* stack = reserved + kGuardBytes;
  pthread_attr_t attributes;
  int error = raw_open(stack, bytes) ? pthread_attr_init(&attributes) : ENOMEM;
  if (error == 0) {
    (void)pthread_attr_setstack(&attributes, stack, bytes);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    error = pthread_create(&thread, &attributes, main, argument);
    pthread_attr_destroy(&attributes);
    if (error == 0) (void)pthread_setname_np(thread, "hydrant-upkeep");
  }
  if (error != 0) raw_unmap(reserved, bytes + 2 * kGuardBytes);
  return error;
}

// An errno. EINVAL: the stack is too small.
int start_detached(void* (*main)(void*), void* argument) noexcept {
  int error = EINVAL;
  for (size_t bytes = kStackBytes; error == EINVAL && bytes <= kMaxStackBytes; bytes *= 2) {
    error = start_on_stack(bytes, main, argument);
  }
  return error;
}

// Unblocks the signals of faults: the program may handle faults of memory that its unpin() touches, and its
// handlers report others. If a faulting thread blocks the signal, the kernel ends the process at once.
void unblock_fault_signals() noexcept {
  sigset_t faults;
  sigemptyset(&faults);
  for (const int fault : {SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP}) {
    sigaddset(&faults, fault);
  }
  pthread_sigmask(SIG_UNBLOCK, &faults, nullptr);
}

void nap(uint64_t ns) noexcept { uncancelled::sleep_ns(ns); }

}  // namespace

#if HYDRANT_MUTANTS
std::atomic<uint64_t> Upkeep::delay_ns_{Upkeep::kDelayNs};
std::atomic<uint64_t> Upkeep::max_pause_ns_{Upkeep::kMaxPauseNs};
#endif

// Never destroyed: the thread goes on while main()'s thread runs the destructors.
Upkeep& Upkeep::own() noexcept {
  static constinit Upkeep upkeep;
  return upkeep;
}

bool Upkeep::start_thread(bool now) noexcept {
  if (!gate_.is_open(now)) return false;
  const SignalsBlocked blocked;  // for the new thread, too: the program's handlers run in its own
  const MutexLock lock(start_mu_);
  if (running_.load(std::memory_order_relaxed)) return true;
  if (!gate_.is_open(now)) return false;
  if (const int error = start_detached(&thread_main, this); error != 0) {
    gate_.note_failure(error);
    static RateLimit once(RateLimit::kOnce);
    uint64_t suppressed = 0;
    if (once.pass(now_ns(), &suppressed)) {
      log_info(
          "no thread could be started to unpin released memory (%s): until there is one it stays "
          "pinned until the next miss or hydrant_poll()",
          errno_text(error));
    }
    return false;
  }
  // Objects that the client's unpin() uses may be destroyed at exit.
  if (!ends_at_exit_) ends_at_exit_ = std::atexit([] { own().pause(); }) == 0;
  running_.store(true, std::memory_order_release);
  return true;
}

void* Upkeep::thread_main(void* self) {
  auto* upkeep = static_cast<Upkeep*>(self);
  unblock_fault_signals();
  for (;;) {
    upkeep->wait_for_work();
    // Cleared before the work, so that a wake() during it leads to another round. Acquire: pairs with wake().
    upkeep->wakes_.exchange(0, std::memory_order_acq_rel);
    for (Client& client : upkeep->clients_) upkeep->serve(client);
  }
  return nullptr;
}

void Upkeep::wait_for_work() noexcept {
  while (wakes_.load(std::memory_order_relaxed) == 0) {
    syscall(SYS_futex, &wakes_, FUTEX_WAIT_PRIVATE, 0, nullptr, nullptr, 0);
  }
  const uint64_t begun = now_ns();
  for (uint64_t waited = 0; waited < delay_ns(); waited = now_ns() - begun) {
    if ((wakes_.load(std::memory_order_relaxed) & kAtOnce) != 0) return;
    const timespec rest{0, static_cast<long>(std::min(delay_ns() - waited, kDelayNs))};
    syscall(SYS_futex, &wakes_, FUTEX_WAIT_PRIVATE, kWoken, &rest, nullptr, 0);
  }
}

void Upkeep::serve(Client& client) noexcept {
  if (client.state.load(std::memory_order_relaxed) != kUsed) return;
  // seq_cst, as in leave() and pause(): either this sees them, or they see this.
  client.inside.store(1, std::memory_order_seq_cst);
  while (client.state.load(std::memory_order_seq_cst) == kUsed) {
    if (paused_.load(std::memory_order_seq_cst) != 0) {
      wakes_.store(kWoken, std::memory_order_relaxed);
      break;
    }
    if (!client.work(client.context)) break;
  }
  client.inside.store(0, std::memory_order_release);
}

// A read-modify-write: either it precedes the thread's own, which then sees the regions that died before; or
// it follows, and the thread runs again.
void Upkeep::wake(uint32_t how) noexcept {
  if (!running_.load(std::memory_order_relaxed)) return;
  if ((wakes_.fetch_or(how, std::memory_order_acq_rel) & how) == how) return;
  const int kept = errno;
  syscall(SYS_futex, &wakes_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  errno = kept;
}

int Upkeep::enlist(Work work, void* context) noexcept {
  for (size_t i = 0; i < kMaxClients; ++i) {
    Client& client = clients_[i];
    uint32_t free = kFree;
    if (!client.state.compare_exchange_strong(free, kBeingWritten, std::memory_order_acquire))
      continue;
    client.work = work;
    client.context = context;
    client.state.store(kUsed, std::memory_order_seq_cst);
    return static_cast<int>(i);
  }
  return -1;
}

void Upkeep::leave(int index) noexcept {
  if (index < 0) return;
  Client& client = clients_[index];
  client.state.store(kLeaving, std::memory_order_seq_cst);
  while (client.inside.load(std::memory_order_seq_cst) != 0) nap(kNapNs);
  client.state.store(kFree, std::memory_order_release);
}

bool Upkeep::is_inside() const noexcept {
  return std::any_of(std::begin(clients_), std::end(clients_), [](const Client& client) {
    return client.inside.load(std::memory_order_seq_cst) != 0;
  });
}

void Upkeep::pause() noexcept {
  paused_.fetch_add(1, std::memory_order_seq_cst);
  if (!is_inside()) return;
  const CancellationDisabled guard;  // exit() does not disable cancellation
  const uint64_t deadline = now_ns() + max_pause_ns();
  while (is_inside() && now_ns() < deadline) nap(kNapNs);
}

void Upkeep::reset_in_child() noexcept {
  start_mu_.reset_in_child();
  running_.store(false, std::memory_order_relaxed);
  gate_.reset();
  paused_.store(0, std::memory_order_relaxed);
  wakes_.store(0, std::memory_order_relaxed);
  for (Client& client : clients_) {
    client.inside.store(0, std::memory_order_relaxed);
    // The thread that was enlisting or removing it does not exist in the child.
    if (client.state.load(std::memory_order_relaxed) != kUsed)
      client.state.store(kFree, std::memory_order_relaxed);
  }
}

}  // namespace hydrant
