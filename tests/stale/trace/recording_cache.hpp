// A cache that notes in a trace what is pinned and what is forgotten.
#pragma once

#include "tests/stale/hunt/cache.hpp"
#include "tests/stale/trace/trace_log.hpp"

#include <memory>

namespace hydrant::stale {

// Notes pins, announcements, and all that the process's monitor tells its caches while the object lives.
// Bystanders are not wanted: their pins may be noted after the memory has gone.
std::unique_ptr<Cache> make_recording_cache(Cache& cache, TraceLog& log);

}  // namespace hydrant::stale
