// Starts the monitor: its tables, the userfaultfd and the reader, and finds the hooks. Starts over in the
// child of a fork. monitor_cover.cpp decides what may be cached.
#include "firehose/watch/monitor.hpp"

#include "firehose/base/brief_lock.hpp"
#include "firehose/base/config/knobs.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/start_gate.hpp"
#include "firehose/watch/hooks_state.hpp"
#include "firehose/watch/static_memory.hpp"

#include <cerrno>
#include <cstring>

extern "C" __attribute__((weak)) hydrant_hooks_t hydrant_hooks_1;

namespace hydrant {

bool Monitor::map_tables() noexcept {
  if (pinned_blocks_.is_mapped()) return true;  // kept over a fork()
  const RangesLock lock(watched_.mutex());
  if (!watched_.map(lock) || !removals_.map(lock) || !stacks_.map(lock) || !pinned_blocks_.map())
    return false;
  show_blocks();
  return true;
}

// Creates tables, userfaultfd, mapping query and reader, in that order. Returns 0, or an errno with *reason
// set to a static text.
int Monitor::start_parts(const char** reason) noexcept {
  if (!map_tables()) {
    *reason = "no address space was left for the monitor's tables: raise ulimit -v";
    return ENOMEM;
  }
  if (const int error = userfault_.open(reason); error != 0) return error;
  if (!mappings_.open()) {
    const int error = errno;
    *reason =
        error == EMFILE || error == ENFILE
            ? "no file descriptor was left for /proc/self/maps: raise ulimit -n"
        : error == ENOENT
            ? "/proc/self/maps is absent, and nothing else tells what is mapped: mount /proc"
            : "/proc/self/maps cannot be opened, and nothing else tells what is mapped: permit it";
    return error;
  }
  const int error = reader_.start();
  if (error == 0) return 0;
  *reason = is_shortage(error)
                ? "no thread could be started to read the kernel's reports: raise ulimit -u or "
                  "ulimit -v"
                : "a thread to read the kernel's reports was refused, or did not run within 5 s: "
                  "permit clone3 and clone";
  return error;
}

// Under the mutex of the start, with signals blocked. An errno.
int Monitor::begin_watching(const char** reason) noexcept {
  if (const int error = start_parts(reason); error != 0) {
    userfault_.close();
    mappings_.close();
    const bool is_said = std::strcmp(*reason, state_.reason()) == 0;
    if (!is_said) {
      log_info(
          "memory cannot be watched%s, so only memory of libhydrant_alloc and what the program "
          "vouches for is cached: %s (%s)",
          is_shortage(error) ? " now" : "", *reason, errno_text(error));
    }
    return error;
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
  mappings_.set_statics(find_static_memory());
  const bool wants_checks = knob_choice(Knob::kHits) == "checked";
  if (wants_checks) raw_releases_.check_hits_from_the_start();
  const char* why = wants_checks ? "FIREHOSE_HITS is checked"
                                 : hit_check_reason(hooks, hooked_calls_.have_hooks());
  log_info("watching memory with userfaultfd, one reader thread; %s%s",
           why == nullptr ? "the hooks are in force: hits are free of checks"
                          : "each use of cached memory asks the kernel (0.3 us): ",
           why == nullptr ? "" : why);
  return 0;
}

bool Monitor::start(bool now) noexcept {
  return state_.start_once(now, [this](const char** reason) { return begin_watching(reason); });
}

// When the stack's mapping began to be watched, the thread may not have run yet: where guard pages divide no
// mappings, it may have been part of another thread's stack's mapping. The wait has a bound, because the
// thread may end in a signal handler that interrupted the mutex's holder.
void Monitor::stack_ends(uintptr_t descriptor) noexcept {
  constexpr int kTries = 300;  // 0.1 s: the holder may wait for a processor
  for (int i = 0; i < kTries; ++i) {
    if (!lock_briefly(watched_.mutex())) continue;
    const RangesLock lock(watched_.mutex(), RangesLock::Adopt::kLocked);
    return stacks_.note_ending(lock, descriptor);
  }
}

void Monitor::show_counters(hydrant_monitor_t* shown) noexcept {
  shown->sequence = sequence_.number();
  shown->removals = removals_.show_newest();
  raw_releases_.show(shown);
}

void Monitor::reset_in_child() noexcept {
  state_.reset_in_child();
  changes_.reset_in_child();
  clients_.reset_in_child();
  userfault_.close();  // the parent's
  mappings_.reset_in_child();
  watched_.reset_in_child();
  stacks_.reset_in_child();
  removals_.reset_in_child();
  deferred_.clear();
  unwatcher_.reset_in_child();
  sequence_.reset_in_child();
}

}  // namespace hydrant
