// Handles SIGSEGV and SIGBUS for faults near segments. attach_segments() installs the handler; it looks the
// address up in rdma/transport/guarded_memory.hpp and then calls the previous handler.
#include "am/segment/memory_faults.hpp"

#include "am/exit/exit.hpp"
#include "am/job/job.hpp"
#include "firehose/base/quiet_write.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/transport/guarded_memory.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>

namespace hydrant {
namespace {

// A signal and its previous handler.
struct CaughtSignal {
  int number;
  struct sigaction before;
  std::atomic<bool> spent;  // a SA_RESETHAND handler has run
};
constinit CaughtSignal g_caught_signals[] = {{SIGSEGV, {}, false}, {SIGBUS, {}, false}};

// Continues as if this handler were not installed: calls the previous handler or the default action.
void go_on(CaughtSignal& caught, siginfo_t* info, void* context) noexcept {
  const struct sigaction& before = caught.before;
  const bool is_once = (static_cast<unsigned>(before.sa_flags) & SA_RESETHAND) != 0;
  const bool is_spent = is_once && caught.spent.exchange(true, std::memory_order_relaxed);
  if ((before.sa_flags & SA_SIGINFO) != 0 && !is_spent)
    return before.sa_sigaction(caught.number, info, context);
  if (before.sa_handler == SIG_IGN && info->si_code <= 0) return;
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN && !is_spent)
    return before.sa_handler(caught.number);
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  sigaction(caught.number, &plain, nullptr);
  // A fault repeats when the handler returns; a signal that was sent does not, so it is raised again.
  if (info->si_code <= 0) raise(caught.number);
}

void on_memory_fault(int number, siginfo_t* info, void* context) {
  const int kept = errno;
  // Positive si_code: the kernel reports a fault at an address.
  if (info->si_code > 0 && !is_forked_child()) {
    char line[512];
    const auto addr = reinterpret_cast<uintptr_t>(info->si_addr);
    size_t bytes = describe_fault(addr, number == SIGBUS, line, sizeof line - 1);
    if (bytes != 0) {
      line[bytes++] = '\n';
      (void)write_quietly(STDERR_FILENO, line, bytes);
    }
  }
  errno = kept;
  for (CaughtSignal& caught : g_caught_signals) {
    if (caught.number == number) go_on(caught, info, context);
  }
  errno = kept;
}

void install(CaughtSignal& caught) noexcept {
  if (!catches_signal(caught.number)) return;
  if (sigaction(caught.number, nullptr, &caught.before) != 0) return;
  struct sigaction action {};
  action.sa_sigaction = on_memory_fault;
  // Flags and mask of the previous handler, because it runs inside this one.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | (caught.before.sa_flags & (SA_NODEFER | SA_RESTART));
  action.sa_mask = caught.before.sa_mask;
  sigaction(caught.number, &action, nullptr);
}

}  // namespace

size_t describe_fault(uintptr_t addr, bool no_memory, char* text, size_t room) noexcept {
  Guarded found;
  if (!find_guarded(addr, &found)) return 0;
  const bool is_inside = found.before == 0 && found.past == 0;
  // A SIGSEGV inside the segment is the client's own mprotect(), a SIGBUS outside is unrelated.
  if (is_inside != no_memory) return 0;
  char owner[64] = "";
  if (found.label.rank != kNoRank)
    (void)snprintf(owner, sizeof owner, " of rank %u", found.label.rank);
  int bytes = 0;
  if (is_inside) {
    bytes = snprintf(
        text, room,
        "*** Rank %u touched %#zx in the %s%s [%#zx, +%zu), and there is no memory left for that "
        "page: the machine, or a limit of shared memory, is exhausted. Touch less of the segments, "
        "lower GASNET_MAX_SEGSIZE, or find out at attach with HYDRANT_SEGMENT_COMMIT=y",
        hydrant_job_info.rank, static_cast<size_t>(addr), found.label.what, owner,
        static_cast<size_t>(found.start), found.bytes);
  } else {
    bytes = snprintf(text, room,
                     "*** Rank %u touched %#zx, %zu byte%s %s of the %s%s [%#zx, +%zu): that "
                     "memory is unmapped. "
                     "A put, get, Long or pointer overruns",
                     hydrant_job_info.rank, static_cast<size_t>(addr), found.past + found.before,
                     found.past + found.before == 1 ? "" : "s",
                     found.past != 0 ? "past the end" : "before the start", found.label.what, owner,
                     static_cast<size_t>(found.start), found.bytes);
  }
  if (bytes < 0) return 0;
  return static_cast<size_t>(bytes) < room ? static_cast<size_t>(bytes) : room - 1;
}

void catch_memory_faults() noexcept {
  static constinit std::atomic<bool> is_done{false};
  if (is_done.exchange(true, std::memory_order_relaxed)) return;
  for (CaughtSignal& caught : g_caught_signals) install(caught);
}

}  // namespace hydrant
