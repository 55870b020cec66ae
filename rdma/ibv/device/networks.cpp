// Reads the network interfaces, and computes the network of a GID. gid_choice.cpp and port_rank.cpp call it
// to keep the ranks of a job on one network.
#include "rdma/ibv/device/networks.hpp"

#include "firehose/base/machine/small_file.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <ifaddrs.h>
#include <iterator>
#include <net/if.h>
#include <netinet/in.h>
#include <netpacket/packet.h>

namespace hydrant::ibv {
namespace {

constexpr uint32_t kDefaultNetmask = 0xffffff00;
constexpr size_t kPrefixBytes = 8;

uint32_t ipv4_of(const ibv_gid& gid) noexcept {
  uint32_t address = 0;
  std::memcpy(&address, gid.raw + 12, sizeof address);
  return ntohl(address);
}

// `address` is null, or of some family.
uint32_t ipv4_of(const sockaddr* address) noexcept {
  sockaddr_in read{};
  if (address != nullptr) std::memcpy(&read, address, sizeof read);
  return ntohl(read.sin_addr.s_addr);
}

bool is_of(const ifaddrs& entry, int family) noexcept {
  return entry.ifa_addr != nullptr && entry.ifa_addr->sa_family == family;
}

// The address follows the first byte.
ibv_gid address_of(const NetworkId& network) noexcept {
  ibv_gid gid{};
  std::copy_n(network.bytes.begin() + 1, sizeof gid.raw, gid.raw);
  return gid;
}

std::string address_text(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  const bool is_short = is_ipv4(gid);
  (void)inet_ntop(is_short ? AF_INET : AF_INET6, gid.raw + (is_short ? 12 : 0), text, sizeof text);
  return text;
}

}  // namespace

NetworkInterfaces::NetworkInterfaces() noexcept {
  if (uncancelled::getifaddrs(&all_) != 0) all_ = nullptr;
}

NetworkInterfaces::~NetworkInterfaces() {
  if (all_ != nullptr) freeifaddrs(all_);
}

uint32_t NetworkInterfaces::netmask_of(uint32_t address) const noexcept {
  uint32_t mask = kDefaultNetmask;
  for (const ifaddrs* entry = all_; entry != nullptr; entry = entry->ifa_next) {
    if (is_of(*entry, AF_INET) && entry->ifa_netmask != nullptr &&
        ipv4_of(entry->ifa_addr) == address)
      mask = ipv4_of(entry->ifa_netmask);
  }
  return mask;
}

const ifaddrs* NetworkInterfaces::find(uint32_t index) const noexcept {
  for (const ifaddrs* entry = all_; entry != nullptr; entry = entry->ifa_next) {
    if (!is_of(*entry, AF_PACKET)) continue;
    sockaddr_ll link{};
    std::memcpy(&link, entry->ifa_addr, sizeof link);
    if (link.sll_ifindex == static_cast<int>(index)) return entry;
  }
  return nullptr;
}

NetworkInterfaces::State NetworkInterfaces::state_of(uint32_t index) const noexcept {
  if (index == 0 || all_ == nullptr) return State::kUnknown;
  const ifaddrs* const found = find(index);
  return found != nullptr && (found->ifa_flags & IFF_UP) != 0 ? State::kUp : State::kGone;
}

bool NetworkInterfaces::is_virtual(uint32_t index, const char* root) const noexcept {
  const ifaddrs* const found = index != 0 ? find(index) : nullptr;
  if (found == nullptr) return false;
  char folder[64];
  char path[kPathBytes];
  char text[1024] = "";
  if (!join_path(folder, sizeof folder, "/sys/class/net/", found->ifa_name, "/uevent") ||
      !join_path(path, sizeof path, root, folder))
    return false;
  (void)read_small_file(path, text, sizeof text);
  return std::strstr(text, "DEVTYPE=vlan") != nullptr ||
         std::strstr(text, "DEVTYPE=macvlan") != nullptr;
}

bool is_ipv4(const ibv_gid& gid) noexcept {
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(std::begin(kMapped), std::end(kMapped), gid.raw);
}

bool is_link_local(const ibv_gid& gid) noexcept {
  return gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
}

NetworkId infiniband_network(const ibv_gid& gid, uint16_t manager_lid) noexcept {
  NetworkId network;
  std::copy_n(gid.raw, kPrefixBytes, network.bytes.begin() + 1);
  network.bytes[kPrefixBytes + 1] = static_cast<uint8_t>(manager_lid >> 8);
  network.bytes[kPrefixBytes + 2] = static_cast<uint8_t>(manager_lid);
  return network;
}

NetworkId ethernet_network(const ibv_gid& gid, const NetworkInterfaces& interfaces) noexcept {
  NetworkId network;
  network.bytes[0] = NetworkId::kRoceVersion2;
  if (!is_ipv4(gid)) {
    std::copy_n(gid.raw, kPrefixBytes, network.bytes.begin() + 1);
    return network;
  }
  const uint32_t masked = htonl(ipv4_of(gid) & interfaces.netmask_of(ipv4_of(gid)));
  std::copy_n(gid.raw, 12, network.bytes.begin() + 1);
  std::memcpy(network.bytes.data() + 13, &masked, sizeof masked);
  return network;
}

NetworkId routed_network(const NetworkId& network) noexcept {
  const ibv_gid gid = address_of(network);
  if (network.bytes[0] != NetworkId::kRoceVersion2 || is_link_local(gid)) return network;
  NetworkId routed;
  routed.bytes[0] = NetworkId::kRoutedRoce;
  if (is_ipv4(gid)) std::copy_n(gid.raw, 12, routed.bytes.begin() + 1);
  return routed;
}

bool is_part_of(const NetworkId& part, const NetworkId& whole) noexcept {
  return whole == part || whole == routed_network(part);
}

std::string text_of(const NetworkId& network) {
  ibv_gid gid = address_of(network);
  if (network.bytes[0] == NetworkId::kInfiniBand) {
    std::fill(gid.raw + kPrefixBytes, std::end(gid.raw), uint8_t{0});
    const uint32_t manager =
        uint32_t{network.bytes[kPrefixBytes + 1]} << 8 | network.bytes[kPrefixBytes + 2];
    return "InfiniBand " + address_text(gid) + " (subnet manager " + std::to_string(manager) + ")";
  }
  if (network.bytes[0] == NetworkId::kRoutedRoce)
    return std::string("RoCE networks of ") + (is_ipv4(gid) ? "IPv4" : "IPv6") + " that are routed";
  const bool is_version_1 = network.bytes[0] == NetworkId::kRoceVersion1;
  return (is_version_1 ? "RoCE version 1 " : "RoCE ") + address_text(gid);
}

}  // namespace hydrant::ibv
