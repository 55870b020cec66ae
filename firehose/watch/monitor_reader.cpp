// Runs the thread that reads the kernel's reports. The thread never allocates, never deregisters, and never
// waits for a thread that allocates, frees or registers. A thread that releases memory sleeps in the kernel
// until its report is read, with whatever locks an allocator holds.
#include "firehose/base/brief_lock.hpp"
#include "firehose/base/config/knobs.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/machine/time_slice.hpp"
#include "firehose/base/signals_blocked.hpp"
#include "firehose/watch/hooks_state.hpp"
#include "firehose/watch/monitor.hpp"
#include "firehose/watch/mutant.hpp"
#include "firehose/watch/static_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

namespace hydrant {
namespace {

constexpr size_t kReaderStack = 256 << 10;
constexpr uint64_t kReaderSliceNs = 100'000;
constexpr uint64_t kBeginDeadlineNs = 5'000'000'000;
// A release waits at most this long after the program closed the descriptor and opened an idle file under its
// number: the reader checks the number only when poll() returns.
constexpr int kMaxPollMs = 200;
// The same while postponed changes wait to be entered.
constexpr int kBehindPollMs = 1;

bool drops(MemoryChange::Kind kind) {
  switch (kind) {
    case MemoryChange::Kind::kUnmapped: return is_mutant(Mutant::kDropUnmap);
    case MemoryChange::Kind::kMoved: return is_mutant(Mutant::kDropRemap);
    case MemoryChange::Kind::kRemoved: return is_mutant(Mutant::kDropRemove);
  }
  return false;
}

}  // namespace

extern "C" __attribute__((weak)) hydrant_hooks_t hydrant_hooks_1;

bool Monitor::map_tables() noexcept {
  if (pinned_blocks_.is_mapped()) return true;  // kept over a fork()
  const RangesLock lock(watched_.mutex());
  if (watched_.map(lock) && removals_.map(lock) && stacks_.map(lock) && pinned_blocks_.map()) {
    show_blocks();
    return true;
  }
  return false;
}

// Creates tables, userfaultfd, mapping query and reader, in that order. On failure sets *reason to a static
// text and returns false.
bool Monitor::start_parts(const char** reason) noexcept {
  if (!map_tables()) {
    *reason = "no address space was left for the monitor's tables: raise ulimit -v";
    return false;
  }
  if (userfault_.open(reason) != Status::kOk) return false;
  if (!mappings_.open()) {
    *reason = errno == EMFILE || errno == ENFILE
                  ? "no file descriptor was left for /proc/self/maps: raise ulimit -n"
                  : "/proc/self/maps cannot be opened, and nothing else tells what is mapped: "
                    "mount /proc";
    return false;
  }
  if (start_reader()) return true;
  *reason = "no thread could be started to read the kernel's reports: raise ulimit -u or ulimit -v";
  return false;
}

bool Monitor::start() noexcept {
  if (running_.load(std::memory_order_acquire)) return true;
  if (refused_.load(std::memory_order_acquire)) return false;
  const SignalsBlocked blocked;
  MutexLock lock(start_mu_);
  if (running_.load(std::memory_order_relaxed)) return true;
  if (refused_) return false;
  const char* reason = "";
  const bool started = start_parts(&reason);
  reason_.store(reason, std::memory_order_release);
  if (!started) {
    refused_ = true;
    userfault_.close();
    mappings_.close();
    log_info(
        "memory cannot be watched, so only memory of libhydrant_alloc and what the program vouches "
        "for is cached: %s",
        reason);
    return false;
  }
  hydrant_hooks_t* hooks = &hydrant_hooks_1;
  if (hooks != nullptr && hooks->version == HYDRANT_HOOKS_VERSION && hooks->size >= sizeof *hooks) {
    const hydrant_monitor_t* expected = nullptr;
    const hydrant_monitor_t* own = hydrant_monitor(HYDRANT_MONITOR_VERSION);
    if (__atomic_compare_exchange_n(&hooks->monitor, &expected, own, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE) ||
        expected == own) {
      hooked_calls_.set_hooks(hooks);
    }
  }
  statics_ = find_static_memory();
  const bool wants_checks = knob_choice(Knob::kHits) == "checked";
  if (wants_checks) raw_releases_.check_hits_from_the_start();
  running_.store(true, std::memory_order_release);
  const char* why = wants_checks ? "FIREHOSE_HITS is checked"
                                 : hit_check_reason(hooks, hooked_calls_.have_hooks());
  log_info("watching memory with userfaultfd, one reader thread; %s%s",
           why == nullptr ? "the hooks are in force: hits are free of checks"
                          : "each use of cached memory asks the kernel (0.3 us): ",
           why == nullptr ? "" : why);
  return true;
}

bool Monitor::start_reader() noexcept {
  reader_begun_.store(false, std::memory_order_relaxed);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  (void)pthread_attr_setstacksize(&attributes, kReaderStack);
  (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // The program's signal handlers must run in its own threads.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, &reader_main, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (!started) return false;
  (void)pthread_setname_np(thread, "hydrant-watch");
  // The hook of pthread_create() makes each new thread sync first. Memory must not be watched before that is
  // over: the sync would wait for this reader.
  const uint64_t deadline = now_ns() + kBeginDeadlineNs;
  while (!reader_begun_.load(std::memory_order_acquire)) {
    if (now_ns() > deadline) return false;
    sched_yield();
  }
  return true;
}

void* Monitor::reader_main(void* self) {
  auto* monitor = static_cast<Monitor*>(self);
  // Callers of munmap() sleep until the reader has read. A short time slice lets it run before other threads'
  // slices end.
  shorten_time_slice(kReaderSliceNs);
  monitor->reader_begun_.store(true, std::memory_order_release);
  monitor->read_forever();
  return nullptr;
}

void Monitor::read_forever() noexcept {
  for (;;) {
    pollfd reports{userfault_.descriptor(), POLLIN, 0};
    const int ready = ::poll(&reports, 1, deferred_.any() ? kBehindPollMs : kMaxPollMs);
    if (ready < 0 && errno != EINTR) return;
    // Checked before the reading: the number may be another file's by now.
    if (!userfault_.usable()) return stop_watching();
    if (deferred_.any()) (void)add_deferred(false);
    if (ready > 0) take_changes();
  }
}

// The kernel's reports have ended. The sequence is odd until every cache has forgotten everything, so that
// settle() waits for that.
void Monitor::stop_watching() noexcept {
  sequence_.begin();
  {
    MutexLock lock(start_mu_);
    refused_ = true;
    reason_.store(
        "the program closed the userfaultfd, perhaps with all its descriptors: create domains "
        "after that",
        std::memory_order_release);
    userfault_.abandon();
    running_.store(false, std::memory_order_release);
  }
  watched_.note_lost();
  clients_.forget(kAllMemory);
  sequence_.end();
  static RateLimit once(RateLimit::kOnce);
  log_warning(once, "memory is no longer watched: %s", reason());
}

void Monitor::take_changes() noexcept {
  const MutexLock reading(reading_mu_);
  (void)running_.load(std::memory_order_acquire);  // pairs with start(): shows the hooks
  MemoryChange changes[Userfault::kAtOnce];
  size_t n = 0;
  if (is_mutant(Mutant::kDelayedReader)) {
    n = userfault_.read(changes, Userfault::kAtOnce);
    mutant_delay();
  }
  sequence_.begin();
  const RawReleases::Look look = raw_releases_.begin_reading();
  if (n == 0) n = userfault_.read(changes, Userfault::kAtOnce);
  mutant_delay();
  const MemoryChange* raw = raw_releases_.find(look, changes, n);
  for (size_t i = 0; i < n; ++i) apply(changes[i]);
  sequence_.end();
  if (raw != nullptr) RawReleases::report(*raw);
}

void Monitor::enter(const RangesLock& lock, const MemoryChange& change, uint64_t removal) noexcept {
  if (change.kind == MemoryChange::Kind::kRemoved)
    return removals_.add(lock, change.range, removal);
  watched_.remove(lock, change.range);
  removals_.replace(lock, change.range);
  stacks_.remove(lock, change.range);
  if (change.kind == MemoryChange::Kind::kMoved) watched_.remove(lock, change.to);
}

// Enters the postponed changes, in the order in which they were reported.
bool Monitor::add_deferred(bool impatient) noexcept {
  if (!lock_briefly(watched_.mutex(), impatient)) return false;
  const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
  deferred_.take_all(
      [&](const MemoryChange& change, uint64_t removal) { enter(lock, change, removal); });
  return true;
}

void Monitor::apply(const MemoryChange& change) noexcept {
  if (drops(change.kind)) return;
  uint64_t removal = 0;
  if (change.kind == MemoryChange::Kind::kRemoved) {
    removal = removals_.next_number();
    if (!raw_releases_.knows_caller(change)) removal = RemovedRanges::kCallerUnknown;
  }
  const bool caught_up = !deferred_.any() || add_deferred(true);
  if (caught_up && lock_briefly(watched_.mutex())) {
    const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
    watched_.begin_change(lock);
    enter(lock, change, removal);
  } else {
    if (change.kind != MemoryChange::Kind::kRemoved) watched_.note_lost();
    deferred_.push(change, removal);
  }
  change.kind == MemoryChange::Kind::kRemoved ? clients_.forget(change.range)
                                              : clients_.forget_unmapped(change.range);
  if (change.kind == MemoryChange::Kind::kMoved) clients_.forget(change.to);
}

}  // namespace hydrant
