// Memory of segments in the domain of pinned memory: it stays mapped, so it may be cached without a source of
// release events. Threads: any.
#pragma once

#include <cstddef>

namespace hydrant {

// Vouches for the segment, which stays mapped for the life of the job, so that it may be cached without
// a source of release events.
void vouch_own_segment() noexcept;
// Vouches for memory of a created segment, until forget_segment().
void vouch_segment(void* addr, size_t bytes) noexcept;
// Forgets all registrations of memory of a segment that is being destroyed, and the promise. Polls while
// the network still uses one of them.
void forget_segment(void* addr, size_t bytes) noexcept;

}  // namespace hydrant
