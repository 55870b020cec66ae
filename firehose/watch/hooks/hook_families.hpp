// Determines which hooks the process really calls. For the constructor only.
#pragma once

#include <cstdint>

namespace hydrant::hooks {

// HYDRANT_HOOKS_*. `malloc_fault`: why the malloc family is missing, if a trial has shown it; else unchanged.
// Cost: a lookup for each hooked name and allocations of 33 MiB, freed untouched.
uint32_t working_families(const char** malloc_fault);

}  // namespace hydrant::hooks
