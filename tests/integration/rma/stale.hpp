// The hunt for puts that reach memory by a firehose on what was there before: what a rank has for itself.
//
// Every rank owns slots, and every other rank puts into its own slice of each. A generation of a slot:
//
//   owner                                        each of the others
//   tells address and generation           ->    puts tagged data into the first half of its slice, waits
//   looks at all tags when all are done    <-    "done"
//   "go"                                   ->
//   takes the memory away, gets other      <-    "started", and puts into the second half at that moment,
//                                                if there is a firehose
//   at the same address if it can, sends somebody a message: from here on nobody reaches what was there;
//   fills the slot with the next generation's pattern, tells it
//
// So an old tag that is found later came by a firehose that should have been taken back, and so did a put
// that hits at its first touch.
#pragma once

#include "tests/integration/rma/client.hpp"

#include <cstddef>
#include <cstdint>

namespace rma_client::stale {

inline constexpr uint32_t kSlots = 12;
inline constexpr size_t kSlotBytes = size_t{16} << 10;
// Nobody pins more than the slot by asking for it.
inline constexpr size_t kGapBytes = size_t{64} << 10;

// How a slot's memory goes and comes.
enum class Way : uint32_t {
  kMapOver,   // mmap with MAP_FIXED onto it
  kDontNeed,  // madvise(MADV_DONTNEED)
  kRemap,     // munmap, then mmap at the address
  kMalloc,    // free(), malloc()
  kWays
};
inline Way way_of(uint32_t slot) { return static_cast<Way>(slot % uint32_t(Way::kWays)); }
// What is under way while memory is taken from under it lands somewhere, or nowhere: at an address that is
// always mapped, here.
inline bool keeps_address(Way way) { return way == Way::kMapOver || way == Way::kDontNeed; }

// A word of a slot says who has put it there, when and where.
inline uint64_t tag(gex_Rank_t owner, gex_Rank_t from, uint32_t slot, uint32_t generation,
                    size_t word) {
  return uint64_t{generation} << 32 | uint64_t{owner} << 28 | uint64_t{from} << 24 |
         uint64_t{slot} << 16 | (word & 0xffff);
}
inline constexpr gex_Rank_t kNobody = 15;

// Takes the slot's memory away and gets other; null if there is none.
std::byte* change_memory(Way way, std::byte* now);
std::byte* first_memory(Way way);

}  // namespace rma_client::stale
