// Registers memory with all devices of a process that uses several ports, or with none of them.
// IbvTransport creates it; the pin cache then calls it on misses and evictions.
#include "rdma/ibv/registrar/rail_registrar.hpp"

#include "firehose/base/machine/machine_limits.hpp"
#include "firehose/registrars/ibv/ibv_key_blob.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

namespace hydrant {

using ibv::kMaxRails;

namespace {

static_assert(kMaxRails == kMaxKeyPorts);

IbvKey load(const std::byte* key, uint32_t port) noexcept {
  IbvKey loaded;
  std::memcpy(&loaded, key + size_t{port} * sizeof loaded, sizeof loaded);
  return loaded;
}

}  // namespace

Status RailRegistrar::create(std::span<ibv_pd* const> domains, std::unique_ptr<Registrar>* out,
                             uint64_t kept_bytes, const IbvRegistrarOptions& options) noexcept {
  if (domains.empty() || domains.size() > kMaxRails)
    return fail(Status::kBadArg, "a registrar of %zu ports: 1 to %u", domains.size(), kMaxRails);
  std::unique_ptr<RailRegistrar> made(new (std::nothrow) RailRegistrar);
  if (made == nullptr) return fail(Status::kResource, "no memory for a registrar");
  for (ibv_pd* domain : domains) {
    uint32_t device = 0;
    while (device < made->devices_ && made->registrars_[device]->protection_domain() != domain)
      ++device;
    if (device == made->devices_) {
      const Status status = IbvRegistrar::create(domain, &made->registrars_[device], options);
      if (status != Status::kOk) return status;
      made->first_port_[made->devices_++] = made->ports_;
    }
    made->device_of_[made->ports_++] = device;
  }
  made->registrars_[0]->keep_back(kept_bytes);
  made->read_traits();
  *out = std::move(made);
  return Status::kOk;
}

// Combines the traits: those that all devices support. Each device charges the process for its own
// registrations, so max_charge_bytes is divided by their number.
void RailRegistrar::read_traits() noexcept {
  traits_ = registrars_[0]->traits();
  for (uint32_t i = 1; i < devices_; ++i) {
    const RegistrarTraits& other = registrars_[i]->traits();
    traits_.max_region_bytes = std::min(traits_.max_region_bytes, other.max_region_bytes);
    traits_.max_regions = std::min(traits_.max_regions, other.max_regions);
    traits_.supported = traits_.supported & other.supported;
    traits_.unpin_before_release |= other.unpin_before_release;
  }
  if (traits_.max_charge_bytes != kUnlimited) traits_.max_charge_bytes /= devices_;
  traits_.key_bytes = static_cast<uint32_t>(ports_ * sizeof(IbvKey));
  traits_.export_bytes = static_cast<uint32_t>(ibv_blob_bytes(ports_ - 1));
}

void RailRegistrar::store(const IbvKey* of_devices, std::byte* key) const noexcept {
  for (uint32_t port = 0; port < ports_; ++port)
    std::memcpy(key + port * sizeof(IbvKey), &of_devices[device_of_[port]], sizeof(IbvKey));
}

template <typename Pin>
Status RailRegistrar::pin_with_all(MemoryRange range, std::byte* key, Pin pin_with) noexcept {
  IbvKey keys[kMaxRails];
  for (uint32_t i = 0; i < devices_; ++i) {
    auto* made = reinterpret_cast<std::byte*>(&keys[i]);
    const Status status = pin_with(*registrars_[i], made);
    if (status == Status::kOk) continue;
    char why[512];
    std::snprintf(why, sizeof why, "%s", last_error_text());
    bool is_undone = true;
    while (i-- != 0) {
      const auto* key_there = reinterpret_cast<const std::byte*>(&keys[i]);
      is_undone &= registrars_[i]->unpin(range, key_there) == UnpinResult::kDone;
    }
    // Status and text are those of the refusal, even if the rest could not be undone.
    return is_undone ? status
                     : fail(status, "%s (and an earlier registration could not be undone)", why);
  }
  store(keys, key);
  return Status::kOk;
}

Status RailRegistrar::pin(MemoryRange range, Access access, std::byte* key) noexcept {
  return pin_with_all(range, key, [&](IbvRegistrar& registrar, std::byte* made) {
    return registrar.pin(range, access, made);
  });
}

Status RailRegistrar::pin_dmabuf(int fd, uint64_t offset, MemoryRange range, Access access,
                                 std::byte* key) noexcept {
  return pin_with_all(range, key, [&](IbvRegistrar& registrar, std::byte* made) {
    return registrar.pin_dmabuf(fd, offset, range, access, made);
  });
}

UnpinResult RailRegistrar::unpin(MemoryRange range, const std::byte* key) noexcept {
  UnpinResult worst = UnpinResult::kDone;
  for (uint32_t i = 0; i < devices_; ++i)
    worst = std::max(worst, registrars_[i]->unpin(range, key_of(i, key)));
  return worst;
}

Status RailRegistrar::export_key(MemoryRange range, const std::byte* key, std::byte* blob,
                                 size_t* len) noexcept {
  if (*len < traits_.export_bytes) {
    const size_t room = std::exchange(*len, traits_.export_bytes);
    return fail(Status::kBadArg, "an exported key needs %u bytes, there are %zu",
                traits_.export_bytes, room);
  }
  const IbvKey first = load(key, 0);
  if (first.mr == nullptr)
    return fail(Status::kBadArg, "only a key of memory pinned here can be exported");
  IbvKeyBlob out{range, first.rkey};
  out.rail_count = ports_ - 1;
  for (uint32_t i = 0; i < out.rail_count; ++i) out.rail_rkeys[i] = load(key, i + 1).rkey;
  encode_ibv_key(out, blob);
  *len = traits_.export_bytes;
  return Status::kOk;
}

Status RailRegistrar::import_key(const std::byte* blob, size_t len, std::byte* key) noexcept {
  IbvKeyBlob in;
  if (const Status status = decode_ibv_key(blob, len, &in); status != Status::kOk) return status;
  // A port that the peer lacks gets a key of zero, which no operation to that peer uses.
  for (uint32_t port = 0; port < ports_; ++port) {
    IbvKey made;
    if (port == 0) made.rkey = in.rkey;
    if (port != 0 && port <= in.rail_count) made.rkey = in.rail_rkeys[port - 1];
    std::memcpy(key + port * sizeof made, &made, sizeof made);
  }
  return Status::kOk;
}

Status RailRegistrar::implicit_key(Access access, std::byte* key) noexcept {
  IbvKey keys[kMaxRails];
  for (uint32_t i = 0; i < devices_; ++i) {
    const Status status =
        registrars_[i]->implicit_key(access, reinterpret_cast<std::byte*>(&keys[i]));
    if (status != Status::kOk) return status;
  }
  store(keys, key);
  return Status::kOk;
}

void RailRegistrar::forget_in_child() noexcept {
  for (uint32_t i = 0; i < devices_; ++i) registrars_[i]->forget_in_child();
}

}  // namespace hydrant
