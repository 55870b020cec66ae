// Converts io_uring's errno values to Status with a text that names the remedy.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

#include <cstdint>

namespace hydrant {

// All take a positive errno and never return kOk.

// io_uring_setup() or the sparse table failed when the registrar was created.
Status explain_uring_unusable(int error) noexcept;
// Another ring could not be opened while `live` exist.
Status explain_uring_growth(int error, uint32_t live) noexcept;
// Registering `range` failed. `pending_bytes`: unpinned but still charged.
Status explain_uring_pin(int error, MemoryRange range, uint64_t pending_bytes) noexcept;
// Moving data failed.
Status explain_uring_move(int error, int fd, uint64_t moved_bytes, uint64_t timeout_ns) noexcept;

}  // namespace hydrant
