// What others ask of the monitor; the reader is in monitor_reader.cpp, what may be cached in
// monitor_cover.cpp.
#include "firehose/watch/monitor.hpp"

#include "firehose/base/log.hpp"
#include "firehose/watch/mutant.hpp"

#include <dlfcn.h>
#include <sched.h>

namespace hydrant {
namespace {

constexpr uint64_t kSyncDeadlineNs = 1'000'000'000;
constexpr int kYields = 16;

// Waits a little longer each time.
class Pause {
 public:
  explicit Pause(uint64_t timeout_ns) noexcept : timeout_ns_(timeout_ns) {}
  // False when the time is up.
  bool again() noexcept {
    if (tries_++ < kYields) {
      sched_yield();
      return true;
    }
    const uint64_t now = now_ns();
    if (begun_ns_ == 0) begun_ns_ = now;
    if (now - begun_ns_ >= timeout_ns_) return false;
    timespec ts{0, 20'000};
    nanosleep(&ts, nullptr);
    return true;
  }

 private:
  const uint64_t timeout_ns_;
  uint64_t begun_ns_ = 0;
  int tries_ = 0;
};

}  // namespace

bool Monitor::settle(uint64_t timeout_ns) noexcept {
  if (is_mutant(Mutant::kNoSettle)) return true;
  const uint64_t seen = sequence_.load(std::memory_order_acquire);
  if ((seen & 1) == 0) return true;
  Pause pause(timeout_ns);
  // Another odd number is other changes than those that had been taken when we came.
  while (sequence_.load(std::memory_order_acquire) == seen) {
    if (!pause.again()) return false;
  }
  return true;
}

bool Monitor::quiet(uint64_t timeout_ns) noexcept {
  if (!running_.load(std::memory_order_acquire)) return true;
  if (userfault_.change_under_way()) {
    Pause pause(timeout_ns);
    do {
      if (!pause.again()) return false;
    } while (userfault_.change_under_way());
  }
  // In this order: what is no longer under way was taken, and was taken with an odd sequence.
  return settle(timeout_ns);
}

void Monitor::sync() noexcept {
  if (is_mutant(Mutant::kNoSync)) return;
  if (quiet(kSyncDeadlineNs)) return;
  static RateLimit limit(RateLimit::kSecond);
  log_warning(limit,
              "memory is released faster than the monitor can follow, or its thread does not run: "
              "the pin caches forget everything");
  tell(kAllMemory);
}

void Monitor::tell(MemoryRange range) noexcept {
  MutexLock lock(clients_mu_);
  for (const Client& client : clients_) {
    if (client.used) client.is.forget(client.is.context, range.addr, range.len);
  }
}

void Monitor::invalidate(MemoryRange range) noexcept {
  if (!range.valid() || is_mutant(Mutant::kDeafToArenas)) return;
  tell(range);
}

// An unmapping that nobody reported, told by who did it.
void Monitor::replaced(MemoryRange range) noexcept {
  if (!range.valid()) return;
  {
    MutexLock lock(ranges_mu_);
    ++changes_;
    if (!watched_.remove(range)) watched_.clear();
  }
  tell(range);
}

void Monitor::forget_vouched() noexcept {
  MutexLock lock(clients_mu_);
  for (const Client& client : clients_) {
    if (client.used) client.is.forget_vouched(client.is.context);
  }
}

bool Monitor::pinned(MemoryRange range) noexcept {
  if (!range.valid()) return false;
  MutexLock lock(clients_mu_);
  for (const Client& client : clients_) {
    if (client.used && client.is.pinned(client.is.context, range.addr, range.len) != 0) return true;
  }
  return false;
}

int Monitor::subscribe(const hydrant_monitor_client_t& client) noexcept {
  MutexLock lock(clients_mu_);
  for (size_t i = 0; i < kMostClients; ++i) {
    if (clients_[i].used) continue;
    clients_[i] = {client, true};
    return static_cast<int>(i);
  }
  return -1;
}

void Monitor::unsubscribe(int number) noexcept {
  if (number < 0 || number >= static_cast<int>(kMostClients)) return;
  MutexLock lock(clients_mu_);
  clients_[number].used = false;
}

bool Monitor::add_arena(MemoryRange range) noexcept {
  if (!range.valid()) return false;
  for (uint32_t i = 0; i < kMostArenas; ++i) {
    uintptr_t free = 0;
    // Claimed with an address that covers nothing, so that nobody sees the length of another range.
    if (!arenas_[i].addr.compare_exchange_strong(free, UINTPTR_MAX, std::memory_order_acq_rel))
      continue;
    Arena& arena = arenas_[i];
    arena.version.fetch_add(1, std::memory_order_acq_rel);
    arena.len.store(range.len, std::memory_order_release);
    arena.addr.store(range.addr, std::memory_order_release);
    arena.version.fetch_add(1, std::memory_order_release);
    uint32_t high = arena_high_.load(std::memory_order_relaxed);
    while (high < i + 1 &&
           !arena_high_.compare_exchange_weak(high, i + 1, std::memory_order_release)) {
    }
    return true;
  }
  return false;
}

void Monitor::drop_arena(MemoryRange range) noexcept {
  for (uint32_t i = 0; i < arena_high_.load(std::memory_order_acquire); ++i) {
    if (arenas_[i].addr.load(std::memory_order_relaxed) == range.addr &&
        arenas_[i].len.load(std::memory_order_relaxed) == range.len) {
      arenas_[i].addr.store(0, std::memory_order_release);
      break;
    }
  }
  invalidate(range);
}

// A pin of a whole arena may cross two of its ranges; that one is treated as any other memory.
bool Monitor::in_arena(MemoryRange range) const noexcept {
  for (uint32_t i = 0; i < arena_high_.load(std::memory_order_acquire); ++i) {
    const Arena& arena = arenas_[i];
    const uint64_t version = arena.version.load(std::memory_order_acquire);
    const uintptr_t addr = arena.addr.load(std::memory_order_acquire);
    const size_t len = arena.len.load(std::memory_order_acquire);
    if (addr == 0 || addr == UINTPTR_MAX || !MemoryRange{addr, len}.covers(range)) continue;
    // Another version is another range, which was not there when we came: "no" is a good answer.
    if (version % 2 == 0 && arena.version.load(std::memory_order_relaxed) == version) return true;
  }
  return false;
}

void Monitor::note_pinned(MemoryRange range) noexcept {
  // Before anything was watched: an arena's memory needs no mark.
  if (!tables_mapped_.load(std::memory_order_acquire)) return;
  const size_t most = blocks_.size() * 64 - 1;
  size_t block = range.addr >> HYDRANT_MONITOR_BLOCK_SHIFT;
  const size_t last = range.last() >> HYDRANT_MONITOR_BLOCK_SHIFT;
  for (; block <= last && block <= most; ++block) {
    const uint64_t bit = uint64_t{1} << block % 64;
    std::atomic<uint64_t>& word = blocks_[block / 64];
    if ((word.load(std::memory_order_relaxed) & bit) == 0)
      word.fetch_or(bit, std::memory_order_seq_cst);
  }
}

void Monitor::begin_counting() noexcept { removals_.store(1, std::memory_order_relaxed); }

const uint64_t* Monitor::blocks() const noexcept {
  return reinterpret_cast<const uint64_t*>(blocks_.data());
}
const uint64_t* Monitor::sequence() const noexcept {
  return reinterpret_cast<const uint64_t*>(&sequence_);
}
const uint64_t* Monitor::removals() const noexcept {
  return reinterpret_cast<const uint64_t*>(&removals_);
}

void Monitor::reset_in_child() noexcept HYDRANT_NO_TSA {
  start_mu_.reset_in_child();
  ranges_mu_.reset_in_child();
  clients_mu_.reset_in_child();
  running_.store(false, std::memory_order_relaxed);
  refused_ = false;
  userfault_.close();  // the parent's
  mappings_.close();
  watched_.clear();
  removed_.clear();
  // The reader may have been at work when its process was copied.
  const uint64_t sequence = sequence_.load(std::memory_order_relaxed);
  sequence_.store((sequence + 1) & ~uint64_t{1}, std::memory_order_release);
}

}  // namespace hydrant
