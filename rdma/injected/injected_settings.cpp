// Parses HYDRANT_INJECT; errors name the wrong item. libhydrant calls parse_injection() through the table of
// injected_object.cpp.
#include "rdma/injected/injected_settings.hpp"

#include "firehose/base/config/config_grammar.hpp"

#include <array>

namespace hydrant {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
// The range of "reorder" without a value if there is no delay.
constexpr uint64_t kReorderNs = 20'000;
constexpr const char* kKnown =
    "send_only, or some of delay=TIME, bandwidth=SIZE (bytes per second), credits=COUNT, "
    "window=SIZE, "
    "cells=COUNT, depth=COUNT, reorder or reorder=TIME, seed=COUNT, pins or pins=SIZE or "
    "pins=fake, "
    "with commas between";

enum class Kind { kTime, kSize, kCount };
struct Item {
  std::string_view name;
  Kind kind;
  uint64_t min;
  uint64_t max;
  const char* accepted;
  void (*set)(InjectedNetwork&, uint64_t) noexcept;
};

constexpr std::array<Item, 9> kItems = {{
    {"delay", Kind::kTime, 0, kSecondNs, "a time up to 1s, such as 5us",
     [](InjectedNetwork& net, uint64_t value) noexcept { net.delay_ns = value; }},
    {"bandwidth", Kind::kSize, 1024, uint64_t{1} << 50, "bytes per second from 1K, such as 10G",
     [](InjectedNetwork& net, uint64_t value) noexcept { net.bytes_per_second = value; }},
    {"credits", Kind::kCount, 1, 4096, "a count from 1 to 4096",
     [](InjectedNetwork& net, uint64_t value) noexcept {
       net.credits = static_cast<uint32_t>(value);
     }},
    {"window", Kind::kSize, 1, uint64_t{1} << 50, "a size from 1B, such as 64K",
     [](InjectedNetwork& net, uint64_t value) noexcept { net.window_bytes = value; }},
    {"cells", Kind::kCount, 1, 4096, "a count from 1 to 4096",
     [](InjectedNetwork& net, uint64_t value) noexcept {
       net.cells = static_cast<uint32_t>(value);
     }},
    {"depth", Kind::kCount, 1, 1 << 20, "a count from 1 to 1048576",
     [](InjectedNetwork& net, uint64_t value) noexcept {
       net.depth = static_cast<uint32_t>(value);
     }},
    {"reorder", Kind::kTime, 1, kSecondNs, "a time up to 1s, or nothing",
     [](InjectedNetwork& net, uint64_t value) noexcept { net.reorder_ns = value; }},
    {"seed", Kind::kCount, 0, UINT64_MAX, "a count",
     [](InjectedNetwork& net, uint64_t value) noexcept { net.seed = value; }},
    {"pins", Kind::kSize, 4096, uint64_t{1} << 50,
     "a size from 4K, such as 64M, or fake, or nothing",
     [](InjectedNetwork& net, uint64_t value) noexcept { net.pin_bytes = value; }},
}};

constexpr int length(std::string_view text) noexcept { return static_cast<int>(text.size()); }

std::string_view trim(std::string_view text) noexcept {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

class Parser {
 public:
  explicit Parser(std::string_view text) noexcept : text_(text) {}

  Status parse(Injection* injection) noexcept {
    for (std::string_view rest = text_; !rest.empty();) {
      const size_t comma = rest.find(',');
      if (const Status status = take(trim(rest.substr(0, comma))); status != Status::kOk)
        return status;
      rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    }
    InjectedNetwork& net = made_.network;
    if (made_.send_only && net.has_pins) {
      return fail(
          Status::kBadArg,
          "HYDRANT_INJECT is '%.*s': with send_only nothing is moved between pinned memory; "
          "leave out one of the two",
          length(text_), text_.data());
    }
    if (default_reorder_) net.reorder_ns = net.delay_ns != 0 ? 4 * net.delay_ns : kReorderNs;
    *injection = made_;
    return Status::kOk;
  }

 private:
  Status take(std::string_view item) noexcept {
    const size_t equals = item.find('=');
    const bool has_value = equals != std::string_view::npos;
    const std::string_view name = trim(item.substr(0, equals));
    const std::string_view value = has_value ? trim(item.substr(equals + 1)) : "";
    if (name == "send_only" && !has_value) {
      if (made_.send_only) return twice(name);
      made_.send_only = true;
      return Status::kOk;
    }
    for (uint32_t i = 0; i < kItems.size(); ++i) {
      if (name != kItems[i].name) continue;
      if ((seen_ >> i & 1) != 0) return twice(name);
      seen_ |= 1u << i;
      made_.has_network = true;
      if (name == "reorder" && !has_value) {
        default_reorder_ = true;
        return Status::kOk;
      }
      if (name == "pins") {
        made_.network.has_pins = true;
        made_.network.pins_are_fake = value == "fake";
        if (!has_value || made_.network.pins_are_fake) return Status::kOk;
      }
      return set(kItems[i], value);
    }
    return fail(Status::kBadArg, "HYDRANT_INJECT is '%.*s': '%.*s' is not known; it takes %s",
                length(text_), text_.data(), length(item), item.data(), kKnown);
  }

  Status set(const Item& item, std::string_view text) noexcept {
    uint64_t value = 0;
    bool good = false;
    switch (item.kind) {
      case Kind::kTime: good = parse_duration(text, &value); break;
      case Kind::kSize: good = parse_size(text, 1, &value); break;
      case Kind::kCount: good = parse_count(text, &value); break;
    }
    if (!good || value < item.min || value > item.max) {
      return fail(Status::kBadArg, "HYDRANT_INJECT is '%.*s': '%.*s' for %.*s, which takes %s",
                  length(text_), text_.data(), length(text), text.data(), length(item.name),
                  item.name.data(), item.accepted);
    }
    item.set(made_.network, value);
    return Status::kOk;
  }

  Status twice(std::string_view name) const noexcept {
    return fail(Status::kBadArg, "HYDRANT_INJECT is '%.*s': %.*s is said twice", length(text_),
                text_.data(), length(name), name.data());
  }

  const std::string_view text_;
  Injection made_;
  uint32_t seen_ = 0;
  bool default_reorder_ = false;
};

}  // namespace

Status parse_injection(std::string_view text, Injection* injection) noexcept {
  return Parser(trim(text)).parse(injection);
}

}  // namespace hydrant
