// Converts io_uring's errno values to Status with a text that names the remedy.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"
#include "firehose/registrars/uring/uring_ring.hpp"

#include <cstdint>

namespace hydrant {

// These never return kOk.

// The call failed when the registrar was created.
Status explain_uring_unusable(const UringFailure& failure) noexcept;
// Another ring could not be opened while `live` exist.
Status explain_uring_growth(const UringFailure& failure, uint32_t live) noexcept;
// Registering `range` failed with this positive errno. `pending_bytes`: unpinned but still charged.
Status explain_uring_pin(int error, MemoryRange range, uint64_t pending_bytes) noexcept;
// Moving data failed.
Status explain_uring_move(const UringMoveEnd& end, int fd, uint64_t timeout_ns) noexcept;

}  // namespace hydrant
