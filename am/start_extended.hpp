// The one call upwards: what stands above the core API makes itself ready, before any rank may send.
#pragma once

#include "firehose/base/status.hpp"

namespace hydrant {

// Defined in extended/. Called once per process, when rank, size and transport are there.
Status start_extended() noexcept;

}  // namespace hydrant
