// Whether every call that released memory which a cache kept was followed by an invalidation in time.
#pragma once

#include "tests/stale/trace/trace_log.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace hydrant::stale {

struct TraceVerdict {
  size_t pins = 0, invalidations = 0;
  size_t calls = 0;          // that release memory
  size_t calls_on_kept = 0;  // of them, memory that a cache kept
  size_t explained =
      0;  // of them, those that an invalidation followed before the memory was pinned again
  size_t undecided = 0;                  // growing moves that may have stayed where they were
  size_t incomplete = 0;                 // records that were never finished
  std::vector<std::string> unexplained;  // the first ones, in words
};

TraceVerdict judge(const TraceLog& log);

}  // namespace hydrant::stale
