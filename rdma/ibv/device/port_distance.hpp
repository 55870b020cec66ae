// Measures how far a verbs device is from the processors of this process. That helps to choose a port where
// HYDRANT_IBV_PORTS names none.
//
// The distance is that of ACPI between NUMA nodes (10: the same node), which the kernel shows in /sys. So no
// further library is needed.
#pragma once

#include <cstdint>

namespace hydrant::ibv {

inline constexpr uint32_t kUnknownDistance = UINT32_MAX;

// Returns the mean over the processors that the calling thread may run on, rounded; kUnknownDistance if the
// kernel does not show the node of the device or of the processors. `root` is put before /sys, for tests.
// Cost: reads some small files.
uint32_t distance_to(const char* device, const char* root) noexcept;

}  // namespace hydrant::ibv
