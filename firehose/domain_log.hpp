// What a domain says of itself at HYDRANT_LOG=info: one line at its beginning, one at its end.
#pragma once

#include "firehose/domain.hpp"

namespace hydrant {

// Registrar, mode, budget and limits in force. Cost below the level: one load.
void log_domain_start(const Domain& domain) noexcept;
// The counters. Requires: nobody else inside a call on the domain, its regions not yet unpinned.
void log_domain_end(Domain& domain) noexcept;

}  // namespace hydrant
