#include "rdma/injected_keys.hpp"

namespace hydrant {
namespace {

constexpr uint32_t kMagic = 0x504e5948;  // "HYNP"
constexpr uint16_t kVersion = 1;
constexpr uint64_t kRecordMask = 31;
// Registrations are whole pages; no machine has smaller ones.
constexpr uintptr_t kPageMask = 4095;

void write(std::byte* out, uint64_t value, size_t bytes) noexcept {
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(value >> (8 * i));
}

uint64_t read(const std::byte* in, size_t bytes) noexcept {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= std::to_integer<uint64_t>(in[i]) << (8 * i);
  return value;
}

}  // namespace

void encode_injected_key(const InjectedKey& key, std::byte* blob) noexcept {
  write(blob, kMagic, 4);
  write(blob + 4, kVersion, 2);
  write(blob + 6, 0, 2);
  write(blob + 8, key.record, 8);
  write(blob + 16, key.nonce, 8);
  write(blob + 24, key.range.addr, 8);
  write(blob + 32, key.range.len, 8);
  write(blob + 40, key.access, 4);
  write(blob + 44, 0, 4);
}

Status decode_injected_key(const std::byte* blob, size_t len, InjectedKey* key) noexcept {
  if (blob == nullptr || len != kInjectedBlobBytes) {
    return fail(Status::kBadArg, "a key of the injected network has %zu bytes, this one %zu",
                kInjectedBlobBytes, len);
  }
  if (read(blob, 4) != kMagic)
    return fail(Status::kBadArg, "not a key of the injected network: wrong magic number");
  const uint64_t version = read(blob + 4, 2);
  if (version != kVersion) {
    return fail(Status::kBadArg,
                "an injected network's key of version %u; this side speaks version %u",
                static_cast<unsigned>(version), static_cast<unsigned>(kVersion));
  }
  if (read(blob + 6, 2) != 0 || read(blob + 44, 4) != 0) {
    return fail(Status::kBadArg, "an injected network's key with reserved bytes that are not zero");
  }
  const uint64_t record = read(blob + 8, 8);
  const uint64_t nonce = read(blob + 16, 8);
  if (record == 0 || (record & kRecordMask) != 0 || nonce == 0) {
    return fail(Status::kBadArg,
                "an injected network's key of no registration: record %#llx, number %#llx",
                static_cast<unsigned long long>(record), static_cast<unsigned long long>(nonce));
  }
  const MemoryRange range{read(blob + 24, 8), read(blob + 32, 8)};
  const bool wraps = range.end() <= range.addr;  // also for a length of zero
  if (wraps || ((range.addr | range.len) & kPageMask) != 0) {
    return fail(Status::kBadArg,
                "an injected network's key for no range of pages: address %#llx, length %zu",
                static_cast<unsigned long long>(range.addr), range.len);
  }
  const auto access = static_cast<uint32_t>(read(blob + 40, 4));
  if ((access & ~bits(Access::kAll)) != 0)
    return fail(Status::kBadArg, "an injected network's key with unknown rights: %#x", access);
  *key = {record, nonce, range, access, InjectedKey::kImported};
  return Status::kOk;
}

}  // namespace hydrant
