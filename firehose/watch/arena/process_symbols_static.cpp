// Finds the monitor for the static library, by a weak symbol; an archive has no jemalloc. Backend::choose()
// calls it.
#include "firehose/watch/arena/process_symbols.hpp"

#include <cstdio>

// Defined if the program links libfirehose, statically or dynamically.
#pragma weak hydrant_monitor

namespace hydrant::arena {

const hydrant_monitor_t* find_monitor_symbol() noexcept {
  return hydrant_monitor == nullptr ? nullptr : hydrant_monitor(HYDRANT_MONITOR_VERSION);
}

const JemallocTable* find_jemalloc(char* reason, size_t room) noexcept {
  // An archive could not hide jemalloc's malloc.
  (void)std::snprintf(
      reason, room, "libhydrant_alloc.a does not contain jemalloc: link the shared library for it");
  return nullptr;
}

}  // namespace hydrant::arena
