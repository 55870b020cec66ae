// Chooses the ports that a process uses.
//
// HYDRANT_IBV_PORTS names the ports to use, in order of preference: items DEVICE[:PORT[:GID]] separated by
// commas, "*" for any device. An item that matches several ports stands for all of them. Ports that cannot be
// used are skipped.
//
// Without the knob a process uses one port, the best by the order of port_rank.hpp. Of the fastest ports on
// one network that is the one nearest to the processors that this process may run on. So all ranks of a node
// with the same binding use the same port, and no rank uses a port from which its peers might be unreachable.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/ibv/device/ibv_port.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace hydrant::ibv {

// Ports by name.
class PortList {
 public:
  // False: there is no room.
  bool add(const Port& port) noexcept;
  bool has(const Port& port) const noexcept;

 private:
  static constexpr uint32_t kMax = 16;

  struct {
    char name[64];
    uint8_t number;
  } all_[kMax] = {};
  uint32_t count_ = 0;
};

// The chosen ports. Ports of one device share its context and protection domain.
struct Ports {
  Port all[kMaxRails];
  uint32_t count = 0;
  // The devices that processes of this machine may use, as far as this one can tell: where none is named,
  // those that are as good as the chosen one, but for the distance.
  uint32_t adapters = 0;

  // Must precede calls of libibverbs that use descriptors. False: the program has closed a descriptor; see
  // DeviceDescriptors.
  bool keep_descriptors() const noexcept {
    bool all_kept = true;
    for (uint32_t i = 0; i < count; ++i)
      all_kept &= all[i].descriptors.keep_ours(all[i].device.context);
    return all_kept;
  }
};

// An item of HYDRANT_IBV_PORTS that adds no port.
struct PassedBy {
  std::string item;
  std::string reason;
};

// Opens the ports that `wanted` names, at most `most`, all with the link layer of the first; "" means the
// best one. *passed_by: the items that add no port, if it is not null. Errors: kUnsupported: none of them can
// be used, with the reason for the first one tried; kBadArg: `wanted` has the wrong syntax. *ports is
// unchanged on failure.
Status open_ports(const char* wanted, uint32_t most, Ports* ports,
                  const PortSettings& settings = {},
                  std::vector<PassedBy>* passed_by = nullptr) noexcept;
// Opens the first port that open_ports() would open.
Status open_port(const char* wanted, Port* port, const PortSettings& settings = {}) noexcept;
// Closes the device of each port, once per device.
void close_ports(const Ports& ports) noexcept;

// Reports every port of every device for hydrant-info, and whether open_ports() chooses it. The devices are
// closed again.
struct PortReport {
  Port port;  // without an open device; as far as it could be read
  bool is_usable = false;
  std::string reason;      // why it is not
  uint32_t distance = 0;   // kUnknownDistance: not known
  bool on_demand = false;  // its adapter can page for puts and gets
  bool is_chosen = false;
  uint32_t place = 0;    // among the chosen, from 0
  std::string left_out;  // why it is not chosen although it can be used
};
struct PortReports {
  std::vector<PortReport> all;
  std::vector<PassedBy> passed_by;
  std::string why;  // why none is chosen
};
// Only reads the ports, and chooses none.
PortReports list_ports(const PortSettings& settings);
PortReports report_ports(const char* wanted, uint32_t most, const PortSettings& settings = {});
// Logs at level info why each port that open_ports() would not choose is not used. Opens all devices again.
void log_unused_ports(const char* wanted, uint32_t most, const PortSettings& settings);

}  // namespace hydrant::ibv
