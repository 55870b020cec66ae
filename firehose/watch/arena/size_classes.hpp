// Size classes of the extent heap's small objects, and the alignment of larger allocations.
#pragma once

#include "firehose/watch/arena/address_reservation.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace hydrant::arena {

constexpr size_t kMinAlignment = 16;  // of max_align_t
constexpr size_t kMaxSmallBytes = 16384;
// 16 to 128 in steps of 16, then four classes per doubling: at most a fifth is wasted.
constexpr unsigned kSizeClasses = 36;

// Requires: 0 < bytes <= kMaxSmallBytes.
constexpr unsigned class_of(size_t bytes) noexcept {
  if (bytes <= 128) return static_cast<unsigned>((bytes - 1) / 16);
  const unsigned octave = static_cast<unsigned>(std::bit_width(bytes - 1)) - 1;  // 7 for 129 to 256
  const size_t quarter = (bytes - 1 - (size_t{1} << octave)) >> (octave - 2);
  return 8 + (octave - 7) * 4 + static_cast<unsigned>(quarter);
}
constexpr size_t class_bytes(unsigned index) noexcept {
  if (index < 8) return (index + size_t{1}) * 16;
  const unsigned octave = 7 + (index - 8) / 4;
  return (size_t{1} << octave) + ((index - 8) % 4 + size_t{1}) * (size_t{1} << (octave - 2));
}
static_assert(class_of(1) == 0 && class_of(16) == 0 && class_of(17) == 1 && class_of(129) == 8);
static_assert(class_of(kMaxSmallBytes) == kSizeClasses - 1);
static_assert(class_bytes(kSizeClasses - 1) == kMaxSmallBytes && class_bytes(8) == 160);

// A slab holds objects of one class. At most 1024 objects, so that its bitmap fits its record.
constexpr size_t slab_pages(unsigned index) noexcept { return index < 12 ? 4 : 16; }
constexpr size_t kMaxSlabObjects = 1024;
static_assert(class_bytes(12) == 320 &&
              slab_pages(12) * kPageBytes / class_bytes(12) < kMaxSlabObjects);

// Large allocations start at a page, so that two never share a pinned page. Those of a huge page or more
// start at a huge page, so that they are registered in huge pages.
constexpr size_t natural_alignment(size_t bytes) noexcept {
  if (bytes >= kBlockBytes) return kBlockBytes;
  return bytes > kMaxSmallBytes ? kPageBytes : kMinAlignment;
}

}  // namespace hydrant::arena
