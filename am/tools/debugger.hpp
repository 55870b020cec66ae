// Signals of the environment that freeze the process or write a backtrace.
#pragma once

namespace hydrant {

// Installs the signals that GASNET_BACKTRACE_SIGNAL and GASNET_FREEZE_SIGNAL name, if any. Errors: an
// unknown name is a fatal error.
void install_debugging_signals() noexcept;

}  // namespace hydrant
