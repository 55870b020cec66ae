// A registrar of your own in C++, by a derived class. The device is simulated: its keys have a local and a
// remote half, and it has room for two mebibytes.
#include <hydrant/pin_cache.hpp>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

namespace pins = hydrant::pin_cache;

namespace {

struct Key {
  std::uint32_t local, remote;
};

// The cache calls from several threads at once, hence the atomics. All overrides are noexcept.
class Device final : public pins::Registrar {
 public:
  std::atomic<std::uint32_t> registered{0}, deregistered{0};

  Facts facts() const noexcept override {
    Facts facts;
    facts.name = "imagined";
    facts.key_bytes = sizeof(Key);
    facts.charge_scope = HYDRANT_SCOPE_DEVICE;
    facts.max_charge_bytes = kRoomBytes;
    return facts;
  }

  int pin(std::uintptr_t, std::size_t len, std::uint32_t, void* key) noexcept override {
    if (used_bytes_.fetch_add(len) + len > kRoomBytes) {
      used_bytes_ -= len;
      hydrant_set_error_text("the device has no room left");
      return GASNET_ERR_NOT_READY;  // the cache evicts a region and retries
    }
    const std::uint32_t serial = ++registered;
    const Key made{serial, serial + 1000};
    std::memcpy(key, &made, sizeof made);
    return GASNET_OK;
  }

  int unpin(std::uintptr_t, std::size_t len, const void*) noexcept override {
    used_bytes_ -= len;
    ++deregistered;
    return HYDRANT_UNPIN_DONE;
  }

 private:
  static constexpr std::size_t kRoomBytes = std::size_t{2} << 20;
  std::atomic<std::size_t> used_bytes_{0};
};

}  // namespace

int main() {
  std::vector<char> buffer(std::size_t{1} << 20);
  Device device;  // before the domain, so that it outlives it
  {
    pins::DomainOptions options;
    options.registrar = &device;
    const pins::Domain domain(options);
    if (!domain) {
      std::fprintf(stderr, "no domain: %s\n", domain.error());
      return 1;
    }
    for (int i = 0; i < 3; ++i) {
      const pins::Pin pin = domain.pin(buffer.data(), buffer.size(), HYDRANT_REMOTE_WRITE);
      if (!pin) {
        std::fprintf(stderr, "not pinned: %s\n", pin.error());
        return 1;
      }
      const Key key = pin.key_as<Key>();
      std::printf("pinned with keys %u and %u\n", key.local, key.remote);
    }  // the hold ends here, the registration does not
    const hydrant_stats_t stats = domain.stats();
    std::printf("hits %llu, misses %llu\n",
                static_cast<unsigned long long>(stats.hits + stats.refills),
                static_cast<unsigned long long>(stats.misses));
  }
  std::printf("registered %u, deregistered %u\n", device.registered.load(),
              device.deregistered.load());
  return device.registered == device.deregistered ? 0 : 1;
}
