// Statuses and texts for the errors of the mlock registrar's system calls.
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

namespace hydrant {

// Whether the whole range is mapped.
bool is_mapped(MemoryRange range) noexcept;

// Convert a positive errno of locking, or of populating, a part of `range`.
Status explain_lock(int error, MemoryRange range) noexcept;
Status explain_populate(int error, MemoryRange range, bool writing) noexcept;

// No memory for the counts of the pages.
Status fail_no_counts(MemoryRange range) noexcept;

}  // namespace hydrant
