// Which ports a process talks by.
//
// HYDRANT_IBV_PORTS names what may be taken, in this order: DEVICE[:PORT[:GID]], several separated by commas,
// "*" for any device; what stands for several ports stands for all of them. Ports that cannot be used are
// passed by.
//
// Without it: one port, the nearest to the processors that this process may run on, of those on the same
// network as the first that can be used; of equally near ones the first. So all ranks of a node that are
// bound alike use one port, and no rank is given a port from which it is not known that others are reached.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/device/ibv_port.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::ibv {

// Those of one device share its context and protection domain.
struct Ports {
  Port all[kMaxRails];
  uint32_t count = 0;

  // Before calls of libibverbs that use descriptors. False: the program has closed one; see
  // DeviceDescriptors.
  bool keep_descriptors() const noexcept {
    bool all_kept = true;
    for (uint32_t i = 0; i < count; ++i)
      all_kept &= all[i].descriptors.keep_ours(all[i].device.context);
    return all_kept;
  }
};

// Opens what `wanted` names, at most `most` ports, all with the link layer of the first; "" is the nearest.
// Errors: kUnsupported: nothing that it names can be used, with the reason for the last one tried; kBadArg:
// `wanted` makes no sense. *ports is unchanged on failure. `root` is put before /sys, for tests.
Status open_ports(const char* wanted, uint32_t most, Ports* ports, const char* root = "") noexcept;
// The first of these.
Status open_port(const char* wanted, Port* port, const char* root = "") noexcept;
// Each device once.
void close_ports(const Ports& ports) noexcept;

// Every port of every device, for people, and what open_ports() makes of it. Their devices are closed again.
struct PortReport {
  Port port;  // without an open device; as far as it could be asked
  bool is_usable = false;
  std::string reason;      // why it is not
  uint32_t distance = 0;   // kUnknownDistance: not known
  bool on_demand = false;  // its adapter can page for puts and gets
  bool is_chosen = false;
  uint32_t place = 0;    // among the chosen, from 0
  std::string left_out;  // why it is not chosen although it can be used
};
struct PortReports {
  // An item of the knob by which no port can be had.
  struct PassedBy {
    std::string item;
    std::string reason;
  };
  std::vector<PortReport> all;
  std::vector<PassedBy> passed_by;
  std::string why;  // why none is chosen
};
PortReports report_ports(const char* wanted, uint32_t most, const char* root = "");

}  // namespace hydrant::ibv
