// Signals by name.
#pragma once

namespace hydrant {

// "SIGUSR1", "USR1", in either case, or a number; 0 for what is no signal.
int signal_of_name(const char* name) noexcept;

}  // namespace hydrant
