// The job of vis_client.cpp: each rank works on an area of the next rank's segment.
#pragma once

#include <gasnet.h>
#include <hydrant/persistent.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <gasnet_coll.h>

constexpr size_t kRoom = 48 << 10;
constexpr size_t kSegment = 4 << 20;

inline gex_TM_t world;
inline gex_TM_t turned;  // a team in which the ranks are turned by one
inline gex_Rank_t me;
inline gex_Rank_t job_size;
inline gex_Rank_t peer;
inline std::byte* mine;   // segment: an area for the rank before, then memory of this rank
inline std::byte* peers;  // the next rank's area, at the address of its owner

inline void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "WRONG (rank %u): %s\n", me, what);
  gasnet_exit(3);
}
inline void good(int code, const char* what) {
  if (code == GASNET_OK) return;
  std::fprintf(stderr, "WRONG (rank %u): %s: %d, %s\n", me, what, code, hydrant_last_error_text());
  gasnet_exit(3);
}

inline void barrier() { gex_Event_Wait(gex_Coll_BarrierNB(world, 0)); }

inline std::byte* bytes_at(uintptr_t address) { return reinterpret_cast<std::byte*>(address); }
inline size_t offset_of(uintptr_t remote) { return remote - reinterpret_cast<uintptr_t>(peers); }

// Random strided operations, each started several times with new data.
void run_persistent(uint32_t seed, int rounds);
void run_persistent_wrong();
