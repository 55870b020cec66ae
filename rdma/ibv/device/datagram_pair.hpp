// Creates a queue pair of type UD, by which processes meet. Set-up and hydrant-info try one on each device,
// because no attribute of a device says whether it has them.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/device/verbs_objects.hpp"

#include <cstdint>

namespace hydrant::ibv {

// Datagrams for handshakes: those that can arrive and those that can be under way at once.
inline constexpr uint32_t kDatagramReceives = 128;
inline constexpr uint32_t kDatagramSends = 32;

// Creates the queue pair, not started, and its completion queue. Errors: kUnsupported: the device has no
// datagrams; kResource.
Status create_datagram_pair(const Port& port, ibv_comp_channel* channel,
                            CompletionQueue* completions, QueuePair* pair) noexcept;

// Creates one and destroys it. kOk also if there is no room for it now, which says nothing about the device.
// Errors: kUnsupported.
Status try_datagrams(const Port& port) noexcept;

}  // namespace hydrant::ibv
