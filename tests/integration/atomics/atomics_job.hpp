// The job of atomics_client.cpp.
#pragma once

#include <gasnetex.h>

#include <cstdint>
#include <cstdio>
#include <gasnet_coll.h>
#include <gasnet_ratomic.h>
#include <string>

inline gex_TM_t world;
inline gex_Rank_t me;
inline gex_Rank_t job_size;
constexpr size_t kSegment = size_t{1} << 20;

inline void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "WRONG (rank %u): %s\n", me, what);
  gasnet_exit(3);
}

inline void barrier(gex_TM_t team) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

// The n-th value of a type in the segment of a member.
template <typename T>
T* word_of(gex_TM_t team, gex_Rank_t rank, size_t n) {
  void* owner = nullptr;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(team, rank, &owner, nullptr, nullptr, 0));
  return static_cast<T*>(owner) + n;
}

inline bool is_neighbour(gex_Rank_t jobrank) {
  gex_RankInfo_t* all = nullptr;
  gex_Rank_t count = 0;
  gex_System_QueryNbrhdInfo(&all, &count, nullptr);
  for (gex_Rank_t i = 0; i < count; ++i) {
    if (all[i].gex_jobrank == jobrank) return true;
  }
  return false;
}

inline void start_atomics_job(int* argc, char*** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  gex_Segment_t segment;
  if (gex_Client_Init(&client, &endpoint, &world, "atomics_client", argc, argv, 0) != GASNET_OK)
    std::exit(2);
  me = gex_TM_QueryRank(world);
  job_size = gex_TM_QuerySize(world);
  if (gex_Segment_Attach(&segment, world, kSegment) != GASNET_OK) gasnet_exit(2);
}

// Does nothing if no wrong call has this name.
void make_wrong_call(const std::string& what);
