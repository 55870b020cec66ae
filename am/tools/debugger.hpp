// What the environment asks for so that people can look into a process: signals that freeze it or write a
// backtrace, a pause at the start, and what comes before it dies of an error.
#pragma once

namespace hydrant {

// Installs the signals that GASNET_BACKTRACE_SIGNAL and GASNET_FREEZE_SIGNAL name, if any. Errors: an
// unknown name is a fatal error.
void install_debugging_signals() noexcept;

// Waits for a debugger, or for SIGCONT, if `variable` says yes. Errors: neither yes nor no is fatal.
void freeze_if_set(const char* variable) noexcept;

// For a process that is about to die of an error: waits (GASNET_FREEZE_ON_ERROR) and writes a backtrace
// (GASNET_BACKTRACE; where it is not set, `mentions` says so). False: the second time, which is the abort()
// that follows, another thread, or an error in here: nothing is done, and another thread waits while the
// first one waits.
bool show_the_end(bool mentions) noexcept;

}  // namespace hydrant
