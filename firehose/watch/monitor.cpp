// Implements the monitor's calls for caches, allocators and hooks: settle, sync, announcements, fork. The
// reader is in monitor_reader.cpp; monitor_cover.cpp decides what may be cached.
#include "firehose/watch/monitor.hpp"

#include "firehose/base/brief_lock.hpp"
#include "firehose/base/cancellation.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/watch_windows.hpp"
#include "firehose/watch/mutant.hpp"

#include <algorithm>
#include <dlfcn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hydrant {
namespace {

constexpr uint64_t kSyncDeadlineNs = 1'000'000'000;
constexpr size_t kPageBytes = 4096;
constexpr int kYields = 16;
constexpr long kMinSleepNs = 20'000;
constexpr long kMaxSleepNs = 2'000'000;
// A yield that takes longer shows that other threads need the processor. Many waiters that poll often would
// leave no time to the threads that they wait for.
constexpr uint64_t kCrowdedYieldNs = 20'000;
constexpr long kCrowdedSleepNs = 100'000;

// Waits a little longer each time.
class Pause {
 public:
  explicit Pause(uint64_t timeout_ns) noexcept : timeout_ns_(timeout_ns) {}
  // False when the time is up.
  bool again() noexcept {
    if (timeout_ns_ == 0) return false;
    const uint64_t now = now_ns();
    if (tries_++ < kYields) {
      sched_yield();
      if (now_ns() - now > kCrowdedYieldNs) {
        tries_ = kYields;
        sleep_ns_ = kCrowdedSleepNs;
      }
      return true;
    }
    if (begun_ns_ == 0) begun_ns_ = now;
    if (now - begun_ns_ >= timeout_ns_) return false;
    timespec ts{0, sleep_ns_};
    nanosleep(&ts, nullptr);
    sleep_ns_ = std::min(2 * sleep_ns_, kMaxSleepNs);
    return true;
  }

 private:
  const CancellationDisabled guard_;
  const uint64_t timeout_ns_;
  uint64_t begun_ns_ = 0;
  int tries_ = 0;
  long sleep_ns_ = kMinSleepNs;
};

}  // namespace

bool Monitor::settle(uint64_t timeout_ns) noexcept {
  if (is_mutant(Mutant::kNoSettle)) return true;
  const uint64_t seen = sequence_.load(std::memory_order_acquire);
  if ((seen & 1) == 0) return true;
  Pause pause(timeout_ns);
  // Another odd number belongs to a later reading: the changes that had been read before this call are done.
  while (sequence_.load(std::memory_order_acquire) == seen) {
    if (!pause.again()) return false;
  }
  return true;
}

// If many threads release memory, some change is always under way. A grace period waits only for the changes
// that have begun, by calls that are inside a hook now; its number separates them from calls that begin
// later. Returns 0 if changes may come from outside all hooks: raw system calls, and pthread_join() of a
// thread whose stack is watched.
uint64_t Monitor::begin_grace_period() noexcept {
  if (!looks_for_raw_changes() || has_stacks_.load(std::memory_order_relaxed)) return 0;
  return removals_.fetch_add(1, std::memory_order_seq_cst) + 1;
}

// The value of the sequence at which the changes that are pending now, up to kAtOnce of them, have been read
// and passed to the caches.
uint64_t Monitor::next_reading_done() const noexcept {
  // A reading that is under way may have begun before they were pending: this waits for the next one.
  return (sequence_.load(std::memory_order_seq_cst) + 3) & ~uint64_t{1};
}

bool Monitor::quiet(MemoryRange range, uint64_t timeout_ns) noexcept {
  if (running_.load(std::memory_order_acquire) && userfault_.change_under_way()) {
    Pause pause(timeout_ns);
    const uint64_t number = begin_grace_period();
    // The own thread is left out: in a signal handler, the interrupted call has no change pending in the
    // kernel.
    const auto own = static_cast<uint32_t>(syscall(SYS_gettid));
    HookedCallsUnderWay::Wait wait{number, range, own, true};
    // The sequence to wait for once the calls have returned; 0: they have not. Any change under way is then
    // of a later call, or is the first raw change, and the next reading gets it.
    uint64_t done = 0;
    do {
      if (number != 0 && done == 0 && hooked_calls_.have_returned(wait)) done = next_reading_done();
      if (done != 0 && sequence_.load(std::memory_order_acquire) >= done) return true;
      if (!pause.again()) return false;
      // If the descriptor was closed, change_under_way() is true until the reader notices.
    } while (running_.load(std::memory_order_acquire) && userfault_.change_under_way());
  }
  // In this order: a change that is no longer under way has been read, and the sequence was odd at that time.
  return settle(timeout_ns);
}

