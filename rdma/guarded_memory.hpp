// Memory between guards: address space on both sides of a mapping that nothing can be read from or written
// to, so that an overrun is a fault (SIGSEGV, or EFAULT of a kernel copy) and never changes what follows.
//
// What is guarded is listed here, so that a handler of SIGSEGV and SIGBUS can say what an address belongs
// to (am/segment/memory_faults.cpp).
//
// Threads: any. find_guarded() is safe in signal handlers. Not listed beyond kMaxGuarded; still guarded.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

inline constexpr size_t kMinGuardBytes = size_t{16} << 20;
// Where the address space of this process has no limit, for mappings of which there are few.
inline constexpr size_t kRoomyGuardBytes = size_t{1} << 30;
inline constexpr uint32_t kMaxGuarded = 8192;

// What a text calls the memory: "segment", and the rank that owns it.
struct GuardLabel {
  const char* what = "memory";  // a literal
  Rank rank = kNoRank;          // kNoRank: no single rank's
};

enum class GuardSize : uint8_t { kNone, kMin, kRoomy };

// Reserves `bytes` (whole pages) of inaccessible address space that begins at a multiple of `alignment`,
// with a guard of at least kMinGuardBytes on both sides. The caller maps into [*start, +bytes) with
// MAP_FIXED. Where the address space is limited (ulimit -v) and has no room for guards, the reservation
// comes without them, as with kNone, and that is warned of once.
// Errors: kResource, with a text; *start is unchanged then.
Status reserve_guarded(size_t bytes, size_t alignment, GuardSize size, GuardLabel label,
                       std::byte** start) noexcept;
// Unmaps the memory and its guards. False if reserve_guarded() did not answer this address.
bool release_guarded(std::byte* start) noexcept;

struct Guarded {
  uintptr_t start = 0;
  size_t bytes = 0;
  GuardLabel label;
  // Of the address: bytes before `start` or past the end. Both 0: it is inside.
  size_t before = 0;
  size_t past = 0;
};
// Whether the address lies in guarded memory or in one of its guards.
bool find_guarded(uintptr_t addr, Guarded* found) noexcept;

}  // namespace hydrant
