// Finds other libraries of the process: the monitor of a pin cache, and jemalloc. Two sources implement it:
// the shared library queries the dynamic linker; the static library may be in a program without one.
//
// Call these without any lock: the dynamic linker holds its lock while constructors run, and constructors may
// allocate.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/watch/arena/jemalloc/jemalloc_abi.hpp"

#include <cstddef>

namespace hydrant::arena {

// Null if there is none yet.
const hydrant_monitor_t* find_monitor_symbol() noexcept;

// Null if unavailable; `reason` then has the cause, in at most `room` bytes.
const JemallocTable* find_jemalloc(char* reason, size_t room) noexcept;

}  // namespace hydrant::arena
