// Fuzz target: keys of shared memory from peers.
#include "rdma/shm/memory/shm_key.hpp"
#include "tests/fuzz/fuzz_target.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hydrant;
  if (size > 4096) return 0;
  const fuzz::GuardedCopy blob({data, size});
  shm::ShmBlob key;
  key.process = 7;
  if (shm::decode_shm_blob(blob.data(), blob.size(), &key) != Status::kOk) {
    HYDRANT_FUZZ_CHECK(key.process == 7 && key.range.len == 0);
    return 0;
  }
  std::byte again[shm::kShmBlobBytes];
  shm::encode_shm_blob(key, again);
  HYDRANT_FUZZ_CHECK(blob.size() == sizeof again &&
                     std::memcmp(again, blob.data(), sizeof again) == 0);
  HYDRANT_FUZZ_CHECK(key.range.valid() && key.range.addr % shm::kMinPageBytes == 0 &&
                     key.range.len % shm::kMinPageBytes == 0);
  HYDRANT_FUZZ_CHECK(key.offset + key.range.len <= INT64_MAX);
  HYDRANT_FUZZ_CHECK(bits(key.access) <= bits(Access::kAll));
  // Look-ups in an imported key stay within its range.
  const shm::ShmKey imported = {.kind = shm::ShmKey::kImported,
                                .access = bits(key.access),
                                .range = key.range,
                                .here = 0x10000};
  HYDRANT_FUZZ_CHECK(imported.find(key.range.addr, key.range.len) != nullptr);
  HYDRANT_FUZZ_CHECK(imported.find(key.range.addr, key.range.len + 1) == nullptr);
  HYDRANT_FUZZ_CHECK(imported.find(key.range.addr - 1, 1) == nullptr);
  HYDRANT_FUZZ_CHECK(imported.find(key.range.end(), 1) == nullptr);
  return 0;
}
