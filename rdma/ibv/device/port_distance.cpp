// Computes the NUMA distance of a device from this process's processors, and compares the networks of two
// ports. ibv_port_choice.cpp calls it to find the nearest port.
#include "rdma/ibv/device/port_distance.hpp"

#include "firehose/base/machine/small_file.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <ifaddrs.h>
#include <iterator>
#include <netinet/in.h>
#include <sched.h>

namespace hydrant::ibv {
namespace {

constexpr size_t kTextBytes = 8192;
constexpr uint32_t kDefaultNetmask = 0xffffff00;

// Reads a small file of /sys into `text`; "" if that fails.
const char* read_text(const char* root, const char* path, char (&text)[kTextBytes]) noexcept {
  char whole[512];
  text[0] = '\0';
  if (join_path(whole, sizeof whole, root, "/sys/", path))
    (void)read_small_file(whole, text, sizeof text);
  return text;
}

// Parses a list such as "0-3,8"; numbers beyond the set's size are left out.
cpu_set_t read_list(const char* text) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (;;) {
    char* end = nullptr;
    const unsigned long first = std::strtoul(text, &end, 10);
    if (end == text) return set;
    unsigned long last = first;
    if (*end == '-') last = std::strtoul(end + 1, &end, 10);
    for (unsigned long i = first; i <= last && i < CPU_SETSIZE; ++i) CPU_SET(i, &set);
    if (*end != ',') return set;
    text = end + 1;
  }
}

// Returns how many of `cpus` are on the node.
uint64_t count_on_node(const char* root, unsigned node, const cpu_set_t& cpus) noexcept {
  char path[64];
  char text[kTextBytes];
  std::snprintf(path, sizeof path, "devices/system/node/node%u/cpulist", node);
  const cpu_set_t there = read_list(read_text(root, path, text));
  cpu_set_t both;
  CPU_AND(&both, &there, &cpus);
  return static_cast<uint64_t>(CPU_COUNT(&both));
}

bool is_ipv4(const ibv_gid& gid) noexcept {
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(std::begin(kMapped), std::end(kMapped), gid.raw);
}

uint32_t ipv4_of(const ibv_gid& gid) noexcept {
  uint32_t address = 0;
  std::memcpy(&address, gid.raw + 12, sizeof address);
  return ntohl(address);
}

// Returns the netmask of the interface that has the address; one of 24 bits if none has it.
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

uint32_t distance_to(const char* device, const char* root) noexcept {
  char path[192];
  char text[kTextBytes];
  std::snprintf(path, sizeof path, "class/infiniband/%s/device/numa_node", device);
  char* end = nullptr;
  const long home = std::strtol(read_text(root, path, text), &end, 10);
  cpu_set_t cpus;
  if (end == text || home < 0 || sched_getaffinity(0, sizeof cpus, &cpus) != 0)
    return kUnknownDistance;
  const cpu_set_t nodes = read_list(read_text(root, "devices/system/node/online", text));
  // The file has a number for each node that is online, in their order.
  std::snprintf(path, sizeof path, "devices/system/node/node%ld/distance", home);
  const char* rest = read_text(root, path, text);
  uint64_t sum = 0;
  uint64_t count = 0;
  for (unsigned node = 0; node < CPU_SETSIZE; ++node) {
    if (!CPU_ISSET(node, &nodes)) continue;
    const unsigned long distance = std::strtoul(rest, &end, 10);
    if (end == rest) return kUnknownDistance;
    rest = end;
    const uint64_t here = count_on_node(root, node, cpus);
    sum += here * distance;
    count += here;
  }
  return count == 0 ? kUnknownDistance : static_cast<uint32_t>((sum + count / 2) / count);
}

bool is_same_network(const Port& one, const Port& other) noexcept {
  if (one.is_ethernet != other.is_ethernet) return false;
  if (!one.is_ethernet || (!is_ipv4(one.gid) && !is_ipv4(other.gid)))
    return std::equal(one.gid.raw, one.gid.raw + 8, other.gid.raw);
  if (!is_ipv4(one.gid) || !is_ipv4(other.gid)) return false;
  const uint32_t mask = netmask_of(ipv4_of(one.gid)) & netmask_of(ipv4_of(other.gid));
  return ((ipv4_of(one.gid) ^ ipv4_of(other.gid)) & mask) == 0;
}

}  // namespace hydrant::ibv
