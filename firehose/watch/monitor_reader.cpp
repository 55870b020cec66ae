// The thread that reads the kernel's reports. It never allocates, never waits for anybody who
// allocates, frees or registers, and never deregisters: whoever releases memory sleeps in the kernel
// until it has read, with whatever locks an allocator holds.
#include "firehose/base/log.hpp"
#include "firehose/watch/monitor.hpp"
#include "firehose/watch/mutant.hpp"
#include "firehose/watch/static_memory.hpp"

#include <cerrno>
#include <csignal>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

namespace hydrant {
namespace {

constexpr size_t kBlockWords = (uint64_t{1} << 47 >> HYDRANT_MONITOR_BLOCK_SHIFT) / 64;
constexpr size_t kReaderStack = 256 << 10;
constexpr uint64_t kBeginDeadlineNs = 5'000'000'000;
constexpr size_t kMostRemoved = 16384;
// How long a release may stand still after somebody has closed the descriptor and opened something idle
// under its number: poll() looks the number up again when it wakes, and sleeps on.
constexpr int kLongestPollMs = 200;

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
  if (tables_mapped_.load(std::memory_order_relaxed)) return true;  // a child's, who keeps them
  MutexLock lock(ranges_mu_);
  if (watched_.map(kMostRanges) && removed_.map(kMostRemoved) && blocks_.map(kBlockWords)) {
    tables_mapped_.store(true, std::memory_order_release);
    show_blocks();
    return true;
  }
  reason_.store("no address space for the monitor's tables", std::memory_order_release);
  return false;
}

bool Monitor::start() noexcept {
  if (running_.load(std::memory_order_acquire)) return true;
  MutexLock lock(start_mu_);
  if (running_.load(std::memory_order_relaxed)) return true;
  if (refused_) return false;
  const char* reason = "";
  if (!map_tables()) {
    refused_ = true;
    return false;
  }
  if (userfault_.open(&reason) != Status::kOk) {
    refused_ = true;
  } else if (!mappings_.open()) {
    reason = "/proc/self/maps cannot be opened: what is mapped cannot be told";
    refused_ = true;
  } else if (!start_reader()) {
    reason = "no thread could be started to read the kernel's reports";
    refused_ = true;
  }
  reason_.store(reason, std::memory_order_release);
  if (refused_) {
    userfault_.close();
    mappings_.close();
    return false;
  }
  hydrant_hooks_t* hooks = &hydrant_hooks_1;
  if (hooks != nullptr && hooks->version == HYDRANT_HOOKS_VERSION && hooks->size >= sizeof *hooks) {
    const hydrant_monitor_t* nobody = nullptr;
    const hydrant_monitor_t* face = hydrant_monitor(HYDRANT_MONITOR_VERSION);
    if (__atomic_compare_exchange_n(&hooks->monitor, &nobody, face, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE) ||
        nobody == face) {
      hooks_ = hooks;
    }
  }
  statics_ = find_static_memory();
  running_.store(true, std::memory_order_release);
  log_info("watching memory with userfaultfd, one reader thread, %s",
           hooks_complete()
               ? "and the hooks library: hits are free of checks"
               : "without the hooks library: each use of cached memory asks the kernel (0.3 us)");
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
  // The program's handlers run in its own threads.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, &reader_main, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (!started) return false;
  (void)pthread_setname_np(thread, "hydrant-watch");
  // What the hooks make every new thread do first must be over before there is something to wait for.
  const uint64_t deadline = now_ns() + kBeginDeadlineNs;
  while (!reader_begun_.load(std::memory_order_acquire)) {
    if (now_ns() > deadline) return false;
    sched_yield();
  }
  return true;
}

void* Monitor::reader_main(void* self) {
  auto* monitor = static_cast<Monitor*>(self);
  monitor->reader_begun_.store(true, std::memory_order_release);
  monitor->read_forever();
  return nullptr;
}

void Monitor::read_forever() noexcept {
  for (;;) {
    pollfd reports{userfault_.descriptor(), POLLIN, 0};
    const int ready = ::poll(&reports, 1, kLongestPollMs);
    if (ready < 0 && errno != EINTR) return;
    // Before anything is read: the number may be another file's by now.
    if (!userfault_.usable()) return stop_watching();
    if (ready > 0) take_changes();
  }
}

// Nothing will be reported any more.
void Monitor::stop_watching() noexcept {
  {
    MutexLock lock(start_mu_);
    refused_ = true;
    reason_.store(
        "the userfaultfd was closed by somebody who closes all descriptors: create domains after "
        "that",
        std::memory_order_release);
    userfault_.abandon();
    running_.store(false, std::memory_order_release);
  }
  {
    MutexLock lock(ranges_mu_);
    watched_.clear();
    removed_.clear();
    ++changes_;
  }
  tell(kAllMemory);
  static RateLimit once(RateLimit::kOnce);
  log_warning(once, "memory is no longer watched: %s", reason());
}

void Monitor::take_changes() noexcept {
  MemoryChange changes[16];
  size_t n = 0;
  if (is_mutant(Mutant::kLateReader)) {
    n = userfault_.read(changes, 16);
    mutant_delay();
  }
  const uint64_t odd = sequence_.load(std::memory_order_relaxed) + 1;
  sequence_.store(odd, std::memory_order_seq_cst);
  if (n == 0) n = userfault_.read(changes, 16);
  mutant_delay();
  for (size_t i = 0; i < n; ++i) apply(changes[i]);
  sequence_.store(odd + 1, std::memory_order_release);
}

void Monitor::apply(const MemoryChange& change) noexcept {
  if (drops(change.kind)) return;
  {
    MutexLock lock(ranges_mu_);
    ++changes_;
    if (change.kind == MemoryChange::Kind::kRemoved) {
      const uint64_t number = removals_.load(std::memory_order_relaxed) + 1;
      removed_.add(change.range, number);
      removals_.store(number, std::memory_order_release);
    } else {
      // The set is a memory of what was registered; without it that is done again.
      if (!watched_.remove(change.range)) watched_.clear();
      removed_.forget(change.range);
      if (change.kind == MemoryChange::Kind::kMoved && !watched_.remove(change.to))
        watched_.clear();
    }
  }
  tell(change.range);
  if (change.kind == MemoryChange::Kind::kMoved) tell(change.to);
}

}  // namespace hydrant
