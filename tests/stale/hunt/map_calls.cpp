// Makes the hunt's mapping calls through libc or as raw system calls.
#include "tests/stale/hunt/map_calls.hpp"

#include <atomic>
#include <csignal>
#include <mutex>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hydrant::stale {
namespace {

constexpr uint64_t kChildOneIn = 61;
constexpr size_t kChildStack = 16 << 10;

std::atomic<RawCalls> g_raw{RawCalls::kNone};
std::atomic<uint64_t> g_made{0};
std::mutex g_turn;

template <typename... Arguments>
long raw_call(long number, Arguments... arguments) {
  g_made.fetch_add(1, std::memory_order_relaxed);
  std::unique_lock<std::mutex> turn(g_turn, std::defer_lock);
  if (chosen_map_calls() == RawCalls::kInTurn) turn.lock();
  return syscall(number, arguments...);
}

struct Unmapping {
  void* addr;
  size_t len;
};

int unmap_in_child(void* argument) {
  const auto* what = static_cast<const Unmapping*>(argument);
  syscall(SYS_munmap, what->addr, what->len);
  syscall(SYS_exit, 0);
  return 0;
}

// The parent waits until the child has ended, because they share the parent's thread-local memory.
bool unmap_by_child(void* addr, size_t len) {
  alignas(64) char stack[kChildStack];
  Unmapping what{addr, len};
  std::unique_lock<std::mutex> turn(g_turn, std::defer_lock);
  if (chosen_map_calls() == RawCalls::kInTurn) turn.lock();
  const int pid =
      clone(unmap_in_child, stack + kChildStack, CLONE_VM | CLONE_VFORK | SIGCHLD, &what);
  if (pid < 0) return false;
  waitpid(pid, nullptr, 0);
  return true;
}

}  // namespace

void choose_map_calls(RawCalls raw) { g_raw.store(raw, std::memory_order_relaxed); }
RawCalls chosen_map_calls() { return g_raw.load(std::memory_order_relaxed); }
uint64_t raw_calls_made() { return g_made.load(std::memory_order_relaxed); }

void* map_memory(void* addr, size_t len, int protection, int flags, int file) {
  if (chosen_map_calls() == RawCalls::kNone) return mmap(addr, len, protection, flags, file, 0);
  return reinterpret_cast<void*>(raw_call(SYS_mmap, addr, len, static_cast<long>(protection),
                                          static_cast<long>(flags), static_cast<long>(file), 0L));
}

int unmap_memory(void* addr, size_t len) {
  if (chosen_map_calls() == RawCalls::kNone) return munmap(addr, len);
  if (raw_calls_made() % kChildOneIn == 0 && unmap_by_child(addr, len)) {
    g_made.fetch_add(1, std::memory_order_relaxed);
    return 0;
  }
  return static_cast<int>(raw_call(SYS_munmap, addr, len));
}

int advise_memory(void* addr, size_t len, int advice) {
  if (chosen_map_calls() == RawCalls::kNone) return madvise(addr, len, advice);
  return static_cast<int>(raw_call(SYS_madvise, addr, len, static_cast<long>(advice)));
}

void* move_memory(void* addr, size_t len, size_t new_len, int flags, void* to) {
  if (chosen_map_calls() == RawCalls::kNone) return mremap(addr, len, new_len, flags, to);
  return reinterpret_cast<void*>(
      raw_call(SYS_mremap, addr, len, new_len, static_cast<long>(flags), to));
}

}  // namespace hydrant::stale
