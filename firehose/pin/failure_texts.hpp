// The texts of failures that are found in several places: each cause has one text.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

Status fail_unknown_access(uint32_t access) noexcept;
Status fail_wrapping(MemoryRange range) noexcept;
Status fail_pin_of_parent() noexcept;
Status fail_pin_released() noexcept;
Status fail_rank_exited(uint32_t rank) noexcept;
// Fails because the system has no memory for `what`, which belongs to the request for `requested`.
Status fail_no_memory(const char* domain, MemoryRange requested, const char* what) noexcept;

}  // namespace hydrant
