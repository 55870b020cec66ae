// Which device, port and address (GID) this process talks by, and what that port can do.
//
// HYDRANT_IBV_PORTS names what may be taken, in the order of preference: DEVICE[:PORT[:GID]], several
// separated by commas, "*" for any device. Without it: the first port that is up. The first that works is
// taken; several ports at once (rails) are not there yet.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/ibv_device.hpp"

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::ibv {

struct Port {
  OpenDevice device;
  char name[64] = "";
  uint8_t number = 0;
  bool is_ethernet = false;  // RoCE: addressed by GID alone
  uint16_t lid = 0;
  uint8_t gid_index = 0;
  ibv_gid gid = {};
  ibv_mtu mtu = IBV_MTU_256;
  uint32_t max_message_bytes = 0;
  // Of the device.
  uint32_t max_completions = 0;  // entries of one completion queue
  uint32_t max_receives = 0;     // entries of one shared receive queue
  uint32_t max_sends = 0;        // entries of one send queue
  uint32_t max_reads_in = 1;     // RDMA reads under way at once, as their target
  uint32_t max_reads_out = 1;    // ... and as their initiator
  uint32_t max_queue_pairs = 0;
};

// Opens what `wanted` names; "" is any. Errors: kUnsupported: nothing that it names can be used, with the
// reason for the last one tried; kBadArg: `wanted` makes no sense. *port is unchanged on failure.
Status open_port(const char* wanted, Port* port) noexcept;

// Every port of every device, for people: what open_port() finds of it when nothing else is asked for. Their
// devices are closed again. Empty with *why where there is none.
struct PortReport {
  Port port;  // without an open device; as far as it could be asked
  bool is_usable = false;
  std::string reason;  // why it is not
};
std::vector<PortReport> list_ports(std::string* why);

// For RoCE: how good a GID is, 0 for none. Version 2 (routable, by UDP) before version 1; an IPv4 address
// before a global one of IPv6 before a link-local one, which needs more than an address to be reached.
uint32_t rate_gid(const ibv_gid& gid, bool is_version_2) noexcept;

}  // namespace hydrant::ibv
