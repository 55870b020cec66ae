// Memory between guards: inaccessible address space on both sides of a mapping. An overrun faults (SIGSEGV,
// or EFAULT of a kernel copy) and never changes adjacent memory.
//
// Guarded memory is listed here, so that a handler of SIGSEGV and SIGBUS can say what an address belongs to
// (am/segment/memory_faults.cpp).
//
// Threads: any. find_guarded() is async-signal-safe. Reservations beyond kMaxGuarded are guarded, but not
// listed.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

inline constexpr size_t kMinGuardBytes = size_t{16} << 20;
// Guard of a few large mappings, used if the address space of this process is unlimited.
inline constexpr size_t kRoomyGuardBytes = size_t{1} << 30;
// Room that guards leave in a limited address space, for segments, stacks, heaps and buffers.
inline constexpr uint64_t kMinSpaceLeft = uint64_t{64} << 20;
inline constexpr uint32_t kMaxGuarded = 8192;

// The name of the memory in messages ("segment"), and the rank that owns it.
struct GuardLabel {
  const char* what = "memory";  // a literal
  Rank rank = kNoRank;          // kNoRank: shared by several ranks
};

enum class GuardSize : uint8_t { kNone, kMin, kRoomy };

// Reserves `bytes` (whole pages) of inaccessible address space that begins at a multiple of `alignment`, with
// a guard of at least kMinGuardBytes on both sides. The caller maps into [*start, +bytes) with MAP_FIXED. If
// the address space is limited (ulimit -v) and guards_fit() is false, the reservation has no guards, as with
// kNone, and one warning is logged.
// Errors: kResource, with a text; *start is unchanged then.
Status reserve_guarded(size_t bytes, size_t alignment, GuardSize size, GuardLabel label,
                       std::byte** start) noexcept;
// True if `count` reservations of `bytes` together and their guards leave kMinSpaceLeft of the address space.
bool guards_fit(uint64_t bytes, uint64_t count) noexcept;
// Unmaps the memory and its guards. False if reserve_guarded() did not return this address.
bool release_guarded(std::byte* start) noexcept;

struct Guarded {
  uintptr_t start = 0;
  size_t bytes = 0;
  GuardLabel label;
  // Distance of the address: bytes before `start` or past the end. Both 0: it is inside.
  size_t before = 0;
  size_t past = 0;
};
// True if the address lies in guarded memory or in one of its guards.
bool find_guarded(uintptr_t addr, Guarded* found) noexcept;

}  // namespace hydrant
