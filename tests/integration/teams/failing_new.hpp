// Allocations that fail: the library allocates by operator new(std::nothrow) alone.
#pragma once

#include <cstdint>

// The allocation that fails, counted from the next one; negative: none.
void fail_allocation(int64_t number);
// True if it has failed.
bool has_allocation_failed();
