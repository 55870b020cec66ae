#include "firehose/watch/arena/process_symbols.hpp"

#include <cstdio>

// There if the program links libfirehose, in whichever way.
#pragma weak hydrant_monitor

namespace hydrant::arena {

const hydrant_monitor_t* find_monitor_symbol() noexcept {
  return hydrant_monitor == nullptr ? nullptr : hydrant_monitor(HYDRANT_MONITOR_VERSION);
}

const JemallocTable* find_jemalloc(char* reason, size_t room) noexcept {
  // Its malloc could not be hidden in an archive.
  (void)std::snprintf(reason, room, "libhydrant_alloc.a has no jemalloc; the shared library has");
  return nullptr;
}

}  // namespace hydrant::arena
