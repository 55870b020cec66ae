// A cache that records pins and invalidations in a trace.
#pragma once

#include "tests/stale/hunt/cache.hpp"
#include "tests/stale/trace/trace_log.hpp"

#include <memory>

namespace hydrant::stale {

// Records pins, announcements, and the monitor's notifications while the object lives. Not for hunts with
// bystanders: their pins could be recorded after the memory was released.
std::unique_ptr<Cache> make_recording_cache(Cache& cache, TraceLog& log);

}  // namespace hydrant::stale
