// Encodes the keys of memory pinned for the injected network, and checks those that peers send.
// injected_pins.cpp exports and imports keys with it.
#include "rdma/injected/injected_keys.hpp"

#include "firehose/base/little_endian.hpp"

namespace hydrant {
namespace {

constexpr uint32_t kMagic = 0x504e5948;  // "HYNP"
constexpr uint16_t kVersion = 1;
constexpr uint64_t kRecordMask = 31;
// Registrations are whole pages; no supported machine has smaller ones.
constexpr uintptr_t kPageMask = 4095;

using little_endian::get;
using little_endian::put;

}  // namespace

void encode_injected_key(const InjectedKey& key, std::byte* blob) noexcept {
  put(blob, kMagic, 4);
  put(blob + 4, kVersion, 2);
  put(blob + 6, 0, 2);
  put(blob + 8, key.record, 8);
  put(blob + 16, key.nonce, 8);
  put(blob + 24, key.range.addr, 8);
  put(blob + 32, key.range.len, 8);
  put(blob + 40, key.access, 4);
  put(blob + 44, 0, 4);
}

Status decode_injected_key(const std::byte* blob, size_t len, InjectedKey* key) noexcept {
  if (blob == nullptr || len != kInjectedBlobBytes) {
    return fail(Status::kBadArg, "a key of the injected network has %zu bytes, this one %zu",
                kInjectedBlobBytes, len);
  }
  if (get(blob, 4) != kMagic)
    return fail(Status::kBadArg, "not a key of the injected network: wrong magic number");
  const uint64_t version = get(blob + 4, 2);
  if (version != kVersion) {
    return fail(Status::kBadArg,
                "an injected network's key of version %u; this side speaks version %u",
                static_cast<unsigned>(version), static_cast<unsigned>(kVersion));
  }
  if (get(blob + 6, 2) != 0 || get(blob + 44, 4) != 0) {
    return fail(Status::kBadArg, "an injected network's key with reserved bytes that are not zero");
  }
  const uint64_t record = get(blob + 8, 8);
  const uint64_t nonce = get(blob + 16, 8);
  if (record == 0 || (record & kRecordMask) != 0 || nonce == 0) {
    return fail(Status::kBadArg,
                "an injected network's key of no registration: record %#llx, number %#llx",
                static_cast<unsigned long long>(record), static_cast<unsigned long long>(nonce));
  }
  const MemoryRange range{get(blob + 24, 8), get(blob + 32, 8)};
  const bool wraps = range.end() <= range.addr;  // also for a length of zero
  if (wraps || ((range.addr | range.len) & kPageMask) != 0) {
    return fail(Status::kBadArg,
                "an injected network's key for no range of pages: address %#llx, length %zu",
                static_cast<unsigned long long>(range.addr), range.len);
  }
  const auto access = static_cast<uint32_t>(get(blob + 40, 4));
  if ((access & ~bits(Access::kAll)) != 0)
    return fail(Status::kBadArg, "an injected network's key with unknown rights: %#x", access);
  *key = {record, nonce, range, access, InjectedKey::kImported};
  return Status::kOk;
}

}  // namespace hydrant
