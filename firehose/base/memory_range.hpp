// Address ranges and access rights, the two basic types of every cache interface.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hydrant {

// The rights of a registration, as bits combined with |. Every registration includes local read, which has
// no bit: an empty set means local read alone.
enum class Access : uint32_t {
  kLocalRead = 0,
  kLocalWrite = 1,
  kRemoteRead = 2,
  kRemoteWrite = 4,
  kRemoteAtomic = 8,
  kAll = 15,
};

constexpr uint32_t bits(Access a) noexcept { return static_cast<uint32_t>(a); }
constexpr Access operator|(Access a, Access b) noexcept {
  return static_cast<Access>(bits(a) | bits(b));
}
constexpr Access operator&(Access a, Access b) noexcept {
  return static_cast<Access>(bits(a) & bits(b));
}
constexpr bool includes(Access have, Access need) noexcept {
  return (bits(need) & ~bits(have)) == 0;
}

// [addr, addr + len). A valid range has len > 0 and does not wrap.
struct MemoryRange {
  uintptr_t addr = 0;
  size_t len = 0;

  constexpr uintptr_t end() const noexcept { return addr + len; }
  constexpr uintptr_t last() const noexcept { return addr + len - 1; }
  constexpr bool valid() const noexcept { return len != 0 && addr <= UINTPTR_MAX - (len - 1); }
  constexpr bool covers(MemoryRange other) const noexcept {
    return addr <= other.addr && other.last() <= last();
  }
  constexpr bool overlaps(MemoryRange other) const noexcept {
    return addr <= other.last() && other.addr <= last();
  }
  friend constexpr bool operator==(MemoryRange, MemoryRange) noexcept = default;
};

// Rounds outwards to a power of two. Requires: range.valid() and room below UINTPTR_MAX.
constexpr MemoryRange round_out(MemoryRange range, size_t granule_bytes) noexcept {
  const uintptr_t mask = granule_bytes - 1;
  const uintptr_t first = range.addr & ~mask;
  const uintptr_t last = range.last() | mask;
  return {first, last - first + 1};
}

}  // namespace hydrant
