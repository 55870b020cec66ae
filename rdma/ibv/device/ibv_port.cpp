// Opens the device of a port, reads what the port can do, and chooses its partition. ibv_port_choice.cpp
// calls it for each port that it considers.
#include "rdma/ibv/device/ibv_port.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/ibv/device/datagram_pair.hpp"
#include "rdma/ibv/device/gid_choice.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace hydrant::ibv {
namespace {

// Vendor ids of the kernel's software devices.
constexpr uint32_t kVendorOfRxe = 0xffffff;
constexpr uint32_t kVendorOfSiw = 0x626d74;
// The firmware of its newer adapters takes writes out of order wherever the fabric routes adaptively, and no
// call says whether it does.
constexpr uint32_t kVendorOfNvidia = 0x2c9;

// Three bits of a queue pair have the number of retries. Rxe takes 7 as for ever: rxe_completer() of the
// kernel (drivers/infiniband/sw/rxe/rxe_comp.c) does not count down from it.
constexpr uint8_t kMaxRetries = 7;
constexpr uint8_t kMaxRetriesOfRxe = 6;

// Chooses the entry of the P_Key table: that of the partition `wanted`, or with 0 the first of which the port
// is a full member, because two limited members do not reach each other.
Status choose_partition(const ibv_port_attr& attributes, uint16_t wanted, Port* port) noexcept {
  constexpr uint16_t kFull = 0x8000;
  constexpr uint16_t kPartition = 0x7fff;
  bool is_found = false;
  for (uint16_t i = 0; i < attributes.pkey_tbl_len; ++i) {
    __be16 entry = 0;
    if (uncancelled::call(ibv_query_pkey, port->device.context, port->number, int{i}, &entry) != 0)
      continue;
    const uint16_t pkey = ntohs(entry);
    const auto partition = static_cast<uint16_t>(pkey & kPartition);
    if (partition == 0 || (wanted != 0 && partition != (wanted & kPartition))) continue;
    const bool is_full = (pkey & kFull) != 0;
    if (is_found && !is_full) continue;
    is_found = true;
    port->pkey = pkey;
    port->pkey_index = i;
    if (is_full) return Status::kOk;
  }
  if (wanted != 0 && !is_found)
    return fail(Status::kUnsupported,
                "%s port %u is in no partition %#06x (HYDRANT_IBV_PKEY); "
                "/sys/class/infiniband/%s/ports/%u/pkeys lists its P_Keys",
                port->name, port->number, wanted, port->name, port->number);
  if (wanted == 0 && is_found)
    return fail(Status::kUnsupported,
                "%s port %u is only a limited member of its partitions (P_Key %#06x), and two "
                "limited members do not reach each other: ask for full membership, or name the "
                "P_Key in HYDRANT_IBV_PKEY",
                port->name, port->number, port->pkey);
  return Status::kOk;
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

// Null, or what makes a device unfit: processes meet by datagrams, and communicate by reliable connections.
const char* why_unfit(ibv_transport_type transport) noexcept {
  switch (transport) {
    case IBV_TRANSPORT_IWARP: return "it is an iWARP adapter, without datagrams (UD)";
    case IBV_TRANSPORT_USNIC:
    case IBV_TRANSPORT_USNIC_UDP:
    case IBV_TRANSPORT_UNSPECIFIED:
      return "it has a protocol of its own, without reliable connections (RC)";
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

Status open_port_device(const char* name, Port* port, uint32_t* ports) noexcept {
  std::snprintf(port->name, sizeof port->name, "%s", name);
  if (const Status status = open_ibv_device(name, &port->device); status != Status::kOk)
    return status;
  if (const char* const unfit = why_unfit(port->device.context->device->transport_type);
      unfit != nullptr) {
    close_ibv_device(std::exchange(port->device, {}));
    return fail(Status::kUnsupported, "%s cannot be used: %s; InfiniBand and RoCE can", name,
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
  if (const Status status = try_datagrams(*port); status != Status::kOk) {
    close_ibv_device(std::exchange(port->device, {}));
    return status;
  }
  port->max_completions = positive(device.max_cqe);
  port->max_receives = positive(device.max_srq_wr);
  port->max_sends = positive(device.max_qp_wr);
  port->max_reads_in = positive(device.max_qp_rd_atom);
  port->max_reads_out = positive(device.max_qp_init_rd_atom);
  port->max_queue_pairs = positive(device.max_qp);
  port->atomics = device.atomic_cap;
  port->order = device.vendor_id == kVendorOfNvidia ? PutOrder::kUnordered : PutOrder::kOrdered;
  port->max_retries = device.vendor_id == kVendorOfRxe ? kMaxRetriesOfRxe : kMaxRetries;
  port->posts_by_call = device.vendor_id == kVendorOfRxe || device.vendor_id == kVendorOfSiw;
  *ports = device.phys_port_cnt;
  return Status::kOk;
}

Status read_port(uint32_t number, uint32_t gid_index, const PortSettings& settings,
                 Port* port) noexcept {
  ibv_port_attr attributes{};
  port->number = static_cast<uint8_t>(number);
  port->gid_index = 0;
  port->gid_version = 0;
  port->gid = {};
  port->pkey_index = 0;
  port->pkey = 0;
  port->service_level = settings.service_level;
  port->traffic_class = settings.traffic_class;
  port->order = settings.order.value_or(port->order);
  const int error = uncancelled::call(
      [&] { return ibv_query_port(port->device.context, port->number, &attributes); });
  if (error != 0)
    return fail(Status::kUnsupported, "%s port %u: ibv_query_port failed: %s", port->name, number,
                errno_text(error));
  if (attributes.state != IBV_PORT_ACTIVE)
    return fail(Status::kUnsupported, "%s port %u is %s (cable, switch, 'ip link set ... up')",
                port->name, number, state_name(attributes.state));
  port->is_ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  port->needs_grh = port->is_ethernet || (attributes.flags & IBV_QPF_GRH_REQUIRED) != 0;
  port->lid = attributes.lid;
  port->manager_lid = attributes.sm_lid;
  port->rate_mbps = rate_of(attributes);
  port->mtu = attributes.active_mtu;
  port->max_message_bytes = attributes.max_msg_sz;
  if (!port->is_ethernet && port->lid == 0)
    return fail(Status::kUnsupported, "%s port %u has no address (LID): no subnet manager",
                port->name, number);
  if (const Status status = choose_partition(attributes, settings.pkey, port);
      status != Status::kOk)
    return status;
  return choose_gid(attributes, gid_index, settings.root, port);
}

}  // namespace hydrant::ibv
