// What else is in this process: the monitor of a pin cache, and jemalloc. Two files implement this: one
// for the shared library, which asks the dynamic linker, one for the static library, which may be in a
// program without one.
//
// Neither function may be called with a lock held: the dynamic linker's lock is held while constructors
// run, and these may allocate.
#pragma once

#include <hydrant/monitor.h>

#include "firehose/watch/arena/jemalloc/jemalloc_abi.hpp"

#include <cstddef>

namespace hydrant::arena {

// Null while there is none.
const hydrant_monitor_t* find_monitor_symbol() noexcept;

// Null if it is not to be had, and then why, in at most `room` bytes.
const JemallocTable* find_jemalloc(char* reason, size_t room) noexcept;

}  // namespace hydrant::arena
