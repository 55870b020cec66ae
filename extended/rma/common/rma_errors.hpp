// Reports a put, get or atomic operation that failed: HYDRANT_ON_FAULT says whether its call returns.
#pragma once

#include "firehose/base/status.hpp"

namespace hydrant {

// Final step of every call that can fail. Depending on HYDRANT_ON_FAULT it ends the job, with a line
// that names the rank and the call, or returns the code; `returns` is the meaning of "auto". kNotReady
// is always returned.
int return_or_abort(Status status, const char* call, bool returns = false) noexcept;

// True if errors are returned instead of ending the job, for a call for which "auto" means `returns`.
bool is_fault_returned(bool returns) noexcept;

}  // namespace hydrant
