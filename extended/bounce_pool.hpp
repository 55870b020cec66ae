// The library's own buffers for puts and gets: one pool of HYDRANT_BOUNCE_POOL bytes per process,
// made when it is first needed. Threads: any.
#pragma once

#include "firehose/base/status.hpp"

#include <cstddef>

namespace hydrant {

// The largest buffer: HYDRANT_BOUNCE_MAX, or what the pool has room for; 0 if there is no pool, which a
// warning has explained.
size_t bounce_buffer_bytes() noexcept;
// At most bounce_buffer_bytes(). Polls until there is one, unless `immediate`. Errors: kNotReady; kBroken:
// the job is ending.
struct BounceBuffer {
  void* addr = nullptr;
  const std::byte* key = nullptr;  // of the transport's registrar, if it has one
};
Status take_bounce_buffer(size_t bytes, bool immediate, BounceBuffer* buffer) noexcept;
void give_bounce_buffer(void* buffer) noexcept;

}  // namespace hydrant
