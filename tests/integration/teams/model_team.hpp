// The job of teams_client.cpp, and teams of which every rank can compute the members.
#pragma once

#include <gasnetex.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <gasnet_coll.h>
#include <random>
#include <utility>
#include <vector>

inline gex_TM_t world;
inline gex_Rank_t me;
inline gex_Rank_t job_size;
inline gex_Segment_t segment;
// Scratch memory of teams, and behind it memory for data.
constexpr size_t kSegment = size_t{4} << 20;
constexpr size_t kDataOffset = size_t{1} << 20;

inline void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "WRONG (rank %u): %s\n", me, what);
  gasnet_exit(3);
}

inline void barrier(gex_TM_t team) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

// A team of which every rank knows the members, also ranks that are not in it.
struct ModelTeam {
  gex_TM_t team = GEX_TM_INVALID;  // of the members
  std::vector<gex_Rank_t> jobranks;
  gex_Memvec_t scratch = {};

  bool has_me() const { return team != GEX_TM_INVALID; }
};

// ---- making teams ----

struct Choice {
  int color;
  int key;
  bool joins;
};
// The arguments of rank `jobrank` in split number `number`.
inline Choice choice_of(uint32_t number, gex_Rank_t jobrank) {
  std::mt19937 random(number * 7919 + jobrank);
  const auto color = static_cast<int>(random() % 3);
  const auto key = static_cast<int>(random() % 4) - 2;
  return {color, number % 5 == 0 ? -static_cast<int>(jobrank) : key, random() % 8 != 0};
}

inline std::vector<ModelTeam> split(const ModelTeam& parent, uint32_t number) {
  std::vector<ModelTeam> made(3);
  for (int color = 0; color < 3; ++color) {
    std::vector<std::pair<int, size_t>> members;
    for (size_t i = 0; i < parent.jobranks.size(); ++i) {
      const Choice choice = choice_of(number, parent.jobranks[i]);
      if (choice.joins && choice.color == color) members.emplace_back(choice.key, i);
    }
    std::sort(members.begin(), members.end());
    for (const auto& member : members)
      made[static_cast<size_t>(color)].jobranks.push_back(parent.jobranks[member.second]);
  }
  if (!parent.has_me()) return made;
  const Choice mine = choice_of(number, me);
  ModelTeam& own = made[static_cast<size_t>(mine.color)];
  gex_TM_t team = GEX_TM_INVALID;
  const bool scratch = number % 2 == 0;
  gex_TM_t* place = mine.joins ? &team : nullptr;
  const size_t bytes = gex_TM_Split(place, parent.team, mine.color, mine.key, nullptr, 0,
                                    GEX_FLAG_TM_SCRATCH_SIZE_RECOMMENDED);
  check((bytes != 0) == mine.joins, "the size of scratch memory");
  void* memory = static_cast<char*>(gex_Segment_QueryAddr(segment)) + (number % 64) * 4096;
  (void)gex_TM_Split(place, parent.team, mine.color, mine.key, scratch ? memory : nullptr,
                     scratch ? bytes : 0, scratch ? 0 : GEX_FLAG_TM_NO_SCRATCH);
  if (!mine.joins) return made;
  own.team = team;
  if (scratch) own.scratch = {memory, bytes};
  return made;
}

// Every second rank in reverse, and the others; ranks above `most` make no team.
inline std::vector<ModelTeam> create(const ModelTeam& parent, uint32_t number) {
  const bool by_jobrank = number % 2 == 0;
  std::vector<ModelTeam> made(2);
  std::vector<gex_EP_Location_t> places[2];
  const size_t size = parent.jobranks.size();
  const size_t most = size > 3 ? size - 1 : size;
  for (size_t i = most; i-- > 0;) {
    made[i % 2].jobranks.push_back(parent.jobranks[i]);
    places[i % 2].push_back({by_jobrank ? parent.jobranks[i] : static_cast<gex_Rank_t>(i), 0});
  }
  if (!parent.has_me()) return made;
  const gex_Rank_t mine = gex_TM_QueryRank(parent.team);
  const bool makes = mine < most;
  const size_t which = mine % 2;
  gex_TM_t team = GEX_TM_INVALID;
  // Scratch memory of each kind: an address of each member, an offset for all, or offsets of all members.
  constexpr gex_Flags_t kKinds[] = {GEX_FLAG_TM_LOCAL_SCRATCH, GEX_FLAG_TM_NO_SCRATCH,
                                    GEX_FLAG_TM_SYMMETRIC_SCRATCH | GEX_FLAG_SCRATCH_SEG_OFFSET,
                                    GEX_FLAG_TM_GLOBAL_SCRATCH | GEX_FLAG_SCRATCH_SEG_OFFSET};
  constexpr uintptr_t kOffset = 512 * 1024;
  const uint32_t kind = number % 4;
  char* const address = static_cast<char*>(gex_Segment_QueryAddr(segment)) + kOffset;
  std::vector<gex_Addr_t> scratch(
      std::max<size_t>(size, 1),
      kind == 0 ? static_cast<gex_Addr_t>(address) : reinterpret_cast<gex_Addr_t>(kOffset));
  const gex_Flags_t flags = kKinds[kind] | (by_jobrank ? GEX_FLAG_RANK_IS_JOBRANK : 0);
  (void)gex_TM_Create(&team, makes ? 1 : 0, parent.team, makes ? places[which].data() : nullptr,
                      makes ? places[which].size() : 0, scratch.data(), 128, flags);
  if (makes) {
    made[which].team = team;
    if (kind != 1) made[which].scratch = {address, 128};
  }
  return made;
}

inline void check_members(const ModelTeam& model) {
  const gex_TM_t team = model.team;
  const auto size = static_cast<gex_Rank_t>(model.jobranks.size());
  check(gex_TM_QuerySize(team) == size, "the size of a team");
  check(gex_TM_QueryEP(team) == gex_TM_QueryEP(world), "the endpoint of a team");
  for (gex_Rank_t rank = 0; rank < size; ++rank) {
    check(gex_TM_TranslateRankToJobrank(team, rank) == model.jobranks[rank],
          "rank to rank of the job");
    check(gex_TM_TranslateJobrankToRank(team, model.jobranks[rank]) == rank,
          "rank of the job to rank");
    check(gex_TM_TranslateRankToEP(team, rank, 0).gex_rank == model.jobranks[rank],
          "rank to endpoint");
    if (model.jobranks[rank] == me) check(gex_TM_QueryRank(team) == rank, "the own rank");
  }
  for (gex_Rank_t jobrank = 0; jobrank < job_size; ++jobrank) {
    if (std::find(model.jobranks.begin(), model.jobranks.end(), jobrank) == model.jobranks.end())
      check(gex_TM_TranslateJobrankToRank(team, jobrank) == GEX_RANK_INVALID,
            "a rank that is no member");
  }
}

inline void destroy(ModelTeam& model) {
  if (!model.has_me()) return;
  gex_Memvec_t scratch = {&scratch, 77};
  const bool given = gex_TM_Destroy(model.team, &scratch, 0) != 0;
  check(given == (model.scratch.gex_len != 0), "whether scratch memory comes back");
  const gex_Memvec_t expected = given ? model.scratch : gex_Memvec_t{&scratch, 77};
  check(scratch.gex_addr == expected.gex_addr && scratch.gex_len == expected.gex_len,
        "the scratch memory");
  model.team = GEX_TM_INVALID;
}
