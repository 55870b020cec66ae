// Two ranks write adjacent bytes, in one word and in one cache line, by puts and fills of all small
// sizes. Each byte must hold the last value of its own writer.
#include "tests/integration/rma/client.hpp"

#include <cstdio>
#include <cstring>

namespace rma_client {
namespace {

constexpr size_t kRange = 256;  // bytes of each area that both ranks write

// Stripes of `width` bytes belong to the ranks in turn.
void write_stripes(gex_Rank_t owner, Area which, size_t width, unsigned round) {
  const auto value = static_cast<unsigned char>(round * 7 + me + 1);
  unsigned char source[64];
  std::memset(source, value, sizeof source);
  std::byte* const first = area(owner, which);
  for (size_t at = me * width; at + width <= kRange; at += size * width) {
    switch (round % 5) {
      case 0: gex_RMA_PutBlocking(team, owner, first + at, source, width, 0); break;
      case 1: gex_RMA_PutNBI(team, owner, first + at, source, width, GEX_EVENT_NOW, 0); break;
      case 2: gex_RMA_PutNBI(team, owner, first + at, source, width, GEX_EVENT_DEFER, 0); break;
      case 3: gasnet_memset_nbi(owner, first + at, value, width); break;
      default:
        if (width == 1) {
          gasnet_put_nbi(owner, first + at, source, 1);
        } else if (width <= 8) {
          gex_RMA_Value_t word = 0;
          std::memcpy(&word, source, sizeof word);
          gasnet_put_nbi_val(owner, first + at, word, width);
        } else {
          gasnet_put_nbi(owner, first + at, source, width);
        }
    }
  }
  gex_NBI_Wait(GEX_EC_PUT, 0);
  for (size_t at = me * width; at + width <= kRange; at += size * width) {
    unsigned char got[64] = {};
    gex_RMA_GetBlocking(team, got, owner, first + at, width, 0);
    if (std::memcmp(got, source, width) != 0)
      wrong("round %u: stripe of %zu bytes at %zu of rank %u (%s) holds %02x.., not %02x", round,
            width, at, owner, kAreaNames[which], got[0], value);
  }
}

}  // namespace

void neighbours(double seconds) {
  constexpr size_t kWidths[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 33, 64};
  // All ranks stop at the same width: a message of rank 0 allows it.
  const double end = now_s() + seconds;
  unsigned rounds = 0;
  for (bool more = true; more;) {
    for (const size_t width : kWidths) {
      for (unsigned round = 0; round < 10; ++round) {
        for (gex_Rank_t owner = 0; owner < size; ++owner) {
          write_stripes(owner, kSegment, width, round);
          write_stripes(owner, kHeap, width, round);
        }
        ++rounds;
      }
      // Widths must not mix, because their stripes overlap.
      barrier();
    }
    // Rank 0 decides.
    unsigned char answer = now_s() < end ? 1 : 0;
    for (gex_Rank_t rank = 0; me == 0 && rank < size; ++rank)
      gex_RMA_PutBlocking(team, rank, area(rank, kStatic), &answer, 1, 0);
    barrier();
    more = std::memcmp(area(me, kStatic), "\1", 1) == 0;
    barrier();
  }
  std::printf("rank %u: %u rounds\n", me, rounds);
}

}  // namespace rma_client
