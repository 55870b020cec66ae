// The wire format of a verbs key: 32 bytes, and 4 for each rail (rdma/ibv/queue/rails.hpp), little-endian.
//
//    offset  bytes  field
//         0      4  magic "HYIB"
//         4      2  version, 1
//         6      2  number of rails
//         8      8  first address
//        16      8  length in bytes
//        24      4  rkey
//        28      4  zero
//        32      4  rkey of the first rail, and so on
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

inline constexpr size_t kIbvBlobBytes = 32;
// Ports in one key, at most.
inline constexpr uint32_t kMaxKeyPorts = 4;

struct IbvKeyBlob {
  MemoryRange range;
  uint32_t rkey = 0;
  uint32_t rail_count = 0;
  uint32_t rail_rkeys[kMaxKeyPorts - 1] = {};
};

constexpr size_t ibv_blob_bytes(uint32_t rail_count) noexcept {
  return kIbvBlobBytes + rail_count * sizeof(uint32_t);
}

// Writes ibv_blob_bytes().
void encode_ibv_key(const IbvKeyBlob& key, std::byte* blob) noexcept;

// Decodes a peer's blob and checks every field. *key is unchanged on failure. Errors: kBadArg, with the fault
// in the text.
Status decode_ibv_key(const std::byte* blob, size_t len, IbvKeyBlob* key) noexcept;

}  // namespace hydrant
