// A device, a port of it and the port's address (GID), and what that port can do. Which ports a process
// takes of those that there are: ibv_port_choice.hpp.
#pragma once

#include "firehose/base/cancellation.hpp"
#include "firehose/base/status.hpp"
#include "rdma/ibv/device/ibv_device.hpp"

#include <infiniband/verbs.h>

#include <cstdint>

namespace hydrant::ibv {

struct Port {
  OpenDevice device;
  DeviceDescriptors descriptors;
  char name[64] = "";
  uint8_t number = 0;
  bool is_ethernet = false;  // RoCE: addressed by GID alone
  // Software below libibverbs, rxe and siw: requests are handed over by write(2).
  bool posts_by_call = false;
  uint16_t lid = 0;
  uint8_t gid_index = 0;
  ibv_gid gid = {};
  ibv_mtu mtu = IBV_MTU_256;
  uint32_t max_message_bytes = 0;
  // Of the device.
  uint32_t max_completions = 0;  // entries of one completion queue
  uint32_t max_receives = 0;     // entries of one shared receive queue
  uint32_t max_sends = 0;        // entries of one send queue
  uint32_t max_reads_in = 1;     // RDMA reads and atomics under way at once, as their target
  uint32_t max_reads_out = 1;    // ... and as their initiator
  uint32_t max_queue_pairs = 0;
  ibv_atomic_cap atomics = IBV_ATOMIC_NONE;
};

inline constexpr uint32_t kAny = UINT32_MAX;
// So many ports are used at once, at most.
inline constexpr uint32_t kMaxRails = 4;

// Opens a device and asks it what all its ports have in common, and how many these are. Errors:
// kUnsupported, with the reason.
Status open_port_device(const char* name, Port* port, uint32_t* ports) noexcept;
// Port `number` of the open device, by the GID `gid_index` or, with kAny, the best. Errors: kUnsupported,
// with the reason why it cannot be talked by; what is known of it is in *port all the same.
Status read_port(uint32_t number, uint32_t gid_index, Port* port) noexcept;

// ibv_post_send(). Where that is a system call a thread could be cancelled in it, with the queue's lock held.
inline int post_send(const Port& port, ibv_qp* queue, ibv_send_wr* first,
                     ibv_send_wr** bad) noexcept {
  if (!port.posts_by_call) [[likely]]
    return ibv_post_send(queue, first, bad);
  const CancellationDisabled guard;
  (void)port.descriptors.keep_ours(port.device.context);
  return ibv_post_send(queue, first, bad);
}

// For RoCE: how good a GID is, 0 for none. Version 2 (routable, by UDP) before version 1; an IPv4 address
// before a global one of IPv6 before a link-local one, which needs more than an address to be reached.
uint32_t rate_gid(const ibv_gid& gid, bool is_version_2) noexcept;

}  // namespace hydrant::ibv
