// Hunts in this library's cache: in one domain, or in rounds of different settings with a domain each.
#pragma once

#include "tests/stale/hunt/hunt.hpp"
#include "tests/stale/hunt/hydrant_cache.hpp"

#include <string>

namespace hydrant::stale {

// *error: the reason if the cache is unavailable, else "".
HuntResult run_one_round(const HuntOptions& options, const HydrantCacheOptions& cache,
                         std::string* error);

// Repeats until the options' limit: as given, in the other mode, with few slots and bystanders that are
// stopped anywhere, with a budget that is always full.
HuntResult run_mixed_rounds(const HuntOptions& options, const HydrantCacheOptions& cache,
                            std::string* error);

}  // namespace hydrant::stale
