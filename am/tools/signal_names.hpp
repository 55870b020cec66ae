// Translates signal names to numbers.
#pragma once

namespace hydrant {

// Accepts "SIGUSR1", "USR1" (in either case) or a number; returns 0 for an invalid name.
int signal_of_name(const char* name) noexcept;

}  // namespace hydrant
