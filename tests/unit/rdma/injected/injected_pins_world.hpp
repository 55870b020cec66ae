// Memory to pin, the adapters that it is pinned for, and keys on their way between them.
#pragma once

#include "rdma/injected/injected_keys.hpp"
#include "rdma/injected/injected_pins.hpp"
#include "tests/support/sizes.hpp"
#include "tests/unit/rdma/injected/injected_world.hpp"

#include <array>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace hydrant::testing {

inline constexpr Access kAllRights = Access::kAll;

// Whole pages, filled with dots.
struct Pages {
  explicit Pages(size_t count, int protection = PROT_READ | PROT_WRITE) : bytes(count * kPage) {
    data = static_cast<char*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(data, '.', bytes);
    if (protection != (PROT_READ | PROT_WRITE)) {
      EXPECT_EQ(mprotect(data, bytes, protection), 0);
    }
  }
  ~Pages() { munmap(data, bytes); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  MemoryRange range() const { return {at(data), bytes}; }
  MemoryRange range(size_t first, size_t count) const {
    return {at(data) + first * kPage, count * kPage};
  }
  std::string text(size_t from, size_t length) const { return {data + from, length}; }
  bool is_untouched() const { return text(0, bytes) == std::string(bytes, '.'); }
  size_t bytes;
  char* data;
};

using Key = std::array<std::byte, sizeof(InjectedKey)>;
using Blob = std::array<std::byte, kInjectedBlobBytes>;

inline Key pinned(Registrar& registrar, MemoryRange range, Access access = kAllRights) {
  Key key{};
  EXPECT_EQ(registrar.pin(range, access, key.data()), Status::kOk) << last_error_text();
  return key;
}
inline Blob exported(Registrar& registrar, MemoryRange range, const Key& key) {
  Blob blob{};
  size_t len = blob.size();
  EXPECT_EQ(registrar.export_key(range, key.data(), blob.data(), &len), Status::kOk)
      << last_error_text();
  EXPECT_EQ(len, blob.size());
  return blob;
}
inline Key imported(Registrar& registrar, const Blob& blob) {
  Key key{};
  EXPECT_EQ(registrar.import_key(blob.data(), blob.size(), key.data()), Status::kOk)
      << last_error_text();
  return key;
}

// The pins of an adapter, without a network.
struct Adapter {
  explicit Adapter(const InjectedPins::Limits& limits = {.is_fake = true}) {
    EXPECT_EQ(InjectedPins::open(limits, wire, &pins), Status::kOk) << last_error_text();
    registrar = pins->make_registrar();
  }
  Mutex wire;
  std::unique_ptr<InjectedPins> pins;
  std::unique_ptr<Registrar> registrar;
};

// Rank 0 of `ranks` on a network between pinned memory, and rank 1's adapter; one page each, pinned with all
// rights.
struct PinnedNode : InjectedNode {
  explicit PinnedNode(InjectedNetwork network, bool has_thread = false, uint32_t ranks = 2)
      : InjectedNode(with_pins(network), ranks, has_thread), here(net->pinned()->make_registrar()) {
    EXPECT_NE(here, nullptr) << last_error_text();
    local = pinned(*here, mine.range());
    remote_owned = pinned(*there.registrar, theirs.range());
    remote = imported(*here, exported(*there.registrar, theirs.range(), remote_owned));
  }
  static InjectedNetwork with_pins(InjectedNetwork network) {
    network.has_pins = true;
    network.pins_are_fake = true;
    return network;
  }
  Status put(size_t to, size_t from, size_t bytes, Told* told) {
    return net->pinned()->put(1, {at(theirs.data + to), remote.data()},
                              {at(mine.data + from), local.data()}, bytes, told);
  }
  Status get(size_t to, size_t from, size_t bytes, Told* told) {
    return net->pinned()->get(1, {at(theirs.data + from), remote.data()},
                              {at(mine.data + to), local.data()}, bytes, told);
  }
  UnpinResult unpin_mine() { return here->unpin(mine.range(), local.data()); }
  UnpinResult unpin_theirs() { return there.registrar->unpin(theirs.range(), remote_owned.data()); }

  Adapter there;
  Pages mine{1};
  Pages theirs{1};
  std::unique_ptr<Registrar> here;
  Key local{};
  Key remote_owned{};
  Key remote{};
};

// The bytes that this process has locked.
inline uint64_t locked_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmLck:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

}  // namespace hydrant::testing
