// Computes the NUMA distance of a device from this process's processors. ibv_port_choice.cpp calls it to find
// the nearest port.
#include "rdma/ibv/device/port_distance.hpp"

#include "firehose/base/machine/small_file.hpp"

#include <cstdio>
#include <cstdlib>
#include <sched.h>

namespace hydrant::ibv {
namespace {

constexpr size_t kTextBytes = 8192;

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

}  // namespace hydrant::ibv
