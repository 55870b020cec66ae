// A registrar derived from the C++ interface, that pins nothing and counts calls; and helpers of these tests.
#pragma once

#include <hydrant/pin_cache.hpp>

#include "tests/support/recording_registrar.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>

namespace hydrant::testing {

namespace face = hydrant::pin_cache;

// Keys are serial numbers from 1 on.
class OwnRegistrar : public face::Registrar {
 public:
  Facts given;  // edit before a domain is created
  std::atomic<int> answer{GASNET_OK};
  std::atomic<uint64_t> pins{0}, unpins{0}, batches{0}, ends{0}, pending{0};

  OwnRegistrar() {
    given.name = "own";
    given.key_bytes = sizeof(uint64_t);
  }

  Facts facts() const noexcept override { return given; }
  int pin(uintptr_t, size_t, uint32_t, void* key) noexcept override {
    if (answer != GASNET_OK) {
      hydrant_set_error_text("the own registrar is out of order");
      return answer;
    }
    const uint64_t serial = ++pins;
    if (key != nullptr) std::memcpy(key, &serial, sizeof serial);
    return GASNET_OK;
  }
  int unpin(uintptr_t, size_t, const void*) noexcept override {
    ++unpins;
    return HYDRANT_UNPIN_DONE;
  }
  int unpin_many(const hydrant_range_t* ranges, const void* const* keys,
                 size_t n) noexcept override {
    ++batches;
    return face::Registrar::unpin_many(ranges, keys, n);
  }
  uint64_t charge(uintptr_t, size_t len) noexcept override { return 2 * len; }
  uint64_t pending_charge() noexcept override { return pending; }
  int export_key(uintptr_t, size_t, const void* key, void* blob, size_t* len) noexcept override {
    if (*len < sizeof(uint64_t)) return GASNET_ERR_BAD_ARG;
    std::memcpy(blob, key, sizeof(uint64_t));
    *len = sizeof(uint64_t);
    return GASNET_OK;
  }
  int import_key(const void* blob, size_t len, void* key) noexcept override {
    if (len != sizeof(uint64_t)) return GASNET_ERR_BAD_ARG;
    std::memcpy(key, blob, len);
    return GASNET_OK;
  }
  int implicit_key(uint32_t access, void* key) noexcept override {
    const uint64_t all = 1000 + access;
    std::memcpy(key, &all, sizeof all);
    return GASNET_OK;
  }
  void domain_ended() noexcept override { ++ends; }
};

// Implements the mandatory functions only.
class LeastRegistrar : public face::Registrar {
 public:
  int unpin_answer = HYDRANT_UNPIN_DONE;
  Facts facts() const noexcept override { return {}; }
  int pin(uintptr_t, size_t, uint32_t, void*) noexcept override { return GASNET_OK; }
  // A pin at page 2 cannot be undone.
  int unpin(uintptr_t addr, size_t, const void*) noexcept override {
    return addr == 2 * kPage ? HYDRANT_UNPIN_BROKEN : unpin_answer;
  }
};

}  // namespace hydrant::testing
