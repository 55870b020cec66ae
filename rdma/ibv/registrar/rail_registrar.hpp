// The registrar of a transport that uses several ports. Memory is registered once with each device of these
// ports, in the transport's protection domain on that device.
//
// A key is an array of IbvKeys, one for each port, in the order of the ports; ports of one device have the
// same. A key that a peer exports has an entry for each of its ports; import_key() drops entries beyond this
// rank's ports. If a device refuses a registration, it is undone with the others, and pin() fails with the
// status and text of that device's registrar.
//
// Threads: as every registrar. Fork: as IbvRegistrar over a domain that is not its own.
#pragma once

#include "firehose/base/registrar.hpp"
#include "firehose/registrars/ibv/ibv_registrar.hpp"
#include "rdma/ibv/device/ibv_port.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace hydrant {

class RailRegistrar final : public Registrar {
 public:
  // `domains`: a protection domain for each port, 1 to ibv::kMaxRails; they must outlive the registrar.
  // `kept_bytes`: as IbvRegistrar::keep_back(). Errors: those of IbvRegistrar::create().
  static Status create(std::span<ibv_pd* const> domains, std::unique_ptr<Registrar>* out,
                       uint64_t kept_bytes = 0, const IbvRegistrarOptions& options = {}) noexcept;

  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override;
  // Unpins with all devices, even if one of them fails, and returns the worst result.
  UnpinResult unpin(MemoryRange range, const std::byte* key) noexcept override;
  Status export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                    size_t* len) noexcept override;
  Status import_key(const std::byte* blob, size_t len, std::byte* key) noexcept override;
  Status implicit_key(Access access, std::byte* key) noexcept override;
  Status pin_dmabuf(int fd, uint64_t offset, MemoryRange range, Access access,
                    std::byte* key) noexcept override;
  void forget_in_child() noexcept override;

 private:
  RailRegistrar() noexcept = default;
  void read_traits() noexcept;
  // Calls pin_with(registrar, key) for each device; undoes all pins if a device refuses.
  template <typename Pin>
  Status pin_with_all(MemoryRange range, std::byte* key, Pin pin_with) noexcept;
  // Writes the keys of all ports, given those of the devices.
  void store(const IbvKey* of_devices, std::byte* key) const noexcept;
  // The key of device `i`, at the place of its first port.
  const std::byte* key_of(uint32_t i, const std::byte* key) const noexcept {
    return key + size_t{first_port_[i]} * sizeof(IbvKey);
  }

  RegistrarTraits traits_;
  uint32_t ports_ = 0;
  uint32_t devices_ = 0;
  uint32_t device_of_[ibv::kMaxRails] = {};   // by port
  uint32_t first_port_[ibv::kMaxRails] = {};  // by device
  std::unique_ptr<IbvRegistrar> registrars_[ibv::kMaxRails];
};

}  // namespace hydrant
