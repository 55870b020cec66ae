// The library's own buffers for puts and gets: one pool of HYDRANT_BOUNCE_POOL bytes per process,
// created on first use. Threads: any.
#pragma once

#include "firehose/base/status.hpp"

#include <cstddef>

namespace hydrant {

// The largest buffer in bytes: HYDRANT_BOUNCE_MAX or less, as the pool allows; 0 if there is no pool,
// which a warning has explained.
size_t bounce_buffer_bytes() noexcept;
// Takes a buffer of at least `bytes` bytes, at most bounce_buffer_bytes(). Polls until a buffer is
// free, unless `immediate`. Errors: kNotReady; kBroken: the job is ending.
struct BounceBuffer {
  void* addr = nullptr;
  const std::byte* key = nullptr;  // registration key, if the transport's registrar has keys
};
Status take_bounce_buffer(size_t bytes, bool immediate, BounceBuffer* buffer) noexcept;
void release_bounce_buffer(void* buffer) noexcept;

}  // namespace hydrant
