// Opens the device of a port, reads what the port can do, and chooses its GID. ibv_port_choice.cpp calls it
// for each port that it considers.
#include "rdma/ibv/device/ibv_port.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/uncancelled.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace hydrant::ibv {
namespace {

// Vendor ids of the kernel's software devices.
constexpr uint32_t kVendorOfRxe = 0xffffff;
constexpr uint32_t kVendorOfSiw = 0x626d74;

bool is_zero(const ibv_gid& gid) noexcept {
  constexpr ibv_gid kZero = {};
  return std::memcmp(&gid, &kZero, sizeof gid) == 0;
}

// Chooses the GID at the index `wanted`, or with kAny the one that rate_gid() rates best.
Status choose_gid(const ibv_port_attr& attributes, uint32_t wanted, Port* port) noexcept {
  const auto count = static_cast<uint32_t>(std::max(attributes.gid_tbl_len, 0));
  uint32_t best = 0;
  for (uint32_t i = 0; i < std::min<uint32_t>(count, UINT8_MAX + 1); ++i) {
    if (wanted != kAny && wanted != i) continue;
    ibv_gid_entry entry{};
    if (uncancelled::call(ibv_query_gid_ex, port->device.context, port->number, i, &entry, 0U) != 0)
      continue;
    uint32_t rating = rate_gid(entry.gid, entry.gid_type == IBV_GID_TYPE_ROCE_V2);
    if (!port->is_ethernet || wanted == i) rating = is_zero(entry.gid) ? 0 : 1;
    if (rating <= best) continue;
    best = rating;
    port->gid = entry.gid;
    port->gid_index = static_cast<uint8_t>(i);
  }
  if (best != 0 || (!port->is_ethernet && wanted == kAny)) return Status::kOk;
  if (wanted != kAny) {
    return fail(Status::kUnsupported,
                "%s port %u has no GID %u (of %u); 'show_gids' or "
                "/sys/class/infiniband/%s/ports/%u/gids lists them",
                port->name, port->number, wanted, count, port->name, port->number);
  }
  return fail(Status::kUnsupported,
              "%s port %u has no usable GID: give its network interface an address", port->name,
              port->number);
}

const char* state_name(ibv_port_state state) noexcept {
  switch (state) {
    case IBV_PORT_DOWN: return "down";
    case IBV_PORT_INIT: return "waiting for the subnet manager";
    case IBV_PORT_ARMED: return "armed, not active";
    case IBV_PORT_ACTIVE: return "active";
    default: return "not active";
  }
}

// Null, or what makes a device unfit: processes connect by datagrams of InfiniBand's kind.
const char* why_unfit(ibv_transport_type transport) noexcept {
  switch (transport) {
    case IBV_TRANSPORT_IWARP: return "it is an iWARP adapter";
    case IBV_TRANSPORT_USNIC:
    case IBV_TRANSPORT_USNIC_UDP:
    case IBV_TRANSPORT_UNSPECIFIED: return "it has a protocol of its own";
    default: return nullptr;
  }
}

// The nominal rate of a link, from the codes of the InfiniBand specification.
uint32_t rate_of(const ibv_port_attr& attributes) noexcept {
  constexpr struct {
    uint8_t code;
    uint32_t mbps;
  } kLanes[] = {{1, 2500},    {2, 5000},    {4, 10'000},  {8, 10'000},
                {16, 14'000}, {32, 25'000}, {64, 50'000}, {128, 100'000}};
  constexpr struct {
    uint8_t code;
    uint32_t lanes;
  } kWidths[] = {{1, 1}, {16, 2}, {2, 4}, {4, 8}, {8, 12}};
  for (const auto& lane : kLanes) {
    if (lane.code != attributes.active_speed) continue;
    for (const auto& width : kWidths) {
      if (width.code == attributes.active_width) return lane.mbps * width.lanes;
    }
  }
  return 0;
}

uint32_t positive(int value) noexcept { return static_cast<uint32_t>(std::max(value, 0)); }

}  // namespace

uint32_t rate_gid(const ibv_gid& gid, bool is_version_2) noexcept {
  if (is_zero(gid)) return 0;
  constexpr uint8_t kMappedIpv4[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool is_ipv4 = std::memcmp(gid.raw, kMappedIpv4, sizeof kMappedIpv4) == 0;
  const bool is_link_local = gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
  return (is_version_2 ? 4 : 1) + (is_ipv4 ? 2 : is_link_local ? 0 : 1);
}

Status open_port_device(const char* name, Port* port, uint32_t* ports) noexcept {
  std::snprintf(port->name, sizeof port->name, "%s", name);
  if (const Status status = open_ibv_device(name, &port->device); status != Status::kOk)
    return status;
  if (const char* const unfit = why_unfit(port->device.context->device->transport_type);
      unfit != nullptr) {
    close_ibv_device(std::exchange(port->device, {}));
    return fail(Status::kUnsupported, "%s cannot be used: %s, neither InfiniBand nor RoCE", name,
                unfit);
  }
  port->descriptors.note(*port->device.context);
  ibv_device_attr device{};
  if (const int error = uncancelled::call(ibv_query_device, port->device.context, &device);
      error != 0) {
    close_ibv_device(std::exchange(port->device, {}));
    return fail(Status::kUnsupported, "verbs device %s: ibv_query_device failed: %s", name,
                errno_text(error));
  }
  port->max_completions = positive(device.max_cqe);
  port->max_receives = positive(device.max_srq_wr);
  port->max_sends = positive(device.max_qp_wr);
  port->max_reads_in = positive(device.max_qp_rd_atom);
  port->max_reads_out = positive(device.max_qp_init_rd_atom);
  port->max_queue_pairs = positive(device.max_qp);
  port->atomics = device.atomic_cap;
  port->posts_by_call = device.vendor_id == kVendorOfRxe || device.vendor_id == kVendorOfSiw;
  *ports = device.phys_port_cnt;
  return Status::kOk;
}

Status read_port(uint32_t number, uint32_t gid_index, Port* port) noexcept {
  ibv_port_attr attributes{};
  port->number = static_cast<uint8_t>(number);
  port->gid_index = 0;
  port->gid = {};
  const int error = uncancelled::call(
      [&] { return ibv_query_port(port->device.context, port->number, &attributes); });
  if (error != 0)
    return fail(Status::kUnsupported, "%s port %u: ibv_query_port failed: %s", port->name, number,
                errno_text(error));
  if (attributes.state != IBV_PORT_ACTIVE)
    return fail(Status::kUnsupported, "%s port %u is %s (cable, switch, 'ip link set ... up')",
                port->name, number, state_name(attributes.state));
  port->is_ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  port->lid = attributes.lid;
  port->manager_lid = attributes.sm_lid;
  port->rate_mbps = rate_of(attributes);
  port->mtu = attributes.active_mtu;
  port->max_message_bytes = attributes.max_msg_sz;
  if (!port->is_ethernet && port->lid == 0)
    return fail(Status::kUnsupported, "%s port %u has no address (LID): no subnet manager",
                port->name, number);
  return choose_gid(attributes, gid_index, port);
}

}  // namespace hydrant::ibv
