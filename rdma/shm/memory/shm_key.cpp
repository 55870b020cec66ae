// Encodes the keys of the shared-memory registrar, and checks those that peers send. shm_registrar.cpp
// exports and imports keys with it.
#include "rdma/shm/memory/shm_key.hpp"

#include "firehose/base/little_endian.hpp"

#include <climits>
#include <cstring>

namespace hydrant::shm {
namespace {

constexpr uint32_t kMagic = 0x4d535948;  // "HYSM"
constexpr uint16_t kVersion = 1;
constexpr uint64_t kPageMask = kMinPageBytes - 1;
// File offsets are signed.
constexpr uint64_t kMaxOffset = INT64_MAX;

using little_endian::get;
using little_endian::put;

}  // namespace

void encode_shm_blob(const ShmBlob& key, std::byte* blob) noexcept {
  put(blob, kMagic, 4);
  put(blob + 4, kVersion, 2);
  put(blob + 6, 0, 2);
  put(blob + 8, key.process, 4);
  put(blob + 12, key.descriptor, 4);
  put(blob + 16, key.start_time, 8);
  put(blob + 24, key.device, 8);
  put(blob + 32, key.inode, 8);
  put(blob + 40, key.offset, 8);
  put(blob + 48, key.range.addr, 8);
  put(blob + 56, key.range.len, 8);
  put(blob + 64, bits(key.access), 4);
  put(blob + 68, 0, 4);
}

Status decode_shm_blob(const std::byte* blob, size_t len, ShmBlob* key) noexcept {
  if (blob == nullptr || len != kShmBlobBytes) {
    return fail(Status::kBadArg, "a key of shared memory has %zu bytes, this one %zu",
                kShmBlobBytes, len);
  }
  if (get(blob, 4) != kMagic)
    return fail(Status::kBadArg, "not a key of shared memory: wrong magic number");
  const uint64_t version = get(blob + 4, 2);
  if (version != kVersion) {
    return fail(Status::kBadArg,
                "a key of shared memory of version %u; this side speaks version %u",
                static_cast<unsigned>(version), static_cast<unsigned>(kVersion));
  }
  if (get(blob + 6, 2) != 0 || get(blob + 68, 4) != 0) {
    return fail(Status::kBadArg, "a key of shared memory with reserved bytes that are not zero");
  }
  ShmBlob read;
  read.process = static_cast<uint32_t>(get(blob + 8, 4));
  read.descriptor = static_cast<uint32_t>(get(blob + 12, 4));
  read.start_time = get(blob + 16, 8);
  read.device = get(blob + 24, 8);
  read.inode = get(blob + 32, 8);
  read.offset = get(blob + 40, 8);
  read.range = {get(blob + 48, 8), get(blob + 56, 8)};
  const auto access = static_cast<uint32_t>(get(blob + 64, 4));
  if (read.process == 0 || read.process > INT_MAX || read.descriptor > INT_MAX) {
    return fail(Status::kBadArg, "a key of shared memory of no process: number %u, descriptor %u",
                read.process, read.descriptor);
  }
  const bool wraps = read.range.end() <= read.range.addr;  // also for a length of zero
  if (wraps || ((read.range.addr | read.range.len | read.offset) & kPageMask) != 0 ||
      read.range.len > kMaxOffset || read.offset > kMaxOffset - read.range.len) {
    return fail(
        Status::kBadArg,
        "a key of shared memory for no range of pages: address %#lx, length %zu, at %llu of "
        "its file",
        static_cast<unsigned long>(read.range.addr), read.range.len,
        static_cast<unsigned long long>(read.offset));
  }
  if (access > bits(Access::kAll))
    return fail(Status::kBadArg, "a key of shared memory with unknown rights: %#x", access);
  read.access = static_cast<Access>(access);
  *key = read;
  return Status::kOk;
}

ShmKey ShmKey::load(const std::byte* key) noexcept {
  ShmKey loaded;
  std::memcpy(&loaded, key, sizeof loaded);
  return loaded;
}

void ShmKey::store(std::byte* key) const noexcept { std::memcpy(key, this, sizeof *this); }

}  // namespace hydrant::shm
