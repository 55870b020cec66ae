// The end of a segment: an operation that begins inside and ends outside must not be a copy within the
// mapping, also for constant sizes.
#include "tests/integration/rma/client.hpp"

#include <cstdint>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace rma_client {

namespace {

constexpr size_t kBehind = 16384;

template <typename Put, typename Get>
void cross(gex_Rank_t peer, std::byte* end, size_t bytes, Put&& put, Get&& get) {
  std::vector<std::byte> sent(bytes);
  std::vector<std::byte> got(bytes);
  for (size_t inside = 0; inside <= bytes && inside <= 66; ++inside) {
    for (size_t i = 0; i < bytes; ++i) sent[i] = static_cast<std::byte>(i * 7 + inside + bytes);
    std::byte* const place = end - inside;
    put(place, sent.data());
    get(got.data(), place);
    if (got != sent)
      wrong("%zu bytes, %zu of them in the segment: not what was put", bytes, inside);
    // Read back byte by byte around the edge: these gets do not cross it.
    for (size_t i = inside < 2 ? 0 : inside - 2; i < bytes && i < inside + 2; ++i) {
      if (static_cast<std::byte>(gasnet_get_val(peer, place + i, 1)) != sent[i])
        wrong("%zu bytes, %zu in the segment: byte %zu is not at its owner", bytes, inside, i);
    }
  }
}

template <size_t kBytes>
void cross_constant(gex_Rank_t peer, std::byte* end) {
  cross(
      peer, end, kBytes,
      [&](std::byte* place, std::byte* from) {
        gex_RMA_PutBlocking(team, peer, place, from, kBytes, 0);
      },
      [&](std::byte* to, std::byte* place) {
        gex_RMA_GetBlocking(team, to, peer, place, kBytes, 0);
      });
}

void cross_any(gex_Rank_t peer, std::byte* end, size_t bytes) {
  cross(
      peer, end, bytes,
      [&](std::byte* place, std::byte* from) {
        gex_Event_Wait(gex_RMA_PutNB(team, peer, place, from, bytes, GEX_EVENT_NOW, 0));
      },
      [&](std::byte* to, std::byte* place) {
        gex_RMA_GetBlocking(team, to, peer, place, bytes, 0);
      });
}

}  // namespace

void edge() {
  // Replaces the first pages of its guard area.
  std::byte* const own_end = own_segment() + kOwnSegmentBytes;
  if (mmap(own_end, kBehind, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
           0) != own_end)
    wrong("mmap behind the segment");
  barrier();
  const gex_Rank_t peer = (me + 1) % size;
  std::byte* const end = area(peer, kSegment) + kAreaBytes[kSegment] + kOwnSegmentBytes;
  [&]<size_t... kBytes>(std::index_sequence<kBytes...>) {
    (cross_constant<kBytes>(peer, end), ...);
  }
  (std::index_sequence<1, 2, 3, 4, 8, 15, 16, 17, 24, 32, 63, 64, 65, 128>{});
  for (const size_t bytes : {2u, 7u, 16u, 17u, 64u, 100u, 5000u}) cross_any(peer, end, bytes);
}

}  // namespace rma_client