void Monitor::sync() noexcept {
  if (is_mutant(Mutant::kNoSync)) return;
  if (quiet(kAllMemory, kSyncDeadlineNs)) return;
  const CancellationDisabled guard;
  static RateLimit limit(RateLimit::kSecond);
  log_warning(limit,
              "memory is released faster than the monitor can follow, or its thread does not run: "
              "the pin caches forget everything");
  forget(kAllMemory);
}

// Cached regions at these addresses belong to an earlier mapping, whose release has begun: it is under way,
// or has been read, or the caches have forgotten it. In the first two cases the range is removed from
// watched_ and then forgotten. So the caller need not wait for the report, which does no harm when it comes.
// unwatch_unused() relies on watched_ and keeps the reader from reading: while it runs, the caller waits.
void Monitor::sync(MemoryRange range) noexcept {
  if (is_mutant(Mutant::kNoSync)) return;
  if (!range.valid() || range.last() > kAllMemory.last()) return sync();
  const bool waits = running_.load(std::memory_order_acquire) && userfault_.change_under_way();
  if (!waits && settle(kSyncDeadlineNs)) return;
  const CancellationDisabled guard;
  const MemoryRange pages = round_out(range, kPageBytes);
  drop_watched(pages);
  // A range that begins inside a page extends an older mapping: that page was not unmapped.
  const bool is_whole = pages.addr == range.addr;
  if (!is_whole) forget({pages.addr, kPageBytes});
  const uintptr_t first = is_whole ? pages.addr : pages.addr + kPageBytes;
  if (first < pages.end()) forget_unmapped({first, pages.end() - first});
  if (unwatching_.load(std::memory_order_seq_cst)) sync();
}

// seq_cst pairs with unsubscribe(): either this sees that the client is leaving, or unsubscribe() waits for
// the call.
template <class Call>
void Monitor::each_client(const Call& call) noexcept {
  for (Client& client : clients_) {
    if (client.state.load(std::memory_order_relaxed) != kUsed) continue;
    client.inside.fetch_add(1, std::memory_order_seq_cst);
    if (client.state.load(std::memory_order_seq_cst) == kUsed) call(client);
    client.inside.fetch_sub(1, std::memory_order_release);
  }
}

void Monitor::forget(MemoryRange range) noexcept {
  each_client(
      [&](const Client& client) { client.is.forget(client.is.context, range.addr, range.len); });
}

void Monitor::forget_unmapped(MemoryRange range) noexcept {
  each_client([&](const Client& client) {
    const auto unmapped = client.unmapped.load(std::memory_order_acquire);
    const auto call = unmapped != nullptr ? unmapped : client.is.forget;
    call(client.is.context, range.addr, range.len);
  });
}

void Monitor::invalidate(MemoryRange range) noexcept {
  if (!range.valid() || is_mutant(Mutant::kIgnoreArenas)) return;
  forget(range);
}

// Records that the registrations with the kernel have changed and watched_ could not be updated.
void Monitor::note_lost_events() noexcept {
  changes_.fetch_add(1, std::memory_order_seq_cst);
  events_lost_.store(true, std::memory_order_seq_cst);
}

void Monitor::drop_watched_after_loss_locked() {
  if (!events_lost_.load(std::memory_order_seq_cst)) return;  // pairs with sync(): unwatching_
  if (events_lost_.exchange(false, std::memory_order_seq_cst)) watched_.clear();
}

// The mutex is only tried: a hook may run in a signal handler that interrupted its holder.
void Monitor::drop_watched(MemoryRange range) noexcept {
  if (lock_briefly(ranges_mu_)) {
    drop_watched_after_loss_locked();
    changes_.fetch_add(1, std::memory_order_relaxed);
    if (!watched_.remove(range)) watched_.clear();
    ranges_mu_.unlock();
  } else {
    note_lost_events();
  }
}

// A hook reports an unmapping that the kernel did not report.
void Monitor::replaced(MemoryRange range) noexcept {
  if (!range.valid()) return;
  drop_watched(range);
  forget_unmapped(range);
}

void Monitor::forget_vouched() noexcept {
  each_client([](const Client& client) { client.is.forget_vouched(client.is.context); });
}

bool Monitor::pinned(MemoryRange range) noexcept {
  if (!range.valid()) return false;
  bool found = false;
  each_client([&](const Client& client) {
    found = found || client.is.pinned(client.is.context, range.addr, range.len) != 0;
  });
  return found;
}

void Monitor::end_free_hits() noexcept {
  each_client([](const Client& client) {
    const auto end = client.end_free_hits.load(std::memory_order_acquire);
    if (end != nullptr) return end(client.is.context);
    client.is.forget(client.is.context, kAllMemory.addr, kAllMemory.len);
  });
}

int Monitor::subscribe(const hydrant_monitor_client_t& client) noexcept {
  for (size_t i = 0; i < kMaxClients; ++i) {
    uint32_t free = kFree;
    if (!clients_[i].state.compare_exchange_strong(free, kBeingWritten, std::memory_order_acquire))
      continue;
    clients_[i].is = client;
    clients_[i].end_free_hits.store(nullptr, std::memory_order_relaxed);
    clients_[i].unmapped.store(nullptr, std::memory_order_relaxed);
    clients_[i].wanted.store(nullptr, std::memory_order_relaxed);
    clients_[i].state.store(kUsed, std::memory_order_seq_cst);
    return static_cast<int>(i);
  }
  return -1;
}

