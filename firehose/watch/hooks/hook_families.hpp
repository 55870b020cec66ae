// Determines which hooks the process really calls. For the constructor only.
#pragma once

#include <cstdint>

namespace hydrant::hooks {

// HYDRANT_HOOKS_*. Cost: a lookup for each hooked name and one allocation of 33 MiB, freed untouched.
uint32_t working_families();

}  // namespace hydrant::hooks
