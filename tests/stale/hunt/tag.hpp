// Tags are written into memory, and into files, to distinguish the lives of an address.
//
// A life of memory begins when a thread allocates it (or empties it, for example with MADV_DONTNEED) and ends
// when it releases it (or empties it again). Every life has a unique number. A tag contains the life, its own
// address, and the check that wrote it, so that no two checks of a hunt expect the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace hydrant::stale {

using Life = uint64_t;

struct Tag {
  uint64_t magic;  // of one hunt, derived from its seed
  uintptr_t addr;
  Life life;
  uint64_t check;  // number of the check within its thread, the thread above bit 48
  friend bool operator==(const Tag&, const Tag&) = default;
};
static_assert(sizeof(Tag) == 32);

// Cells that hold tags lie at multiples of this.
inline constexpr size_t kCellBytes = 64;

uint64_t magic_of(uint64_t seed);
// Accesses by the processor at any address; the compiler neither omits nor reorders them.
void write_tag(uintptr_t addr, const Tag& tag);
Tag read_tag(uintptr_t addr);
// "life 12 at 0x7f..", "zeros", or the bytes.
std::string describe_tag(const Tag& tag, uint64_t magic);

}  // namespace hydrant::stale
