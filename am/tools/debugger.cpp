// Freezes the process until a debugger clears a flag or SIGCONT arrives; installs signal handlers. Called at
// start-up, on signals and before fatal exits (fatal.cpp, am/exit/exit.cpp).
#include "am/tools/debugger.hpp"

#include <hydrant/gasnet/debugging.h>
#include <hydrant/gasnet/env.h>
#include <hydrant/gasnet/misc.h>

#include "am/tools/console.hpp"
#include "am/tools/settings.hpp"
#include "am/tools/signal_names.hpp"
#include "firehose/base/errno_text.hpp"
#include "firehose/base/uncancelled.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <unistd.h>

// A debugger clears this flag. Global, so that debuggers find it by its name.
extern "C" __attribute__((visibility("default"))) volatile int hydrant_tools_frozen;
volatile int hydrant_tools_frozen = 0;

namespace hydrant {
namespace {

constexpr long kLookEveryNs = 100'000'000;

// The flag that SIGCONT clears. Written before the handler is installed, so the handler sees it.
volatile int* volatile g_flag = &hydrant_tools_frozen;

void pause_a_little() noexcept { uncancelled::sleep_ns(kLookEveryNs); }

void go_on(int) { __atomic_store_n(g_flag, 0, __ATOMIC_RELAXED); }

void unblock(int signal) noexcept {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
}

void freeze_on_signal(int) {
  const int saved_errno = errno;
  hydrant_tools_freezeForDebuggerNow(&hydrant_tools_frozen, "hydrant_tools_frozen");
  errno = saved_errno;
}

void backtrace_on_signal(int signal) {
  const int saved_errno = errno;
  console_message("Caught a signal", "%s: backtrace follows",
                  hydrant_tools_signame_fromval(signal));
  (void)hydrant_tools_print_backtrace(STDERR_FILENO);
  errno = saved_errno;
}

void install(const char* variable, hydrant_tools_sighandlerfn_t handler) noexcept {
  const char* const name = hydrant_tools_getenv_withdefault(variable, nullptr);
  if (name == nullptr || *name == '\0') return;
  const int signal = signal_of_name(name);
  if (signal == 0) return report_invalid(variable, name, "a signal, such as SIGUSR1");
  (void)hydrant_tools_reghandler(signal, handler);
}

}  // namespace

void install_debugging_signals() noexcept {
  install("GASNET_BACKTRACE_SIGNAL", &backtrace_on_signal);
  install("GASNET_FREEZE_SIGNAL", &freeze_on_signal);
}

void freeze_if_set(const char* variable) noexcept {
  if (read_switch(variable, false))
    hydrant_tools_freezeForDebuggerNow(&hydrant_tools_frozen, "hydrant_tools_frozen");
}

bool show_the_end(bool mentions) noexcept {
  // Relaxed: they order no other data.
  constinit static std::atomic<pid_t> first{0};
  constinit static std::atomic<bool> has_waited{false};
  const pid_t self = ::gettid();
  pid_t before = 0;
  if (!first.compare_exchange_strong(before, self, std::memory_order_relaxed)) {
    // Threads of one process often fail together. The others wait here, so that none ends the process
    // while the first thread is being debugged.
    while (before != self && !has_waited.load(std::memory_order_relaxed)) pause_a_little();
    return false;
  }
  hydrant_tools_freezeForDebuggerErr();
  has_waited.store(true, std::memory_order_relaxed);
  const char* const wish = hydrant_tools_getenv("GASNET_BACKTRACE");
  if (mentions || (wish != nullptr && *wish != '\0'))
    (void)hydrant_tools_print_backtrace_ifenabled(STDERR_FILENO);
  return true;
}

}  // namespace hydrant

hydrant_tools_sighandlerfn_t hydrant_tools_reghandler(int sigtocatch,
                                                      hydrant_tools_sighandlerfn_t fp) {
  struct sigaction wanted = {};
  wanted.sa_handler = fp;
  wanted.sa_flags = SA_RESTART;
  sigemptyset(&wanted.sa_mask);
  struct sigaction before = {};
  if (::sigaction(sigtocatch, &wanted, &before) != 0) {
    hydrant_tools_fatalerror_nopos("cannot install a handler for signal %d (%s): %s", sigtocatch,
                                   hydrant_tools_signame_fromval(sigtocatch),
                                   hydrant::errno_text(errno));
  }
  return before.sa_handler;
}

void hydrant_tools_freezeForDebuggerNow(volatile int* flag, const char* flagsymname) {
  // Relaxed: the writer that clears the flag passes no other data.
  __atomic_store_n(flag, 1, __ATOMIC_RELAXED);
  hydrant::g_flag = flag;
  const auto before = hydrant_tools_reghandler(SIGCONT, &hydrant::go_on);
  hydrant::unblock(SIGCONT);
  hydrant::console_message(
      "Process frozen for debugger",
      "host=%s pid=%d\n    To continue, attach a debugger and set '%s' to 0, or "
      "send SIGCONT",
      hydrant_tools_gethostname(), static_cast<int>(::getpid()), flagsymname);
  while (__atomic_load_n(flag, __ATOMIC_RELAXED) != 0) hydrant::pause_a_little();
  (void)hydrant_tools_reghandler(SIGCONT, before);
}

void hydrant_tools_freezeForDebuggerErr(void) {
  if (!hydrant::is_switched_on(hydrant_tools_getenv("GASNET_FREEZE_ON_ERROR"), false)) return;
  hydrant_tools_freezeForDebuggerNow(&hydrant_tools_frozen, "hydrant_tools_frozen");
}
