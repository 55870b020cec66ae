// Texts for the log: whether the hooks free hits of checks in this process.
#pragma once

#include "firehose/watch/hooks_abi.h"

namespace hydrant {

// The cause of checked hits and the remedy; nullptr where hits are free. `hooks` is the hooks' object,
// nullptr where the process has none; `ours`: it has this copy's monitor.
const char* hit_check_reason(const hydrant_hooks_t* hooks, bool ours) noexcept;

}  // namespace hydrant
