// Texts for the log: why hits are checked in this process.
#pragma once

#include "firehose/watch/hooks_abi.h"

namespace hydrant {

// The cause of checked hits and the remedy; nullptr if hits are free of checks. `hooks`: the hooks' object,
// nullptr if the process has none. `ours`: that object uses this copy's monitor.
const char* hit_check_reason(const hydrant_hooks_t* hooks, bool ours) noexcept;

}  // namespace hydrant
