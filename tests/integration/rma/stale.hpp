// The hunt for stale puts, which reach memory through a firehose on earlier memory: the state of a rank.
//
// Every rank owns slots, and every other rank puts into its own slice of each. A generation of a slot:
//
//   owner                                        each of the other ranks
//   announces address and generation       ->    puts tagged data into the first half of its slice, waits
//   checks all tags when all are done      <-    "done"
//   "go"                                   ->
//   replaces the memory                    <-    "started", and puts into the second half at that moment,
//                                                if there is a firehose
//   at the same address if possible, sends a message: from here on no rank may reach the old memory;
//   fills the slot with the next generation's pattern, announces it
//
// So an old tag that is found later was written through a firehose that should have been recalled. The
// same is true for a put that hits at its first access.
#pragma once

#include "tests/integration/rma/client.hpp"

#include <cstddef>
#include <cstdint>

namespace rma_client::stale {

inline constexpr uint32_t kSlots = 12;
inline constexpr size_t kSlotBytes = size_t{16} << 10;
// Gap that keeps merged requests from pinning more than the slot.
inline constexpr size_t kGapBytes = size_t{64} << 10;

// How the memory of a slot is replaced.
enum class Way : uint32_t {
  kMapOver,   // mmap with MAP_FIXED onto it
  kDontNeed,  // madvise(MADV_DONTNEED)
  kRemap,     // munmap, then mmap at the address
  kMalloc,    // free(), malloc()
  kWays
};
inline Way way_of(uint32_t slot) { return static_cast<Way>(slot % uint32_t(Way::kWays)); }
// A put under way while its memory is replaced needs a target that is always mapped: these ways keep
// the address mapped.
inline bool keeps_address(Way way) { return way == Way::kMapOver || way == Way::kDontNeed; }

// Each 8 bytes of a slot identify its writer, generation and offset.
inline uint64_t tag(gex_Rank_t owner, gex_Rank_t from, uint32_t slot, uint32_t generation,
                    size_t word) {
  return uint64_t{generation} << 32 | uint64_t{owner} << 28 | uint64_t{from} << 24 |
         uint64_t{slot} << 16 | (word & 0xffff);
}
inline constexpr gex_Rank_t kNoRank = 15;

// Replaces the slot's memory; returns its new address, or null.
std::byte* change_memory(Way way, std::byte* now);
std::byte* first_memory(Way way);

}  // namespace rma_client::stale
