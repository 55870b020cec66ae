// Names signals. debugger.cpp, am/exit/exit.cpp, hydrant-info and clients call it.
#include "am/tools/signal_names.hpp"

#include <hydrant/gasnet/debugging.h>

#include <array>
#include <csignal>
#include <cstdlib>
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
