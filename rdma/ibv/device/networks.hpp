// The network interfaces of this machine, and the networks that the addresses of ports belong to.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <compare>
#include <cstdint>

struct ifaddrs;

namespace hydrant::ibv {

// Holds the list of all network interfaces as it was when this was made. Cost: a few system calls.
class NetworkInterfaces {
 public:
  NetworkInterfaces() noexcept;
  ~NetworkInterfaces();
  NetworkInterfaces(const NetworkInterfaces&) = delete;
  NetworkInterfaces& operator=(const NetworkInterfaces&) = delete;

  // The netmask of the interface that has this IPv4 address; one of 24 bits if none has it.
  uint32_t netmask_of(uint32_t address) const noexcept;
  // kGone: it is down, or not in this network namespace. 0 is the index of an interface that is not known.
  enum class State : uint8_t { kGone, kUnknown, kUp };
  State state_of(uint32_t index) const noexcept;
  // Whether the interface is a VLAN, or another one on top of an interface. `root` is put before /sys, for
  // tests.
  bool is_virtual(uint32_t index, const char* root) const noexcept;

 private:
  const ifaddrs* find(uint32_t index) const noexcept;

  ifaddrs* all_ = nullptr;
};

// Equal for ports that seem to be on one network; the order is the same on all nodes.
struct NetworkId {
  std::array<uint8_t, 17> bytes = {};

  auto operator<=>(const NetworkId&) const = default;
};

// The subnet prefix and the LID of the subnet manager: two fabrics may both have the default prefix.
NetworkId infiniband_network(const ibv_gid& gid, uint16_t manager_lid) noexcept;
// The network of an IPv4 address by its netmask, or the upper half of another address.
NetworkId ethernet_network(const ibv_gid& gid, const NetworkInterfaces& interfaces) noexcept;

bool is_ipv4(const ibv_gid& gid) noexcept;

}  // namespace hydrant::ibv
