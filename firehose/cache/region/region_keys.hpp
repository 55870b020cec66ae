// The keys of a domain's registrations by region, or in their place the registrar's notes on registrations
// that have no keys for clients.
//
// Invariant: a key changes only while its region is free or pending, so that readers take no lock.
#pragma once

#include "firehose/base/mapped_array.hpp"
#include "firehose/cache/region/region_info.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

class RegionKeys {
 public:
  // Requires: `key_bytes` or `note_bytes` is 0.
  RegionKeys(size_t key_bytes, size_t note_bytes) noexcept
      : is_shown_(key_bytes != 0), stride_(stride_of(key_bytes + note_bytes)) {}

  // Reserves address space for `count` regions. False when refused.
  [[nodiscard]] bool map(uint32_t count) noexcept {
    return stride_ == 0 || keys_.map(stride_ * count);
  }
  // Bytes for each region; 0: there are no keys.
  size_t stride() const noexcept { return stride_; }
  // For the registrar: a key, or its note. Null where it has neither.
  std::byte* of(RegionIndex region) noexcept {
    return stride_ != 0 ? keys_.data() + region * stride_ : nullptr;
  }
  // For clients. Null where registrations have no keys.
  const std::byte* shown(RegionIndex region) noexcept { return is_shown_ ? of(region) : nullptr; }

 private:
  // Keys are aligned to 8 bytes, and to 16 where they are that long.
  static constexpr size_t stride_of(size_t bytes) noexcept {
    const size_t alignment = bytes >= 16 ? 16 : 8;
    return (bytes + alignment - 1) / alignment * alignment;
  }

  const bool is_shown_;
  const size_t stride_;
  MappedArray<std::byte> keys_;
};

}  // namespace hydrant
