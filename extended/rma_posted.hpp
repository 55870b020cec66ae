// Puts and gets through a transport whose one-sided operations take time: posted as they stand (direct), or
// from and to a buffer of the library (bounce), so that the caller's source is free at once.
#pragma once

#include "extended/rma.hpp"
#include "extended/rma_path.hpp"

namespace hydrant {

// Errors: as transfer(); kUnsupported: the transport does not reach this memory at all, and nothing of it is
// under way.
Status transfer_direct(RmaThread& thread, const Transfer& what, Pieces& pieces) noexcept;
// In pieces of HYDRANT_BOUNCE_MAX; waits for buffers by polling. kUnsupported also if there is no pool.
Status transfer_bounced(RmaThread& thread, const Transfer& what, Pieces& pieces) noexcept;

}  // namespace hydrant
