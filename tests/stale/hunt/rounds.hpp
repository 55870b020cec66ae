// A hunt of our own cache: in one domain, or in rounds of different settings, each in a domain of its own.
#pragma once

#include "tests/stale/hunt/hunt.hpp"
#include "tests/stale/hunt/hydrant_cache.hpp"

#include <string>

namespace hydrant::stale {

// *error: why there is no such cache here; "" otherwise.
HuntResult run_one_round(const HuntOptions& options, const HydrantCacheOptions& cache,
                         std::string* error);

// Until the options' end: as said, in the other mode, with few places and bystanders that are stopped
// anywhere, with a budget that is always full, and from the start again.
HuntResult run_mixed_rounds(const HuntOptions& options, const HydrantCacheOptions& cache,
                            std::string* error);

}  // namespace hydrant::stale
