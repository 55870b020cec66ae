#include "rdma/ibv/ibv_port.hpp"

#include "firehose/base/errno_text.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

namespace hydrant::ibv {
namespace {

constexpr uint32_t kAny = UINT32_MAX;

// One item of HYDRANT_IBV_PORTS.
struct Wanted {
  std::string_view device = "*";
  uint32_t port = kAny;
  uint32_t gid_index = kAny;
};

bool read_number(std::string_view text, uint32_t* number) noexcept {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && stopped == end && *number <= UINT8_MAX;
}

std::string_view take_until(std::string_view* text, char separator) noexcept {
  const size_t length = std::min(text->find(separator), text->size());
  const std::string_view taken = text->substr(0, length);
  text->remove_prefix(std::min(length + 1, text->size()));
  return taken;
}

Status read_wanted(std::string_view item, Wanted* wanted) noexcept {
  std::string_view rest = item;
  wanted->device = take_until(&rest, ':');
  const bool has_port = !rest.empty();
  const std::string_view port = take_until(&rest, ':');
  const bool right = !wanted->device.empty() && (!has_port || read_number(port, &wanted->port)) &&
                     (rest.empty() || read_number(rest, &wanted->gid_index));
  if (right && wanted->port != 0) return Status::kOk;
  return fail(
      Status::kBadArg,
      "HYDRANT_IBV_PORTS: '%.*s' is not DEVICE[:PORT[:GID]] (ports count from 1, '*' is any "
      "device), for example mlx5_0:1",
      static_cast<int>(item.size()), item.data());
}

bool is_zero(const ibv_gid& gid) noexcept {
  constexpr ibv_gid kZero = {};
  return std::memcmp(&gid, &kZero, sizeof gid) == 0;
}

// The wanted GID, or the best.
Status choose_gid(const ibv_port_attr& attributes, const Wanted& wanted, Port* port) noexcept {
  const auto count = static_cast<uint32_t>(std::max(attributes.gid_tbl_len, 0));
  uint32_t best = 0;
  for (uint32_t i = 0; i < std::min<uint32_t>(count, UINT8_MAX + 1); ++i) {
    if (wanted.gid_index != kAny && wanted.gid_index != i) continue;
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(port->device.context, port->number, i, &entry, 0) != 0) continue;
    uint32_t rating = rate_gid(entry.gid, entry.gid_type == IBV_GID_TYPE_ROCE_V2);
    if (!port->is_ethernet || wanted.gid_index == i) rating = is_zero(entry.gid) ? 0 : 1;
    if (rating <= best) continue;
    best = rating;
    port->gid = entry.gid;
    port->gid_index = static_cast<uint8_t>(i);
  }
  if (best != 0 || (!port->is_ethernet && wanted.gid_index == kAny)) return Status::kOk;
  if (wanted.gid_index != kAny) {
    return fail(Status::kUnsupported,
                "%s port %u has no GID %u (of %u); 'show_gids' or "
                "/sys/class/infiniband/%s/ports/%u/gids lists them",
                port->name, port->number, wanted.gid_index, count, port->name, port->number);
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

Status try_port(const Wanted& wanted, uint32_t number, Port* port) noexcept {
  ibv_port_attr attributes{};
  port->number = static_cast<uint8_t>(number);
  const int error = ibv_query_port(port->device.context, port->number, &attributes);
  if (error != 0)
    return fail(Status::kUnsupported, "%s does not tell of its port %u: %s", port->name, number,
                errno_text(error));
  if (attributes.state != IBV_PORT_ACTIVE)
    return fail(Status::kUnsupported, "%s port %u is %s (cable, switch, 'ip link set ... up')",
                port->name, number, state_name(attributes.state));
  port->is_ethernet = attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  port->lid = attributes.lid;
  port->mtu = attributes.active_mtu;
  port->max_message_bytes = attributes.max_msg_sz;
  if (!port->is_ethernet && port->lid == 0)
    return fail(Status::kUnsupported, "%s port %u has no address (LID): no subnet manager",
                port->name, number);
  return choose_gid(attributes, wanted, port);
}

uint32_t positive(int value) noexcept { return static_cast<uint32_t>(std::max(value, 0)); }

// Opens a device and asks it what all its ports have in common, and how many these are.
Status open_device(const char* name, Port* port, uint32_t* ports) noexcept {
  std::snprintf(port->name, sizeof port->name, "%s", name);
  if (const Status status = open_ibv_device(name, &port->device); status != Status::kOk)
    return status;
  ibv_device_attr device{};
  if (const int error = ibv_query_device(port->device.context, &device); error != 0) {
    close_ibv_device(std::exchange(port->device, {}));
    return fail(Status::kUnsupported, "verbs device %s does not answer ibv_query_device: %s", name,
                errno_text(error));
  }
  port->max_completions = positive(device.max_cqe);
  port->max_receives = positive(device.max_srq_wr);
  port->max_sends = positive(device.max_qp_wr);
  port->max_reads_in = positive(device.max_qp_rd_atom);
  port->max_reads_out = positive(device.max_qp_init_rd_atom);
  port->max_queue_pairs = positive(device.max_qp);
  *ports = device.phys_port_cnt;
  return Status::kOk;
}

// Any of the device's ports; closes it again if there is none.
Status try_device(const Wanted& wanted, const char* name, Port* port) noexcept {
  Port tried;
  uint32_t count = 0;
  Status status = open_device(name, &tried, &count);
  if (status != Status::kOk) return status;
  status = fail(Status::kUnsupported, "%s has no port %u but %u", name, wanted.port, count);
  for (uint32_t number = 1; number <= count && status != Status::kOk; ++number) {
    if (wanted.port == kAny || wanted.port == number) status = try_port(wanted, number, &tried);
  }
  if (status == Status::kOk) {
    *port = tried;
  } else {
    close_ibv_device(tried.device);
  }
  return status;
}

Status list_devices(ibv_device*** devices, int* count) noexcept {
  errno = 0;
  *devices = ibv_get_device_list(count);
  if (*devices != nullptr) return Status::kOk;
  return fail(Status::kUnsupported,
              "verbs devices cannot be listed: %s (is the kernel module ib_uverbs loaded?)",
              errno_text(errno));
}

Status try_item(const Wanted& wanted, Port* port) noexcept {
  int found = 0;
  ibv_device** devices = nullptr;
  Status status = list_devices(&devices, &found);
  if (status != Status::kOk) return status;
  status = Status::kUnsupported;
  bool any = false;
  for (int i = 0; i < found && status != Status::kOk; ++i) {
    const char* name = ibv_get_device_name(devices[i]);
    if (wanted.device != "*" && wanted.device != name) continue;
    any = true;
    status = try_device(wanted, name, port);
  }
  ibv_free_device_list(devices);
  if (any) return status;
  return fail(Status::kUnsupported,
              "no verbs device '%.*s' among the %d of /sys/class/infiniband (load the adapter's "
              "driver, install ibverbs-providers, or change HYDRANT_IBV_PORTS)",
              static_cast<int>(wanted.device.size()), wanted.device.data(), found);
}

}  // namespace

uint32_t rate_gid(const ibv_gid& gid, bool is_version_2) noexcept {
  if (is_zero(gid)) return 0;
  constexpr uint8_t kMappedIpv4[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool is_ipv4 = std::memcmp(gid.raw, kMappedIpv4, sizeof kMappedIpv4) == 0;
  const bool is_link_local = gid.raw[0] == 0xfe && (gid.raw[1] & 0xc0) == 0x80;
  return (is_version_2 ? 4 : 1) + (is_ipv4 ? 2 : is_link_local ? 0 : 1);
}

std::vector<PortReport> list_ports(std::string* why) {
  std::vector<PortReport> reports;
  int found = 0;
  ibv_device** devices = nullptr;
  if (list_devices(&devices, &found) != Status::kOk) {
    *why = last_error_text();
    return reports;
  }
  if (found == 0)
    *why = "there is no verbs device: load the adapter's driver, install ibverbs-providers";
  for (int i = 0; i < found; ++i) {
    PortReport report;
    uint32_t count = 0;
    if (open_device(ibv_get_device_name(devices[i]), &report.port, &count) != Status::kOk) {
      report.reason = last_error_text();
      reports.push_back(report);
      continue;
    }
    const OpenDevice device = report.port.device;
    for (uint32_t number = 1; number <= count; ++number) {
      report.port.device = device;
      report.is_usable = try_port({}, number, &report.port) == Status::kOk;
      report.reason = report.is_usable ? "" : last_error_text();
      report.port.device = {};
      reports.push_back(report);
    }
    close_ibv_device(device);
  }
  ibv_free_device_list(devices);
  return reports;
}

Status open_port(const char* wanted, Port* port) noexcept {
  std::string_view rest = wanted;
  if (rest.empty()) rest = "*";
  Status status = Status::kUnsupported;
  while (!rest.empty()) {
    Wanted item;
    if (const Status read = read_wanted(take_until(&rest, ','), &item); read != Status::kOk)
      return read;
    status = try_item(item, port);
    if (status == Status::kOk) return status;
  }
  return status;
}

}  // namespace hydrant::ibv
