// The job of endpoints_client.cpp: endpoints and segments of each rank, used by puts, gets and messages.
#pragma once

#include <gasnetex.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <gasnet_coll.h>
#include <string>
#include <vector>

inline gex_Client_t client;
inline gex_TM_t world;
inline gex_EP_t primordial;
inline gex_Rank_t me;
inline gex_Rank_t job_size;
inline std::string expected_local;
inline bool is_arena = false;

inline void check(bool holds, const char* what, long detail = 0) {
  if (holds) return;
  std::fprintf(stderr, "WRONG (rank %u): %s (%ld)\n", me, what, detail);
  gasnet_exit(3);
}

inline void barrier() { gex_Event_Wait(gex_Coll_BarrierNB(world, 0)); }

inline bool is_near(gex_Rank_t rank) {
  gex_RankInfo_t* near = nullptr;
  gex_Rank_t count = 0;
  gex_System_QueryNbrhdInfo(&near, &count, nullptr);
  return std::any_of(near, near + count,
                     [rank](const gex_RankInfo_t& info) { return info.gex_jobrank == rank; });
}

// Endpoint 0 is the primordial one. The kinds of memory of the others:
enum Memory { kLibrary, kClient, kNone };
constexpr gex_EP_Index_t kEndpoints = 5;  // 0 to 4
constexpr Memory kMemoryOf[kEndpoints] = {kLibrary, kLibrary, kClient, kLibrary, kNone};

struct Place {
  uint64_t addr;
  uint64_t size;
};

inline gex_EP_t endpoints[kEndpoints];
inline gex_Segment_t segments[kEndpoints];
// The segments of each rank and endpoint, as their owners say.
inline std::vector<Place> places;

inline Place place_of(gex_Rank_t rank, gex_EP_Index_t index) {
  return places[rank * kEndpoints + index];
}
inline bool has_segment(gex_EP_Index_t index) { return kMemoryOf[index] != kNone; }

// Each writer has a slot in each segment: the offset in the segment, for the endpoint that writes.
inline size_t slot_of(gex_Rank_t writer, gex_EP_Index_t through) {
  return 1024 * (size_t{writer} * kEndpoints + through);
}
constexpr size_t kLong = 40000;  // of one writer, behind all slots

constexpr gex_AM_Index_t kPing = 130, kPong = 131, kPayload = 132, kBack = 133, kShared = 134;

// Puts to each slot of the ranks' memory, checks and gets of them, and long copies.
void use_by_rma(uint32_t round);
// Enters the handlers that send_messages() needs.
void enter_handlers();
// Sends messages from each endpoint to each one of the next rank.
void send_messages();
