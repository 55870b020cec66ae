// The network interfaces of this machine, and the networks that the addresses of ports belong to.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <compare>
#include <cstdint>
#include <string>

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
  // The first byte is one of these. kRoutedRoce: all networks of RoCE version 2 that routers may join.
  enum Link : uint8_t { kInfiniBand, kRoceVersion2, kRoceVersion1, kRoutedRoce };

  std::array<uint8_t, 17> bytes = {};

  auto operator<=>(const NetworkId&) const = default;
};

// The subnet prefix and the LID of the subnet manager: two fabrics may both have the default prefix.
NetworkId infiniband_network(const ibv_gid& gid, uint16_t manager_lid) noexcept;
// The network of an IPv4 address by its netmask, or the upper half of another address.
NetworkId ethernet_network(const ibv_gid& gid, const NetworkInterfaces& interfaces) noexcept;

// The networks that routers may join with `network`, as one: those of RoCE version 2 with addresses of its
// family that are not link-local. All others are joined with none: `network` itself.
NetworkId routed_network(const NetworkId& network) noexcept;
// Whether `whole` is `part`, or the networks that routers may join with it.
bool is_part_of(const NetworkId& part, const NetworkId& whole) noexcept;
// "InfiniBand fe80:: (subnet manager 3)", "RoCE 10.1.0.0".
std::string text_of(const NetworkId& network);

bool is_ipv4(const ibv_gid& gid) noexcept;
bool is_link_local(const ibv_gid& gid) noexcept;

}  // namespace hydrant::ibv
