// An open device, one of its ports with its address (GID), and the limits of both. ibv_port_choice.hpp says
// which of the machine's ports a process uses.
#pragma once

#include "firehose/base/status.hpp"
#include "firehose/base/uncancelled.hpp"
#include "firehose/registrars/ibv/ibv_device.hpp"
#include "rdma/transport/pinned_operations.hpp"

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

namespace hydrant::ibv {

struct Port {
  OpenDevice device;
  DeviceDescriptors descriptors;
  char name[64] = "";
  uint8_t number = 0;
  bool is_ethernet = false;  // RoCE: addressed by GID alone
  // rxe and siw, which are software below libibverbs: ibv_post_send() makes a system call, write(2).
  bool posts_by_call = false;
  uint16_t lid = 0;
  uint16_t manager_lid = 0;  // of the subnet manager
  uint32_t rate_mbps = 0;    // of the link, nominal; 0: not known
  bool needs_grh = false;    // packets to it have a global header
  uint8_t gid_index = 0;
  uint8_t gid_version = 0;  // of RoCE; 0: InfiniBand
  ibv_gid gid = {};
  uint16_t pkey_index = 0;
  uint16_t pkey = 0;  // 0: not known
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;  // of packets with a global header over Ethernet
  ibv_mtu mtu = IBV_MTU_256;
  uint32_t max_message_bytes = 0;
  // Limits of the device:
  uint32_t max_completions = 0;  // entries of one completion queue
  uint32_t max_receives = 0;     // entries of one shared receive queue; 0: it has none
  uint32_t max_sends = 0;      // entries of one send queue, and of a queue pair's own receive queue
  uint32_t max_reads_in = 1;   // RDMA reads and atomics under way at once, as their target
  uint32_t max_reads_out = 1;  // ... and as their initiator
  uint32_t max_queue_pairs = 0;
  uint8_t max_retries = 0;  // how often a packet is sent again, at most
  ibv_atomic_cap atomics = IBV_ATOMIC_NONE;
  PutOrder order = PutOrder::kOrdered;  // of RDMA writes
  int completion_vector = 0;            // of the completion queues of this process
};

class PortList;
struct NetworkId;

struct PortSettings {
  uint16_t pkey = 0;  // the partition; 0: the first of which the port is a full member
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;           // over Ethernet
  std::optional<PutOrder> order = {};  // instead of what is assumed for the adapter
  // Ports that the process does not choose by itself: with them set-up has failed. May be null.
  const PortList* failed = nullptr;
  // If it is not null, the process chooses only ports that are on this network by itself.
  const NetworkId* network = nullptr;
  const char* root = "";  // put before /sys, for tests
};

inline constexpr uint32_t kAny = UINT32_MAX;
// A process uses at most this number of ports at once.
inline constexpr uint32_t kMaxRails = 4;

// Opens a device and reads what all its ports have in common. *ports: their number. Errors: kUnsupported,
// with the reason: among others, the device is neither InfiniBand nor RoCE, or has no datagrams.
Status open_port_device(const char* name, Port* port, uint32_t* ports) noexcept;
// Reads port `number` of the open device, with the GID at `gid_index` or, with kAny, the best one. Errors:
// kUnsupported, with the reason why the port cannot be used; *port has what could be read nevertheless.
Status read_port(uint32_t number, uint32_t gid_index, const PortSettings& settings,
                 Port* port) noexcept;

// Calls ibv_post_send(). Where that makes a system call, cancellation is disabled: a thread that is cancelled
// in it would keep the lock of the queue.
inline int post_send(const Port& port, ibv_qp* queue, ibv_send_wr* first,
                     ibv_send_wr** bad) noexcept {
  if (!port.posts_by_call) [[likely]]
    return ibv_post_send(queue, first, bad);
  (void)port.descriptors.keep_commands(port.device.context);
  return uncancelled::call(ibv_post_send, queue, first, bad);
}

}  // namespace hydrant::ibv
