// Puts and gets through pairs of each endpoint with each segment.
#include <hydrant/rma.h>

#include "tests/integration/endpoints/endpoints_job.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace {

constexpr size_t kBytes = 1000;

unsigned char value_of(gex_Rank_t writer, gex_EP_Index_t through, gex_EP_Index_t to, size_t i,
                       uint32_t round) {
  return static_cast<unsigned char>(writer * 31 + through * 7 + to * 3 + i + round * 5);
}

void put_everywhere(uint32_t round) {
  std::vector<std::vector<unsigned char>> kept;
  std::vector<gex_Event_t> events;
  for (gex_Rank_t rank = 0; rank < job_size; ++rank) {
    for (gex_EP_Index_t to = 0; to < kEndpoints; ++to) {
      if (!has_segment(to)) continue;
      for (gex_EP_Index_t through = 0; through < kEndpoints; ++through) {
        std::vector<unsigned char> data(kBytes);
        for (size_t i = 0; i < kBytes; ++i) data[i] = value_of(me, through, to, i, round);
        char* dest = reinterpret_cast<char*>(place_of(rank, to).addr) + slot_of(me, through);
        const gex_TM_t pair = gex_TM_Pair(endpoints[through], to);
        // Parts of several sizes, by every call.
        gex_RMA_PutBlocking(pair, rank, dest, data.data(), 1, 0);
        gex_RMA_PutBlockingVal(pair, rank, dest + 1, data[1], 1, 0);
        gex_RMA_PutNBI(pair, rank, dest + 2, data.data() + 2, 64, GEX_EVENT_NOW, 0);
        events.push_back(
            gex_RMA_PutNB(pair, rank, dest + 66, data.data() + 66, 500, GEX_EVENT_DEFER, 0));
        events.push_back(gex_RMA_PutNBVal(pair, rank, dest + 566, data[566], 1, 0));
        gex_RMA_PutNBI(pair, rank, dest + 567, data.data() + 567, kBytes - 567, GEX_EVENT_DEFER, 0);
        kept.push_back(std::move(data));
      }
    }
  }
  gex_Event_WaitAll(events.data(), events.size(), 0);
  gex_NBI_Wait(GEX_EC_ALL, 0);
}

void check_own_memory(uint32_t round) {
  for (gex_EP_Index_t to = 0; to < kEndpoints; ++to) {
    if (!has_segment(to)) continue;
    const auto* base = static_cast<const unsigned char*>(gex_Segment_QueryAddr(segments[to]));
    for (gex_Rank_t writer = 0; writer < job_size; ++writer)
      for (gex_EP_Index_t through = 0; through < kEndpoints; ++through)
        for (size_t i = 0; i < kBytes; ++i)
          check(base[slot_of(writer, through) + i] == value_of(writer, through, to, i, round),
                "a byte that was put", static_cast<long>(i));
  }
}

void get_from_everywhere(uint32_t round) {
  for (gex_Rank_t rank = 0; rank < job_size; ++rank) {
    for (gex_EP_Index_t to = 0; to < kEndpoints; ++to) {
      if (!has_segment(to)) continue;
      for (gex_EP_Index_t through = 0; through < kEndpoints; ++through) {
        unsigned char got[kBytes];
        std::memset(got, 0, sizeof got);
        char* source = reinterpret_cast<char*>(place_of(rank, to).addr) + slot_of(me, through);
        const gex_TM_t pair = gex_TM_Pair(endpoints[through], to);
        gex_RMA_GetBlocking(pair, got, rank, source, 40, 0);
        const gex_Event_t event = gex_RMA_GetNB(pair, got + 40, rank, source + 40, 460, 0);
        gex_RMA_GetNBI(pair, got + 500, rank, source + 500, kBytes - 500, 0);
        gex_Event_Wait(event);
        gex_NBI_Wait(GEX_EC_GET, 0);
        for (size_t i = 0; i < kBytes; ++i)
          check(got[i] == value_of(me, through, to, i, round), "a byte that was got",
                static_cast<long>(i));
        check(gex_RMA_GetBlockingVal(pair, rank, source + 3, 1, 0) ==
                  value_of(me, through, to, 3, round),
              "a value that was got");
      }
    }
  }
}

