// Computes the network of a GID. port_rank.cpp calls it to keep the ranks of a job on one network.
#include "rdma/ibv/device/network_id.hpp"

#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <ifaddrs.h>
#include <iterator>
#include <netinet/in.h>

namespace hydrant::ibv {
namespace {

constexpr uint32_t kDefaultNetmask = 0xffffff00;
constexpr size_t kPrefixBytes = 8;

uint32_t ipv4_of(const ibv_gid& gid) noexcept {
  uint32_t address = 0;
  std::memcpy(&address, gid.raw + 12, sizeof address);
  return ntohl(address);
}

// Returns the netmask of the interface that has the address.
uint32_t netmask_of(uint32_t address) noexcept {
  ifaddrs* all = nullptr;
  uint32_t mask = kDefaultNetmask;
  if (uncancelled::getifaddrs(&all) != 0) return mask;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_netmask == nullptr ||
        entry->ifa_addr->sa_family != AF_INET)
      continue;
    sockaddr_in own{};
    sockaddr_in bits{};
    std::memcpy(&own, entry->ifa_addr, sizeof own);
    std::memcpy(&bits, entry->ifa_netmask, sizeof bits);
    if (ntohl(own.sin_addr.s_addr) == address) mask = ntohl(bits.sin_addr.s_addr);
  }
  freeifaddrs(all);
  return mask;
}

}  // namespace

bool is_ipv4(const ibv_gid& gid) noexcept {
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(std::begin(kMapped), std::end(kMapped), gid.raw);
}

NetworkId infiniband_network(const ibv_gid& gid, uint16_t manager_lid) noexcept {
  NetworkId network;
  std::copy_n(gid.raw, kPrefixBytes, network.bytes.begin() + 1);
  network.bytes[kPrefixBytes + 1] = static_cast<uint8_t>(manager_lid >> 8);
  network.bytes[kPrefixBytes + 2] = static_cast<uint8_t>(manager_lid);
  return network;
}

NetworkId ethernet_network(const ibv_gid& gid) noexcept {
  NetworkId network;
  network.bytes[0] = 1;
  if (!is_ipv4(gid)) {
    std::copy_n(gid.raw, kPrefixBytes, network.bytes.begin() + 1);
    return network;
  }
  const uint32_t masked = htonl(ipv4_of(gid) & netmask_of(ipv4_of(gid)));
  std::copy_n(gid.raw, 12, network.bytes.begin() + 1);
  std::memcpy(network.bytes.data() + 13, &masked, sizeof masked);
  return network;
}

}  // namespace hydrant::ibv
