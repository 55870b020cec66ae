// The registrar of a transport that talks by several ports: memory is registered once with each device that
// they belong to, in the domain that the transport has there.
//
// A key is a key of IbvRegistrar's for each port, the first port's first; those of one device are the same.
// What a peer exports has a key for each of its ports; those that this rank has no port for are left out.
// A registration that one device refuses is undone with the others, and answered as that device's registrar
// answers.
//
// Threads: as every registrar. Fork: as IbvRegistrar over a domain that is not its own.
#pragma once

#include "firehose/base/registrar.hpp"
#include "rdma/ibv/device/ibv_port.hpp"
#include "rdma/ibv/registrar/ibv_registrar.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace hydrant {

class RailRegistrar final : public Registrar {
 public:
  // One domain for each port, at least one and at most ibv::kMaxRails; they must outlive the registrar.
  // `kept_bytes`: as IbvRegistrar::keep_back(). Errors: those of IbvRegistrar::create().
  static Status create(std::span<ibv_pd* const> domains, std::unique_ptr<Registrar>* out,
                       uint64_t kept_bytes = 0) noexcept;

  const RegistrarTraits& traits() const noexcept override { return traits_; }
  Status pin(MemoryRange range, Access access, std::byte* key) noexcept override;
  // What cannot be undone with one device is undone with the others.
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
  // `one(registrar, key)` with each device; all or none.
  template <typename One>
  Status pin_with_all(MemoryRange range, std::byte* key, One one) noexcept;
  // Writes the keys of all ports, given those of the devices.
  void store(const IbvKey* of_devices, std::byte* key) const noexcept;
  // The key of the port by which device `i` was found first.
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
