// Keys of the shared-memory registrar, and their encoding for peers. A key names a piece of a memory file
// that its owner has mapped at some addresses, and the piece's address in this process.
//
// The blob of 72 bytes, little-endian:
//
//    offset  bytes  field
//         0      4  magic "HYSM"
//         4      2  version, 1
//         6      2  zero
//         8      4  process: its pid
//        12      4  the file's descriptor in that process
//        16      8  process: its start time
//        24      8  the file's device
//        32      8  the file's inode
//        40      8  offset of the range in the file
//        48      8  first address, in the owner
//        56      8  length in bytes
//        64      4  access
//        68      4  zero
#pragma once

#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant::shm {

inline constexpr size_t kShmBlobBytes = 72;
// Ranges are whole pages; no supported machine has smaller ones.
inline constexpr size_t kMinPageBytes = 4096;

struct ShmBlob {
  uint32_t process = 0;
  uint32_t descriptor = 0;
  uint64_t start_time = 0;
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t offset = 0;
  MemoryRange range;
  Access access = Access::kLocalRead;
};

// Writes kShmBlobBytes bytes to `blob`.
void encode_shm_blob(const ShmBlob& key, std::byte* blob) noexcept;

// Decodes a peer's blob, which is untrusted. It checks that range and offset do not wrap and are whole pages,
// and that the rights are known; it does not check that the file exists. *key is unchanged on failure.
// Errors: kBadArg, with a text that names the wrong field.
Status decode_shm_blob(const std::byte* blob, size_t len, ShmBlob* key) noexcept;

// The key that the pin cache keeps for a registration. Plain bytes: the cache copies them.
struct ShmKey {
  enum Kind : uint32_t { kNone, kOwn, kImported };

  uint32_t kind = kNone;
  uint32_t access = 0;  // bits of Access
  MemoryRange range;    // addresses of the owner
  uintptr_t here = 0;   // address of range.addr in this process
  // kOwn: the place in the file.
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t offset = 0;
  uint32_t descriptor = 0;
  // kImported: the attachment that contains it.
  uint32_t attachment = 0;
  uint64_t life = 0;

  static ShmKey load(const std::byte* key) noexcept;
  void store(std::byte* key) const noexcept;

  // Address of the owner's [addr, addr+len) in this process; null if the key does not cover all of it.
  std::byte* find(uintptr_t addr, size_t len) const noexcept {
    const MemoryRange wanted{addr, len};
    if (kind == kNone || !wanted.valid() || !range.covers(wanted)) return nullptr;
    return reinterpret_cast<std::byte*>(here + (addr - range.addr));
  }
};

}  // namespace hydrant::shm
