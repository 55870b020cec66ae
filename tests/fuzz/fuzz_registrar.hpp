// A registrar for random clients: a RecordingRegistrar that refuses memory outside the arena. The input
// decides its faults: failures, nested calls of hydrant_invalidate(), and error texts.
#pragma once

#include "tests/fuzz/fuzz_target.hpp"
#include "tests/support/recording_registrar.hpp"

#include <atomic>
#include <functional>

namespace hydrant::fuzz {

class FuzzRegistrar : public testing::RecordingRegistrar {
 public:
  FuzzRegistrar(const testing::Arena& arena, uint32_t key_bytes)
      : RecordingRegistrar(arena, key_bytes), pin_(table.pin) {
    table.pin = [](void* user, uintptr_t addr, size_t len, uint32_t access, void* key) {
      auto& self = *static_cast<FuzzRegistrar*>(static_cast<RecordingRegistrar*>(user));
      if (!self.arena().contains(addr, len)) {
        hydrant_set_error_text("there is no such memory");
        return HYDRANT_ERR_REFUSED;
      }
      if (self.inside) self.inside(addr, len);
      return self.pin_(user, addr, len, access, key);
    };
    table.export_bytes = 64;
    table.export_key = [](void*, uintptr_t addr, size_t len, const void*, void* blob,
                          size_t* blob_len) -> int {
      const uint64_t fields[] = {addr, len, addr ^ len};
      if (*blob_len < sizeof fields) {
        *blob_len = sizeof fields;
        return GASNET_ERR_BAD_ARG;
      }
      std::memcpy(blob, fields, sizeof fields);
      *blob_len = sizeof fields;
      return GASNET_OK;
    };
    table.import_key = [](void* user, const void* blob, size_t len, void* key) -> int {
      uint64_t fields[3] = {};
      if (len != sizeof fields) return GASNET_ERR_BAD_ARG;
      std::memcpy(fields, blob, len);
      if ((fields[0] ^ fields[1]) != fields[2]) return GASNET_ERR_BAD_ARG;
      std::memset(key, 0x17, static_cast<RecordingRegistrar*>(user)->table.key_bytes);
      return GASNET_OK;
    };
  }

  // Runs at the start of each pin inside the arena, without a lock; may call hydrant_invalidate().
  std::function<void(uintptr_t addr, size_t len)> inside;

 private:
  int (*pin_)(void* user, uintptr_t addr, size_t len, uint32_t access, void* key);
};

}  // namespace hydrant::fuzz
