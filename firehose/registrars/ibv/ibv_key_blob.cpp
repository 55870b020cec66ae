// Encodes the verbs keys that are sent to peers, and checks those that peers send. IbvRegistrar and
// RailRegistrar export and import keys with it.
#include "firehose/registrars/ibv/ibv_key_blob.hpp"

#include "firehose/base/little_endian.hpp"

namespace hydrant {
namespace {

constexpr uint32_t kKeyMagic = 0x42495948;  // "HYIB"
constexpr uint16_t kKeyVersion = 1;
// Registrations are whole pages; no machine has smaller ones.
constexpr uintptr_t kPageMask = 4095;

using little_endian::get;
using little_endian::put;

}  // namespace

void encode_ibv_key(const IbvKeyBlob& key, std::byte* blob) noexcept {
  put(blob, kKeyMagic, 4);
  put(blob + 4, kKeyVersion, 2);
  put(blob + 6, key.rail_count, 2);
  put(blob + 8, key.range.addr, 8);
  put(blob + 16, key.range.len, 8);
  put(blob + 24, key.rkey, 4);
  put(blob + 28, 0, 4);
  for (uint32_t i = 0; i < key.rail_count; ++i)
    put(blob + ibv_blob_bytes(i), key.rail_rkeys[i], sizeof(uint32_t));
}

Status decode_ibv_key(const std::byte* blob, size_t len, IbvKeyBlob* key) noexcept {
  if (blob == nullptr || len < kIbvBlobBytes) {
    return fail(Status::kBadArg, "a verbs key has %zu bytes or more, this one %zu", kIbvBlobBytes,
                len);
  }
  if (get(blob, 4) != kKeyMagic)
    return fail(Status::kBadArg, "not a verbs key: wrong magic number");
  const uint64_t version = get(blob + 4, 2);
  if (version != kKeyVersion) {
    return fail(Status::kBadArg, "a verbs key of version %u; this side speaks version %u",
                static_cast<unsigned>(version), static_cast<unsigned>(kKeyVersion));
  }
  const auto rail_count = static_cast<uint32_t>(get(blob + 6, 2));
  if (rail_count >= kMaxKeyPorts || len != ibv_blob_bytes(rail_count)) {
    return fail(Status::kBadArg, "a verbs key of %u ports (%u are the most) in %zu bytes",
                rail_count + 1, kMaxKeyPorts, len);
  }
  if (get(blob + 28, 4) != 0) {
    return fail(Status::kBadArg, "a verbs key with reserved bytes that are not zero");
  }
  const MemoryRange range{get(blob + 8, 8), get(blob + 16, 8)};
  const bool wraps = range.end() <= range.addr;  // also for a length of zero
  if (wraps || ((range.addr | range.len) & kPageMask) != 0) {
    return fail(Status::kBadArg, "a verbs key for no range of pages: address %#lx, length %zu",
                static_cast<unsigned long>(range.addr), range.len);
  }
  *key = {range, static_cast<uint32_t>(get(blob + 24, 4))};
  key->rail_count = rail_count;
  for (uint32_t i = 0; i < rail_count; ++i)
    key->rail_rkeys[i] = static_cast<uint32_t>(get(blob + ibv_blob_bytes(i), sizeof(uint32_t)));
  return Status::kOk;
}

}  // namespace hydrant
