// Names signals, and installs signal handlers. debugger.cpp, am/job/exit.cpp and clients call it.
#include <hydrant/gasnet/debugging.h>

#include "am/tools/signal_names.hpp"
#include "firehose/base/errno_text.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <strings.h>

namespace hydrant {
namespace {

struct NamedSignal {
  int value;
  const char* name;
};

constexpr auto kSignals = std::to_array<NamedSignal>({
    {SIGHUP, "SIGHUP"},       {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},   {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"},     {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},     {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"},     {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"},   {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"},     {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},   {SIGCHLD, "SIGCHLD"},
    {SIGCONT, "SIGCONT"},     {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},   {SIGTTIN, "SIGTTIN"},
    {SIGTTOU, "SIGTTOU"},     {SIGURG, "SIGURG"},   {SIGXCPU, "SIGXCPU"},   {SIGXFSZ, "SIGXFSZ"},
    {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"}, {SIGIO, "SIGIO"},
    {SIGPWR, "SIGPWR"},       {SIGSYS, "SIGSYS"},
});

}  // namespace

int signal_of_name(const char* name) noexcept {
  for (const NamedSignal& signal : kSignals) {
    if (strcasecmp(signal.name, name) == 0 || strcasecmp(signal.name + 3, name) == 0) {
      return signal.value;
    }
  }
  char* end = nullptr;
  const long value = std::strtol(name, &end, 10);
  return end != name && *end == '\0' && value > 0 && value < NSIG ? static_cast<int>(value) : 0;
}

}  // namespace hydrant

const char* hydrant_tools_signame_fromval(int sigval) {
  for (const auto& signal : hydrant::kSignals) {
    if (signal.value == sigval) return signal.name;
  }
  return "*unknown signal*";
}

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
