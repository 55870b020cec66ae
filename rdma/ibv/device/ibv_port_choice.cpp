// Chooses and opens the ports of this process: those that HYDRANT_IBV_PORTS names, or else the best one.
// ibv_transport_open.cpp calls open_ports(); hydrant-info shows the choice by report_ports().
#include "rdma/ibv/device/ibv_port_choice.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"
#include "firehose/base/uncancelled.hpp"
#include "rdma/ibv/device/port_distance.hpp"
#include "rdma/ibv/device/port_rank.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

namespace hydrant::ibv {
namespace {

// An item of HYDRANT_IBV_PORTS.
struct WantedPorts {
  std::string_view device = "*";
  uint32_t port = kAny;
  uint32_t gid_index = kAny;

  bool names(std::string_view name) const noexcept { return device == "*" || device == name; }
  bool names(uint32_t number) const noexcept { return port == kAny || port == number; }
};

bool read_number(std::string_view text, uint32_t* number) noexcept {
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && stopped == end && *number != kAny;
}

std::string_view take_until(std::string_view* text, char separator) noexcept {
  const size_t length = std::min(text->find(separator), text->size());
  const std::string_view taken = text->substr(0, length);
  text->remove_prefix(std::min(length + 1, text->size()));
  return taken;
}

std::string_view without_blanks(std::string_view text) noexcept {
  const size_t first = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

Status read_wanted(std::string_view item, WantedPorts* wanted) noexcept {
  std::string_view rest = without_blanks(item);
  wanted->device = take_until(&rest, ':');
  // A colon promises a number: "mlx5_0:" is no name for any of its ports.
  const size_t colons = static_cast<size_t>(std::count(item.begin(), item.end(), ':'));
  const std::string_view port = take_until(&rest, ':');
  const bool right = !wanted->device.empty() && (colons == 0 || read_number(port, &wanted->port)) &&
                     (colons <= 1 || read_number(rest, &wanted->gid_index));
  if (right && wanted->gid_index != kAny && wanted->gid_index > UINT8_MAX)
    return fail(
        Status::kBadArg,
        "HYDRANT_IBV_PORTS: '%.*s': connections use no GID index above %d, however long the "
        "port's table is",
        static_cast<int>(item.size()), item.data(), UINT8_MAX);
  if (right && wanted->port != 0 && (wanted->port == kAny || wanted->port <= UINT8_MAX))
    return Status::kOk;
  return fail(
      Status::kBadArg,
      "HYDRANT_IBV_PORTS: '%.*s' is not DEVICE[:PORT[:GID]] (ports count from 1, '*' is any "
      "device), for example mlx5_0:1",
      static_cast<int>(item.size()), item.data());
}

// The list of all verbs devices, which it frees at its end.
struct Devices {
  ~Devices() {
    if (list != nullptr) uncancelled::call(ibv_free_device_list, list);
  }
  Devices() = default;
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;
  Status read() noexcept {
    errno = 0;
    list = uncancelled::call(ibv_get_device_list, &count);
    if (list != nullptr) return Status::kOk;
    return fail(Status::kUnsupported,
                "verbs devices cannot be listed: %s (is the kernel module ib_uverbs loaded?)",
                errno_text(errno));
  }
  const char* name(int i) const noexcept { return ibv_get_device_name(list[i]); }

  ibv_device** list = nullptr;
  int count = 0;
};

const Port* find(const Ports& ports, const char* device, uint32_t number) noexcept {
  for (uint32_t i = 0; i < ports.count; ++i) {
    const Port& port = ports.all[i];
    if (std::strcmp(port.name, device) == 0 && (number == kAny || port.number == number))
      return &port;
  }
  return nullptr;
}

std::string named(const Port& port) {
  return std::string(port.name) + ":" + std::to_string(port.number);
}

// Reports the first of several failures, with the number of the others.
class Failures {
 public:
  // The text is last_error_text().
  void add(Status status) {
    if (status == Status::kOk) return;
    if (count_++ != 0) return;
    status_ = status;
    text_ = last_error_text();
  }
  Status report() const {
    if (count_ < 2) return fail(status_, "%s", text_.c_str());
    return fail(status_, "%s; %u more cannot be used either: see hydrant-info", text_.c_str(),
                count_ - 1);
  }

 private:
  Status status_ = Status::kUnsupported;
  std::string text_ = "no port is left to try";
  uint32_t count_ = 0;
};

// Adds to *ports those ports of the device that `wanted` names, that can be used, and whose link is that of
// the first. A device that is open already is not opened again. Returns kOk if a port was added.
Status take_of_device(const WantedPorts& wanted, const char* name, uint32_t most,
                      const PortSettings& settings, Ports* ports) noexcept {
  Port tried;
  uint32_t count = UINT8_MAX;
  const Port* const open = find(*ports, name, kAny);
  Status status = Status::kUnsupported;
  if (open != nullptr) {
    tried = *open;
    ibv_device_attr attributes{};
    if (uncancelled::call(ibv_query_device, tried.device.context, &attributes) == 0)
      count = attributes.phys_port_cnt;
  } else if (status = open_port_device(name, &tried, &count); status != Status::kOk) {
    return status;
  }
  const uint32_t before = ports->count;
  Failures failures;
  for (uint32_t number = 1; number <= count && ports->count < most; ++number) {
    if (!wanted.names(number)) continue;
    if (find(*ports, name, number) != nullptr) {
      failures.add(fail(Status::kUnsupported, "an item before it names %s:%u", name, number));
    } else if (status = read_port(number, wanted.gid_index, settings, &tried);
               status != Status::kOk) {
      failures.add(status);
    } else if (ports->count != 0 && tried.is_ethernet != ports->all[0].is_ethernet) {
      failures.add(fail(Status::kUnsupported, "the link of %s is of another kind than that of %s",
                        named(tried).c_str(), named(ports->all[0]).c_str()));
    } else {
      ports->all[ports->count++] = tried;
    }
  }
  if (ports->count != before) return Status::kOk;
  if (open == nullptr) close_ibv_device(tried.device);
  if (wanted.port != kAny && wanted.port > count)
    return fail(Status::kUnsupported, "%s has no port %u: it has %u, counted from 1", name,
                wanted.port, count);
  return failures.report();
}

Status no_device(std::string_view wanted, const Devices& devices) noexcept {
  constexpr int kNamed = 8;
  std::string names;
  for (int i = 0; i < std::min(devices.count, kNamed); ++i)
    names += (i == 0 ? ": " : ", ") + std::string(devices.name(i));
  if (devices.count > kNamed) names += ", ...";
  return fail(Status::kUnsupported,
              "no verbs device '%.*s' among the %d of /sys/class/infiniband%s (load the adapter's "
              "driver, install ibverbs-providers, or change HYDRANT_IBV_PORTS)",
              static_cast<int>(wanted.size()), wanted.data(), devices.count, names.c_str());
}

Status take_item(const WantedPorts& wanted, const Devices& devices, uint32_t most,
                 const PortSettings& settings, Ports* ports) noexcept {
  const uint32_t before = ports->count;
  bool any = false;
  Failures failures;
  for (int i = 0; i < devices.count && ports->count < most; ++i) {
    if (!wanted.names(devices.name(i))) continue;
    any = true;
    failures.add(take_of_device(wanted, devices.name(i), most, settings, ports));
  }
  if (ports->count != before) return Status::kOk;
  return any ? failures.report() : no_device(wanted.device, devices);
}

bool is_failed(const PortSettings& settings, const Port& port) noexcept {
  return settings.failed != nullptr && settings.failed->has(port);
}

bool is_elsewhere(const PortSettings& settings, const Port& port) noexcept {
  return settings.network != nullptr && !is_part_of(network_of(port), *settings.network);
}

// Puts the best port of all devices into *ports, which is empty.
Status take_best(const Devices& devices, const PortSettings& settings, Ports* ports) noexcept {
  Failures failures;
  PortRank best;
  for (int i = 0; i < devices.count; ++i) {
    Port tried;
    uint32_t count = 0;
    if (const Status opened = open_port_device(devices.name(i), &tried, &count);
        opened != Status::kOk) {
      failures.add(opened);
      continue;
    }
    const uint32_t distance = distance_to(devices.name(i), settings.root);
    bool is_counted = false;
    Port& taken = ports->all[0];
    for (uint32_t number = 1; number <= count; ++number) {
      const Status read = read_port(number, kAny, settings, &tried);
      failures.add(read);
      if (read != Status::kOk || is_failed(settings, tried)) continue;
      if (is_elsewhere(settings, tried)) {
        failures.add(fail(Status::kUnsupported,
                          "%s port %u is not on the network that all nodes of the job have, %s",
                          tried.name, number, text_of(*settings.network).c_str()));
        continue;
      }
      const PortRank rank = rank_of(tried, distance);
      const PortOrder order =
          ports->count != 0 ? compare(rank, best) : PortOrder{true, PortTrait::kKind};
      if (order.trait < PortTrait::kDistance && order.first_is_better) ports->adapters = 0;
      if (order.trait < PortTrait::kDistance ? order.first_is_better : !is_counted) {
        ++ports->adapters;
        is_counted = true;
      }
      if (!order.first_is_better) continue;
      if (ports->count != 0 && taken.device.context != tried.device.context)
        close_ibv_device(taken.device);
      taken = tried;
      ports->count = 1;
      best = rank;
    }
    if (ports->count == 0 || taken.device.context != tried.device.context)
      close_ibv_device(tried.device);
  }
  if (ports->count != 0) return Status::kOk;
  return devices.count != 0 ? failures.report() : no_device("*", devices);
}

// ---- reports for hydrant-info ----

std::string distance_text(uint32_t distance) {
  return distance == kUnknownDistance ? "not known" : std::to_string(distance);
}

bool names(const std::string& text, const Port& port) {
  WantedPorts item;
  return read_wanted(text, &item) == Status::kOk && item.names(port.name) &&
         item.names(port.number);
}

bool is_named(std::string_view wanted, const Port& port) {
  while (!wanted.empty()) {
    if (names(std::string(take_until(&wanted, ',')), port)) return true;
  }
  return false;
}

const char* name_of(PortKind kind) {
  switch (kind) {
    case PortKind::kInfiniBand: return "InfiniBand";
    case PortKind::kRoce: return "RoCE";
    default: return "a software device";
  }
}

// Says why a port is not chosen although HYDRANT_IBV_PORTS is set.
std::string why_not_named(const Port& port, const char* wanted, uint32_t most,
                          const PortReports& reports, const Ports& chosen) {
  const Port& first = chosen.all[0];
  if (!is_named(wanted, port)) return "HYDRANT_IBV_PORTS does not name it";
  if (chosen.count != 0 && port.is_ethernet != first.is_ethernet)
    return "its link is of another kind than that of " + named(first);
  for (const PassedBy& skipped : reports.passed_by) {
    if (names(skipped.item, port)) return "not as '" + skipped.item + "': " + skipped.reason;
  }
  if (chosen.count == 0) return reports.why;
  if (chosen.count < most) return "it could not be opened when it was to be chosen";
  return "HYDRANT_IBV_PORTS names " + std::to_string(most) +
         " before it, and more are not used at once";
}

// Says why the process has not chosen a port by itself.
std::string why_not_best(const PortReport& report, const PortReport& best) {
  const PortRank rank = rank_of(report.port, report.distance);
  const PortRank better = rank_of(best.port, best.distance);
  const std::string name = named(best.port);
  switch (compare(better, rank).trait) {
    case PortTrait::kKind:
      return std::string("it is ") + name_of(rank.kind) + ", and " + name + " is " +
             (better.kind == PortKind::kRoce ? "an adapter" : name_of(better.kind));
    case PortTrait::kRate:
      return "it is slower (" + rate_text(rank.rate_mbps) + ") than " + name + " (" +
             rate_text(better.rate_mbps) + ")";
    case PortTrait::kNetwork:
      return "it is on another network than " + name +
             ", as far as their addresses show: name it in HYDRANT_IBV_PORTS";
    case PortTrait::kDistance:
      return "it is farther (" + distance_text(rank.distance) + ") than " + name + " (" +
             distance_text(better.distance) + ")";
    default:
      return "it is no nearer than " + name +
             ", and one port is used where HYDRANT_IBV_PORTS names none";
  }
}

}  // namespace

PortReports list_ports(const PortSettings& settings) {
  PortReports reports;
  Devices devices;
  if (devices.read() != Status::kOk) {
    reports.why = last_error_text();
    return reports;
  }
  if (devices.count == 0)
    reports.why = "there is no verbs device: load the adapter's driver, install ibverbs-providers";
  for (int i = 0; i < devices.count; ++i) {
    PortReport report;
    report.distance = distance_to(devices.name(i), settings.root);
    uint32_t count = 0;
    if (open_port_device(devices.name(i), &report.port, &count) != Status::kOk) {
      report.reason = last_error_text();
      reports.all.push_back(report);
      continue;
    }
    const OpenDevice device = report.port.device;
    DeviceAttributes attributes;
    report.on_demand =
        query_ibv_device(device.context, &attributes) == Status::kOk && attributes.implicit_odp;
    for (uint32_t number = 1; number <= count; ++number) {
      report.port.device = device;
      report.is_usable = read_port(number, kAny, settings, &report.port) == Status::kOk;
      report.reason = report.is_usable ? "" : last_error_text();
      report.port.device = {};
      reports.all.push_back(report);
    }
    close_ibv_device(device);
  }
  return reports;
}

bool PortList::add(const Port& port) noexcept {
  if (count_ == kMax) return false;
  std::snprintf(all_[count_].name, sizeof all_[count_].name, "%s", port.name);
  all_[count_].number = port.number;
  ++count_;
  return true;
}

bool PortList::has(const Port& port) const noexcept {
  return std::any_of(all_, all_ + count_, [&port](const auto& one) {
    return one.number == port.number && std::strcmp(one.name, port.name) == 0;
  });
}

Status open_ports(const char* wanted, uint32_t most, Ports* ports, const PortSettings& settings,
                  std::vector<PassedBy>* passed_by) noexcept {
  std::string_view rest = wanted;
  Devices devices;
  if (const Status status = devices.read(); status != Status::kOk) return status;
  Ports taken;
  Failures failures;
  if (rest.empty()) failures.add(take_best(devices, settings, &taken));
  while (!rest.empty()) {
    const std::string_view text = take_until(&rest, ',');
    WantedPorts item;
    if (const Status status = read_wanted(text, &item); status != Status::kOk) {
      close_ports(taken);
      return status;
    }
    if (taken.count == most) continue;
    const Status status = take_item(item, devices, most, settings, &taken);
    failures.add(status);
    if (status != Status::kOk && passed_by != nullptr)
      passed_by->push_back({std::string(without_blanks(text)), last_error_text()});
  }
  if (taken.count == 0) return failures.report();
  // Each process may have a setting of its own.
  if (wanted[0] != '\0') taken.adapters = static_cast<uint32_t>(devices.count);
  *ports = taken;
  return Status::kOk;
}

Status open_port(const char* wanted, Port* port, const PortSettings& settings) noexcept {
  Ports ports;
  const Status status = open_ports(wanted, 1, &ports, settings);
  if (status == Status::kOk) *port = ports.all[0];
  return status;
}

void close_ports(const Ports& ports) noexcept {
  for (uint32_t i = 0; i < ports.count; ++i) {
    bool is_closed = false;
    for (uint32_t j = 0; j < i; ++j)
      is_closed |= ports.all[j].device.context == ports.all[i].device.context;
    if (!is_closed) close_ibv_device(ports.all[i].device);
  }
}

PortReports report_ports(const char* wanted, uint32_t most, const PortSettings& settings) {
  PortReports reports = list_ports(settings);
  Ports chosen;
  if (open_ports(wanted, most, &chosen, settings, &reports.passed_by) != Status::kOk) {
    if (!reports.all.empty() || wanted[0] != '\0') reports.why = last_error_text();
    for (PortReport& report : reports.all) {
      if (report.is_usable)
        report.left_out = wanted[0] != '\0'
                              ? why_not_named(report.port, wanted, most, reports, chosen)
                              : reports.why;
    }
    return reports;
  }
  const PortReport* first = nullptr;
  for (PortReport& report : reports.all) {
    const Port* const port = find(chosen, report.port.name, report.port.number);
    if (port == nullptr) continue;
    report.is_usable = report.is_chosen = true;
    report.reason.clear();
    report.place = static_cast<uint32_t>(port - chosen.all);
    if (report.place == 0) first = &report;
    // The knob may name another GID than the best one.
    report.port = *port;
    report.port.device = {};
  }
  for (PortReport& report : reports.all) {
    if (!report.is_usable || report.is_chosen) continue;
    if (wanted[0] != '\0') {
      report.left_out = why_not_named(report.port, wanted, most, reports, chosen);
    } else if (is_failed(settings, report.port) || first == nullptr) {
      report.left_out = "its set-up failed";
    } else if (is_elsewhere(settings, report.port)) {
      report.left_out = "not all nodes of the job have its network";
    } else {
      report.left_out = why_not_best(report, *first);
    }
  }
  close_ports(chosen);
  return reports;
}

void log_unused_ports(const char* wanted, uint32_t most, const PortSettings& settings) {
  for (const PortReport& report : report_ports(wanted, most, settings).all) {
    if (report.is_chosen) continue;
    const bool is_whole_device = report.port.number == 0;
    log_info("verbs: %s is not used: %s",
             is_whole_device ? report.port.name : named(report.port).c_str(),
             (report.is_usable ? report.left_out : report.reason).c_str());
  }
}

}  // namespace hydrant::ibv
