// Judges a trace: whether an invalidation followed every release of cached memory in time.
#pragma once

#include "tests/stale/trace/trace_log.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace hydrant::stale {

struct TraceVerdict {
  size_t pins = 0, invalidations = 0;
  size_t calls = 0;                      // calls that release memory
  size_t calls_on_kept = 0;              // part of them on memory that a cache kept
  size_t explained = 0;                  // an invalidation came before the next pin
  size_t undecided = 0;                  // growing moves that may have stayed in place
  size_t incomplete = 0;                 // records that were never completed
  std::vector<std::string> unexplained;  // texts of the first ones
};

TraceVerdict judge(const TraceLog& log);

}  // namespace hydrant::stale
