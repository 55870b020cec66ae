// Settings for debugging a process: signals that freeze it or write a backtrace, a pause at the start,
// and output before it ends because of an error.
#pragma once

namespace hydrant {

// Installs handlers for the signals in GASNET_BACKTRACE_SIGNAL and GASNET_FREEZE_SIGNAL, if any.
void install_debugging_signals() noexcept;

// Reports names of mechanisms in GASNET_BACKTRACE_TYPE that do not exist, if it is set.
void check_backtrace_type() noexcept;

// Waits for a debugger or SIGCONT if the variable is yes.
void freeze_if_set(const char* variable) noexcept;

// Call it before an error ends the process: waits (GASNET_FREEZE_ON_ERROR) and writes a backtrace
// (GASNET_BACKTRACE). If that is unset, `mentions` prints a hint about it.
//
// Does the work once. Later calls return false: the abort() that follows, another thread, or an error
// inside this function. Another thread first waits until the first thread's freeze is over.
bool show_the_end(bool mentions) noexcept;

}  // namespace hydrant
