// Fuzz target: HYDRANT_INJECT, and HYDRANT_IBV_PORTS over simulated devices.
#include "rdma/injected/injected_settings.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#if HYDRANT_HAVE_IBV
#include "rdma/ibv/device/ibv_port_choice.hpp"
#include "tests/fakes/fake_ibverbs.hpp"
#endif

#include <string>
#include <vector>

namespace hydrant::fuzz {
namespace {

// ---- HYDRANT_INJECT ----

bool is_same(const InjectedNetwork& a, const InjectedNetwork& b) {
  return a.delay_ns == b.delay_ns && a.bytes_per_second == b.bytes_per_second &&
         a.window_bytes == b.window_bytes && a.reorder_ns == b.reorder_ns && a.seed == b.seed &&
         a.credits == b.credits && a.cells == b.cells && a.depth == b.depth &&
         a.has_pins == b.has_pins && a.pins_are_fake == b.pins_are_fake &&
         a.pin_bytes == b.pin_bytes;
}
bool is_same(const Injection& a, const Injection& b) {
  return a.send_only == b.send_only && a.has_network == b.has_network &&
         is_same(a.network, b.network);
}

// A text that means the same.
std::string text_of(const Injection& injection) {
  const InjectedNetwork& net = injection.network;
  std::string text = injection.send_only ? "send_only," : "";
  if (!injection.has_network) return text;
  const auto add = [&text](const char* name, uint64_t value, const char* unit) {
    text += std::string(name) + "=" + std::to_string(value) + unit + ",";
  };
  add("seed", net.seed, "");
  add("delay", net.delay_ns, "ns");
  add("credits", net.credits, "");
  add("depth", net.depth, "");
  if (net.bytes_per_second != 0) add("bandwidth", net.bytes_per_second, "B");
  if (net.window_bytes != 0) add("window", net.window_bytes, "B");
  if (net.cells != 0) add("cells", net.cells, "");
  // Alone it is four times the delay, which may be longer than a time that is said.
  if (net.reorder_ns != 0 && net.reorder_ns == 4 * net.delay_ns) {
    text += "reorder,";
  } else if (net.reorder_ns != 0) {
    add("reorder", net.reorder_ns, "ns");
  }
  if (net.has_pins && net.pin_bytes != 0) {
    add("pins", net.pin_bytes, "B");
  } else if (net.has_pins) {
    text += net.pins_are_fake ? "pins=fake" : "pins";
  }
  return text;
}

void check_limits(const Injection& injection) {
  constexpr uint64_t kSecondNs = 1'000'000'000;
  const InjectedNetwork& net = injection.network;
  HYDRANT_FUZZ_CHECK(net.delay_ns <= kSecondNs && net.reorder_ns <= 4 * kSecondNs);
  HYDRANT_FUZZ_CHECK(net.bytes_per_second == 0 || net.bytes_per_second >= 1024);
  HYDRANT_FUZZ_CHECK(net.credits >= 1 && net.credits <= 4096 && net.cells <= 4096);
  HYDRANT_FUZZ_CHECK(net.depth >= 1 && net.depth <= 1u << 20);
  HYDRANT_FUZZ_CHECK(!net.pins_are_fake || (net.has_pins && net.pin_bytes == 0));
  HYDRANT_FUZZ_CHECK(net.pin_bytes == 0 || (net.has_pins && net.pin_bytes >= 4096));
  HYDRANT_FUZZ_CHECK(!(injection.send_only && net.has_pins));
  HYDRANT_FUZZ_CHECK(injection.has_network || is_same(net, InjectedNetwork{}));
}

// "never" is a time of some knobs, and 0 there: none of a network.
bool has_never(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower.find("never") != lower.npos;
}

void check_injection(std::string_view text) {
  Injection before;
  before.network.cells = 4711;
  Injection injection = before;
  if (parse_injection(text, &injection) != Status::kOk) {
    HYDRANT_FUZZ_CHECK(is_same(injection, before));
    HYDRANT_FUZZ_CHECK(std::string_view(last_error_text()).starts_with("HYDRANT_INJECT is '"));
    return;
  }
  check_limits(injection);
  HYDRANT_FUZZ_CHECK(!has_never(text));
  Injection again;
  HYDRANT_FUZZ_CHECK(parse_injection(text_of(injection), &again) == Status::kOk);
  HYDRANT_FUZZ_CHECK(is_same(injection, again));
}

// ---- HYDRANT_IBV_PORTS ----

#if HYDRANT_HAVE_IBV
using namespace ibv;

struct Simulated {
  const char* name;
  uint32_t ports;
  uint32_t gids;
  bool is_up;
  bool is_ethernet;
};
constexpr Simulated kDevices[] = {{"a", 2, 1, true, true},
                                  {"ib0", 1, 1, true, false},
                                  {"down0", 1, 1, false, true},
                                  {"b", 2, 2, true, true}};

bool add_devices() {
  fake_verbs::reset();
  for (const Simulated& one : kDevices) {
    fake_verbs::Device device{.name = one.name, .ports = static_cast<int>(one.ports)};
    if (!one.is_up) device.state = IBV_PORT_DOWN;
    device.ethernet = one.is_ethernet;
    device.lid = one.is_ethernet ? 0 : 3;
    device.gids.clear();
    for (uint32_t i = 0; i < one.gids; ++i)
      device.gids.push_back(fake_verbs::ipv4_gid(static_cast<uint8_t>(i + 1)));
    fake_verbs::add_device(device);
  }
  return true;
}

// DEVICE[:PORT[:GID]], independent of ibv_port_choice.cpp.
struct WantedPort {
  bool is_good = true;
  std::string device;
  uint32_t port = kAny;
  uint32_t gid = kAny;
};

uint32_t read_small(std::string_view text, bool* is_good) {
  uint32_t value = 0;
  for (const char c : text) {
    *is_good = *is_good && c >= '0' && c <= '9' && value <= UINT8_MAX;
    value = *is_good ? value * 10 + static_cast<uint32_t>(c - '0') : 0;
  }
  *is_good = *is_good && !text.empty() && value <= UINT8_MAX;
  return value;
}

WantedPort read_item(std::string item) {
  item.erase(0, std::min(item.find_first_not_of(' '), item.size()));
  while (!item.empty() && item.back() == ' ') item.pop_back();
  WantedPort wanted;
  const size_t colon = item.find(':');
  wanted.device = item.substr(0, colon);
  wanted.is_good = !wanted.device.empty();
  if (colon == item.npos) return wanted;
  const std::string rest = item.substr(colon + 1);
  const size_t second = rest.find(':');
  wanted.port = read_small(rest.substr(0, second), &wanted.is_good);
  if (wanted.port == 0) wanted.is_good = false;
  if (second != rest.npos) wanted.gid = read_small(rest.substr(second + 1), &wanted.is_good);
  return wanted;
}

std::vector<WantedPort> read_items(std::string_view text) {
  std::vector<WantedPort> items;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    items.push_back(read_item(std::string(text.substr(0, comma))));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return items;
}

struct Choice {
  const Simulated* device = nullptr;
  uint32_t port = 0;
  uint32_t gid = 0;
};

void take(const WantedPort& wanted, const Simulated& device, size_t most,
          std::vector<Choice>* chosen) {
  if (wanted.device != "*" && wanted.device != device.name) return;
  const bool is_usable = device.is_up && (wanted.gid == kAny || wanted.gid < device.gids);
  for (uint32_t port = 1; port <= device.ports && chosen->size() < most; ++port) {
    const bool is_taken = std::any_of(chosen->begin(), chosen->end(), [&](const Choice& one) {
      return one.device == &device && one.port == port;
    });
    if (!is_usable || is_taken || (wanted.port != kAny && wanted.port != port)) continue;
    if (!chosen->empty() && chosen->front().device->is_ethernet != device.is_ethernet) continue;
    chosen->push_back({&device, port, wanted.gid == kAny ? 0 : wanted.gid});
  }
}

std::vector<Choice> expected_choice(const std::vector<WantedPort>& items, size_t most) {
  std::vector<Choice> chosen;
  for (const WantedPort& wanted : items) {
    for (const Simulated& device : kDevices) take(wanted, device, most, &chosen);
  }
  return chosen;
}

bool is_port(const Port& port, const Choice& choice) {
  return std::string_view(port.name) == choice.device->name && port.number == choice.port &&
         port.gid_index == choice.gid && port.is_ethernet == choice.device->is_ethernet;
}

void check_reports(const PortReports& reports, const std::vector<Choice>& chosen) {
  size_t count = 0;
  for (const PortReport& report : reports.all) {
    HYDRANT_FUZZ_CHECK(report.is_usable == report.reason.empty());
    HYDRANT_FUZZ_CHECK((report.is_usable && !report.is_chosen) == !report.left_out.empty());
    if (!report.is_chosen) continue;
    ++count;
    HYDRANT_FUZZ_CHECK(report.place < chosen.size() && is_port(report.port, chosen[report.place]));
  }
  HYDRANT_FUZZ_CHECK(count == chosen.size() && reports.why.empty() == (count != 0));
}

void check_ports(const std::string& text, uint32_t most) {
  static const bool has_devices = add_devices();
  HYDRANT_FUZZ_CHECK(has_devices);
  // No memory node is known, so that no device is nearer than another.
  constexpr const char* kRoot = "/nonexistent";
  const std::vector<WantedPort> items = read_items(text);
  const bool is_good =
      std::all_of(items.begin(), items.end(), [](const WantedPort& one) { return one.is_good; });
  std::vector<Choice> expected;
  if (is_good) expected = expected_choice(items, most);
  // The only port of InfiniBand is the best.
  if (text.empty()) expected = {{&kDevices[1], 1, 0}};
  Ports ports;
  const Status status = open_ports(text.c_str(), most, &ports, {.root = kRoot});
  HYDRANT_FUZZ_CHECK((status == Status::kBadArg) == !is_good);
  HYDRANT_FUZZ_CHECK((status == Status::kOk) == !expected.empty());
  HYDRANT_FUZZ_CHECK(status == Status::kOk || last_error_text()[0] != '\0');
  HYDRANT_FUZZ_CHECK(ports.count == expected.size());
  for (uint32_t i = 0; i < ports.count; ++i) HYDRANT_FUZZ_CHECK(is_port(ports.all[i], expected[i]));
  close_ports(ports);
  check_reports(report_ports(text.c_str(), most, {.root = kRoot}), expected);
  HYDRANT_FUZZ_CHECK(fake_verbs::live().none());
}
#endif

}  // namespace
}  // namespace hydrant::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant::fuzz;
  if (size > 1024) return 0;
  const GuardedCopy text({data, size});
  check_injection(text.text());
#if HYDRANT_HAVE_IBV
  // The variable's text has no zeros.
  const std::string ports(text.text().substr(0, text.text().find('\0')));
  check_ports(ports.substr(0, 128), 1 + static_cast<uint32_t>(size % hydrant::ibv::kMaxRails));
#endif
  return 0;
}
