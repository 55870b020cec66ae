// Log lines of a domain at HYDRANT_LOG=info: one when it is created, one when it is destroyed.
#pragma once

#include "firehose/cache/domain.hpp"

namespace hydrant {

// Registrar, mode, budget and limits in force. Cost below the level: one load.
void log_domain_start(const Domain& domain) noexcept;
// Logs the counters. Requires: no other thread is inside a call on the domain; its regions are still pinned.
void log_domain_end(Domain& domain) noexcept;

}  // namespace hydrant