void Monitor::unsubscribe(int number) noexcept {
  if (number < 0 || number >= static_cast<int>(kMaxClients)) return;
  Client& client = clients_[number];
  client.state.store(kLeaving, std::memory_order_seq_cst);
  // A client's functions do not wait; one that a handler has interrupted ends after the handler.
  Pause pause(UINT64_MAX);
  while (client.inside.load(std::memory_order_seq_cst) != 0) (void)pause.again();
  client.state.store(kFree, std::memory_order_release);
}

Monitor::Client* Monitor::find_client(int number) noexcept {
  if (number < 0 || number >= static_cast<int>(kMaxClients)) return nullptr;
  Client& client = clients_[number];
  return client.state.load(std::memory_order_acquire) == kUsed ? &client : nullptr;
}

bool Monitor::set_unmapped(int number,
                           void (*unmapped)(void* context, uintptr_t addr, size_t len)) noexcept {
  Client* const client = find_client(number);
  if (client != nullptr) client->unmapped.store(unmapped, std::memory_order_release);
  return client != nullptr;
}

bool Monitor::set_wanted(int number, void (*wanted)(void* context)) noexcept {
  Client* const client = find_client(number);
  if (client != nullptr) client->wanted.store(wanted, std::memory_order_release);
  return client != nullptr;
}

void Monitor::notify_wanted() noexcept {
  each_client([](const Client& client) {
    const auto wanted = client.wanted.load(std::memory_order_acquire);
    if (wanted != nullptr) wanted(client.is.context);
  });
}

bool Monitor::add_arena(MemoryRange range, bool kept) noexcept {
  if (!range.valid()) return false;
  for (uint32_t i = 0; i < kMaxArenas; ++i) {
    uintptr_t free = 0;
    // The claim's address covers nothing, so that no reader combines it with the length of another range.
    if (!arenas_[i].addr.compare_exchange_strong(free, UINTPTR_MAX, std::memory_order_acq_rel))
      continue;
    Arena& arena = arenas_[i];
    arena.version.fetch_add(1, std::memory_order_acq_rel);
    arena.len.store(range.len, std::memory_order_release);
    arena.kept.store(kept, std::memory_order_release);
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
  if (range.valid() && !is_mutant(Mutant::kIgnoreArenas)) forget_unmapped(range);
}

// A pin that crosses two ranges of one arena is treated as any other memory.
bool Monitor::in_arena(MemoryRange range, bool only_kept) const noexcept {
  for (uint32_t i = 0; i < arena_high_.load(std::memory_order_acquire); ++i) {
    const Arena& arena = arenas_[i];
    const uint64_t version = arena.version.load(std::memory_order_acquire);
    const uintptr_t addr = arena.addr.load(std::memory_order_acquire);
    const size_t len = arena.len.load(std::memory_order_acquire);
    const bool kept = arena.kept.load(std::memory_order_acquire);
    if (addr == 0 || addr == UINTPTR_MAX || !MemoryRange{addr, len}.covers(range)) continue;
    if (only_kept && !kept) continue;
    // Another version means another range, which was not there when this call began: false is correct.
    if (version % 2 == 0 && arena.version.load(std::memory_order_relaxed) == version) return true;
  }
  return false;
}

void Monitor::note_pinned(MemoryRange range) noexcept {
  // No memory has been watched so far, so the range lies in an arena, which needs no mark.
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
  watching_mu_.reset_in_child();
  reading_mu_.reset_in_child();
  ranges_mu_.reset_in_child();
  for (Client& client : clients_) {
    client.inside.store(0, std::memory_order_relaxed);
    // The thread that was subscribing or unsubscribing it does not exist in the child.
    if (client.state.load(std::memory_order_relaxed) != kUsed)
      client.state.store(kFree, std::memory_order_relaxed);
  }
  running_.store(false, std::memory_order_relaxed);
  refused_.store(false, std::memory_order_relaxed);
  userfault_.close();  // the parent's
  mappings_.close();
  watched_.clear();
  removed_.clear();
  events_lost_.store(false, std::memory_order_relaxed);
  deferred_count_ = 0;
  unwatching_.store(false, std::memory_order_relaxed);
  g_watch_windows.reset_in_child();
  is_behind_.store(false, std::memory_order_relaxed);
  stacks_.clear();
  // The reader may have been at work during the fork: an odd sequence becomes even.
  const uint64_t sequence = sequence_.load(std::memory_order_relaxed);
  sequence_.store((sequence + 1) & ~uint64_t{1}, std::memory_order_release);
}

}  // namespace hydrant
