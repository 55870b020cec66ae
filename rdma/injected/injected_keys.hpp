// Keys of memory pinned for the injected network, and their encoding for peers: 48 bytes, little-endian,
// fixed.
//
//    offset  bytes  field
//         0      4  magic "HYNP"
//         4      2  version, 1
//         6      2  zero
//         8      8  address of the registration's record in its owner (injected_pins.hpp), a multiple of 32
//        16      8  the registration's number, not zero
//        24      8  first address
//        32      8  length in bytes
//        40      4  rights, as in Access
//        44      4  zero
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hydrant {

// The key that a pin cache keeps in its key bytes, at any alignment.
struct InjectedKey {
  enum Kind : uint32_t { kNone, kLocal, kImported };

  uint64_t record = 0;  // own key: the record's index; a peer's: its address there
  uint64_t nonce = 0;   // unique per registration, across ranks and time
  MemoryRange range;
  uint32_t access = 0;
  uint32_t kind = kNone;

  static InjectedKey load(const std::byte* bytes) noexcept {
    InjectedKey key;
    std::memcpy(&key, bytes, sizeof key);
    return key;
  }
  void store(std::byte* bytes) const noexcept { std::memcpy(bytes, this, sizeof *this); }
};

inline constexpr size_t kInjectedBlobBytes = 48;

// Writes kInjectedBlobBytes bytes to `blob`. `key.record` is the record's address.
void encode_injected_key(const InjectedKey& key, std::byte* blob) noexcept;

// Decodes a peer's blob, which is untrusted. *key is unchanged on failure.
// Errors: kBadArg, with a text that names the wrong field.
Status decode_injected_key(const std::byte* blob, size_t len, InjectedKey* key) noexcept;

}  // namespace hydrant