// A long put to the right neighbour, and back; what is mapped is loaded and stored as well.
void copy_long(uint32_t round) {
  const gex_Rank_t peer = (me + 1) % job_size;
  const gex_Rank_t writer = (me + job_size - 1) % job_size;
  for (gex_EP_Index_t to = 1; to < kEndpoints; ++to) {
    if (!has_segment(to)) continue;
    const gex_TM_t pair = gex_TM_Pair(endpoints[4], to);
    const size_t offset = slot_of(job_size, 0);
    std::vector<unsigned char> data(kLong);
    for (size_t i = 0; i < kLong; ++i) data[i] = value_of(me, 4, to, i * i, round);
    char* dest = reinterpret_cast<char*>(place_of(peer, to).addr) + offset;
    gex_RMA_PutBlocking(pair, peer, dest, data.data(), kLong, 0);
    std::vector<unsigned char> back(kLong);
    gex_RMA_GetBlocking(pair, back.data(), peer, dest, kLong, 0);
    check(back == data, "a long get", to);
    void* here = nullptr;
    uintptr_t size = 0;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(pair, peer, nullptr, &here, &size, 0));
    if (here != nullptr)
      check(std::memcmp(static_cast<char*>(here) + offset, data.data(), kLong) == 0,
            "a load of a neighbour's segment", to);
    barrier();
    const auto* base = static_cast<const unsigned char*>(gex_Segment_QueryAddr(segments[to]));
    for (size_t i = 0; i < kLong; i += 97)
      check(base[offset + i] == value_of(writer, 4, to, i * i, round), "a long put", to);
    if (here != nullptr) static_cast<char*>(here)[size - 1] = static_cast<char>(me + round + 1);
    const bool is_stored = here != nullptr;
    // Every rank has the same answer for its left neighbour, on one node.
    barrier();
    if (is_stored && is_near(writer) && expected_local == "mapped")
      check(static_cast<char>(base[gex_Segment_QuerySize(segments[to]) - 1]) ==
                static_cast<char>(writer + round + 1),
            "a store to a segment", to);
    barrier();
  }
}

// Puts and gets of mapped segments are copies, by any pair.
void check_mapped_path() {
#ifndef GASNET_DEBUG
  const gex_Rank_t peer = (me + 1) % job_size;
  if ((expected_local != "mapped" && !is_arena) || peer == me || !is_near(peer)) return;
  for (gex_EP_Index_t to = 1; to < kEndpoints; ++to) {
    if (!has_segment(to) || (kMemoryOf[to] == kClient && !is_arena)) continue;
    char* there = reinterpret_cast<char*>(place_of(peer, to).addr) + slot_of(me, 0);
    const gex_TM_t pair = gex_TM_Pair(endpoints[4], to);
    hydrant_path_counts_t before = {};
    hydrant_path_counts_t after = {};
    unsigned char data[200] = {};
    gex_RMA_GetBlocking(pair, data, peer, there, 8, 0);  // the first looks the rank up
    (void)hydrant_query_path(peer, HYDRANT_PATH_MAPPED, &before);
    gex_RMA_GetBlocking(pair, data, peer, there, sizeof data, 0);
    gex_RMA_PutBlocking(pair, peer, there, data, sizeof data, 0);
    gex_RMA_PutNBI(pair, peer, there, data, 8, GEX_EVENT_NOW, 0);
    (void)hydrant_query_path(peer, HYDRANT_PATH_MAPPED, &after);
    check(after.put_ops == before.put_ops + 2 && after.get_ops == before.get_ops + 1,
          "the path of copies", to);
  }
#endif
}

}  // namespace

void use_by_rma(uint32_t round) {
  barrier();
  put_everywhere(round);
  barrier();
  check_own_memory(round);
  get_from_everywhere(round);
  barrier();
  check_mapped_path();
  barrier();
  copy_long(round);
}
