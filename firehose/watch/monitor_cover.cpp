// Decides whether memory may be cached. WatchLink calls it in step 5 of "Tour: a miss with eviction".
#include "firehose/watch/monitor.hpp"
#include "firehose/watch/mutant.hpp"

namespace hydrant {

uint32_t Monitor::cover(MemoryRange range, uint32_t flags) noexcept {
  if (!range.valid() || range.last() >> 47 != 0) return HYDRANT_COVER_NONE;
  const bool only_kept = (flags & HYDRANT_COVER_ONLY_KEPT_ARENAS) != 0;
  const bool only_arenas = only_kept || (flags & HYDRANT_COVER_ONLY_ARENAS) != 0;
  if (arenas_.cover(range, only_kept)) {
    const bool reported = !only_arenas && (flags & HYDRANT_COVER_REPORTED_ARENAS) != 0;
    if (reported && !arenas_.cover(range, true) && start(false)) (void)mappings_.watch(range);
    return HYDRANT_COVER_ARENA;
  }
  if (only_arenas) return HYDRANT_COVER_NONE;
  if (is_mutant(Mutant::kUnwatched)) return HYDRANT_COVER_WATCHED;
  if (!start(false) || !mappings_.watch(range)) return HYDRANT_COVER_NONE;
  if (removals_.under_way(range)) return HYDRANT_COVER_NONE;
  const bool is_free = hooked_calls_.are_complete() && !raw_releases_.are_hits_checked();
  return is_free && !hooked_calls_.is_in_libc_heap(range) ? HYDRANT_COVER_WATCHED
                                                          : HYDRANT_COVER_CHECKED;
}

}  // namespace hydrant
