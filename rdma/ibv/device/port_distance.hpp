// How far a verbs device is from the processors of this process, and whether two ports are on one network:
// what a port is chosen by where nobody has named one.
//
// The distance is the machine's own measure between memory nodes (ACPI's: 10 is the same node), as the kernel
// tells it in /sys; nothing else is linked for it.
#pragma once

#include "rdma/ibv/device/ibv_port.hpp"

#include <cstdint>

namespace hydrant::ibv {

inline constexpr uint32_t kUnknownDistance = UINT32_MAX;

// The mean over the processors that the calling thread may run on, rounded; kUnknownDistance where the kernel
// does not say where the device or the processors are. `root` is put before /sys, for tests.
// Cost: some small files.
uint32_t distance_to(const char* device, const char* root) noexcept;

// As far as can be told without asking the network: the same kind of link; on InfiniBand the same subnet
// prefix; on Ethernet addresses of one kind in the same network, by the interface's netmask.
bool is_same_network(const Port& one, const Port& other) noexcept;

}  // namespace hydrant::ibv
