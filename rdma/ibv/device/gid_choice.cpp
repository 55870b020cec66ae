// Chooses a port's GID. ibv_port.cpp calls it when it reads the port.
#include "rdma/ibv/device/gid_choice.hpp"

#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cstring>

namespace hydrant::ibv {
namespace {

bool is_zero(const ibv_gid& gid) noexcept {
  constexpr ibv_gid kZero = {};
  return std::memcmp(&gid, &kZero, sizeof gid) == 0;
}

}  // namespace

uint32_t rate_gid(const ibv_gid& gid, bool is_version_2) noexcept {
  if (is_zero(gid)) return 0;
  return (is_version_2 ? 4 : 1) + (is_ipv4(gid) ? 2 : is_link_local(gid) ? 0 : 1);
}

bool is_better(const GidTraits& one, const GidTraits& other) noexcept {
  if (one.interface != other.interface) return one.interface > other.interface;
  if (one.rating != other.rating) return one.rating > other.rating;
  if (one.is_virtual != other.is_virtual) return other.is_virtual;
  return one.network < other.network;
}

Status choose_gid(const ibv_port_attr& attributes, uint32_t wanted, const char* root,
                  Port* port) noexcept {
  const auto count = static_cast<uint32_t>(std::max(attributes.gid_tbl_len, 0));
  const NetworkInterfaces interfaces;
  bool is_found = false;
  GidTraits best;
  for (uint32_t i = 0; i < std::min<uint32_t>(count, UINT8_MAX + 1); ++i) {
    if (wanted != kAny && wanted != i) continue;
    ibv_gid_entry entry{};
    if (uncancelled::call(ibv_query_gid_ex, port->device.context, port->number, i, &entry, 0U) != 0)
      continue;
    if (is_zero(entry.gid)) continue;
    GidTraits traits;
    if (port->is_ethernet) {
      const uint32_t index = entry.ndev_ifindex;
      traits = {.interface = interfaces.state_of(index),
                .rating = rate_gid(entry.gid, entry.gid_type == IBV_GID_TYPE_ROCE_V2),
                .is_virtual = interfaces.is_virtual(index, root),
                .network = ethernet_network(entry.gid, interfaces)};
    }
    if (is_found && !is_better(traits, best)) continue;
    is_found = true;
    best = traits;
    port->gid = entry.gid;
    port->gid_index = static_cast<uint8_t>(i);
    port->gid_version = !port->is_ethernet ? 0 : entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 2 : 1;
  }
  const bool is_needed = port->is_ethernet || port->needs_grh || wanted != kAny;
  if (is_found || !is_needed) return Status::kOk;
  if (wanted != kAny) {
    return fail(Status::kUnsupported,
                "%s port %u has no GID %u (of %u); 'show_gids' or "
                "/sys/class/infiniband/%s/ports/%u/gids lists them",
                port->name, port->number, wanted, count, port->name, port->number);
  }
  if (!port->is_ethernet)
    return fail(Status::kUnsupported,
                "%s port %u demands global headers (GRH) and has no GID: the subnet manager has "
                "given it none",
                port->name, port->number);
  return fail(Status::kUnsupported,
              "%s port %u has no usable GID: give its network interface an address", port->name,
              port->number);
}

}  // namespace hydrant::ibv
