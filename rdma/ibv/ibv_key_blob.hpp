// How a verbs key travels to a peer: 32 bytes, little-endian, fixed.
//
//    offset  bytes  field
//         0      4  magic "HYIB"
//         4      2  version, 1
//         6      2  zero
//         8      8  first address
//        16      8  length in bytes
//        24      4  rkey
//        28      4  zero
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

inline constexpr size_t kIbvBlobBytes = 32;

struct IbvKeyBlob {
  MemoryRange range;
  uint32_t rkey = 0;
};

// Writes kIbvBlobBytes.
void encode_ibv_key(const IbvKeyBlob& key, std::byte* blob) noexcept;

// Reads a peer's blob, in which anything may be wrong. *key is unchanged on failure.
// Errors: kBadArg, with a text that says what is wrong.
Status decode_ibv_key(const std::byte* blob, size_t len, IbvKeyBlob* key) noexcept;

}  // namespace hydrant
