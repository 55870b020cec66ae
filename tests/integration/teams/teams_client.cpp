// Random teams and collectives over them, against models that every rank can compute. Ends with 0 and "all
// held", or with a line that begins with "WRONG".
// Arguments: the scenario, and the number of rounds.
#include <gasnetex.h>
#include <hydrant/coll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <gasnet_coll.h>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

gex_TM_t world;
gex_Rank_t me;
gex_Rank_t job_size;
gex_Segment_t segment;
constexpr size_t kSegment = size_t{1} << 20;

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "WRONG (rank %u): %s\n", me, what);
  gasnet_exit(3);
}

void barrier(gex_TM_t team) { gex_Event_Wait(gex_Coll_BarrierNB(team, 0)); }

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
Choice choice_of(uint32_t number, gex_Rank_t jobrank) {
  std::mt19937 random(number * 7919 + jobrank);
  const auto color = static_cast<int>(random() % 3);
  const auto key = static_cast<int>(random() % 4) - 2;
  return {color, number % 5 == 0 ? -static_cast<int>(jobrank) : key, random() % 8 != 0};
}

std::vector<ModelTeam> split(const ModelTeam& parent, uint32_t number) {
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
std::vector<ModelTeam> create(const ModelTeam& parent, uint32_t number) {
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

void check_members(const ModelTeam& model) {
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

void destroy(ModelTeam& model) {
  if (!model.has_me()) return;
  gex_Memvec_t scratch = {&scratch, 77};
  const bool given = gex_TM_Destroy(model.team, &scratch, 0) != 0;
  check(given == (model.scratch.gex_len != 0), "whether scratch memory comes back");
  const gex_Memvec_t expected = given ? model.scratch : gex_Memvec_t{&scratch, 77};
  check(scratch.gex_addr == expected.gex_addr && scratch.gex_len == expected.gex_len,
        "the scratch memory");
  model.team = GEX_TM_INVALID;
}

// ---- collectives ----

// Composition of x -> multiplier * x + addend, which is not commutative.
struct Affine {
  uint32_t multiplier;
  uint32_t addend;
};
Affine compose(Affine left, Affine right) {
  constexpr uint64_t kPrime = 65521;
  return {
      static_cast<uint32_t>(uint64_t{left.multiplier} * right.multiplier % kPrime),
      static_cast<uint32_t>((uint64_t{left.addend} * right.multiplier + right.addend) % kPrime)};
}
void compose_all(const void* arg1, void* arg2_and_out, size_t count, const void* cdata) {
  check(cdata == &world, "the client data of an operation");
  for (size_t i = 0; i < count; ++i) {
    auto& right = static_cast<Affine*>(arg2_and_out)[i];
    right = compose(static_cast<const Affine*>(arg1)[i], right);
  }
}
Affine affine_of(uint32_t seed, gex_Rank_t jobrank, size_t i) {
  std::minstd_rand random(seed * 31 + jobrank * 1009 + static_cast<uint32_t>(i) + 1);
  return {static_cast<uint32_t>(random() % 65520 + 1), static_cast<uint32_t>(random() % 65521)};
}

// A collective under way. finish() waits, and checks the result.
struct Collective {
  gex_Event_t event = GEX_EVENT_INVALID;
  std::vector<unsigned char> source;
  std::vector<unsigned char> dest;
  std::function<void()> verify;

  void start(const ModelTeam& model, uint32_t seed) {
    std::mt19937 common(seed);  // the same on all members
    const auto size = static_cast<gex_Rank_t>(model.jobranks.size());
    const auto root = static_cast<gex_Rank_t>(common() % size);
    const bool is_root = model.jobranks[root] == me;
    const size_t count = common() % 4 == 0 ? 1 + common() % 6000 : 1 + common() % 20;
    const bool in_place = common() % 3 == 0;
    switch (common() % 7) {
      case 0: return start_broadcast(model, root, is_root, count, in_place, seed);
      case 1: return start_composition(model, root, is_root, count, in_place, seed, true);
      case 2: return start_composition(model, root, is_root, count, in_place, seed, false);
      case 3: return start_sum(model, count, seed);
      case 4: return start_parts(model, root, is_root, count, common);
      case 5: return start_parts(model, root, is_root, count % 30 + 1, common);
      default: event = gex_Coll_BarrierNB(model.team, 0); verify = [] {};
    }
  }
  void finish() {
    gex_Event_Wait(event);
    verify();
  }

 private:
  // Byte i of the part that rank `from` of the job has for rank `to`.
  static unsigned char part_byte(gex_Rank_t from, gex_Rank_t to, size_t i) {
    return static_cast<unsigned char>(from * 37 + to * 11 + i * 5 + 3);
  }
  // Gathers, scatters and exchanges, by GASNet-1's calls or ours.
  void start_parts(const ModelTeam& model, gex_Rank_t root, bool is_root, size_t bytes,
                   std::mt19937& common) {
    constexpr int kIn[] = {GASNET_COLL_IN_NOSYNC, GASNET_COLL_IN_MYSYNC, GASNET_COLL_IN_ALLSYNC};
    constexpr int kOut[] = {GASNET_COLL_OUT_NOSYNC, GASNET_COLL_OUT_MYSYNC,
                            GASNET_COLL_OUT_ALLSYNC};
    const std::vector<gex_Rank_t> jobranks = model.jobranks;
    const size_t size = jobranks.size();
    const gex_TM_t team = model.team;
    const int flags = kIn[common() % 3] | kOut[common() % 3] | GASNET_COLL_LOCAL;
    const auto what = static_cast<uint32_t>(common() % 6);
    const bool has_parts =
        what == 3 || what == 4 || what == 5;  // the source has a part for each member
    source.resize(bytes * size);
    dest.assign(bytes * size, 0xee);
    for (size_t to = 0; to < (has_parts ? size : 1); ++to) {
      for (size_t i = 0; i < bytes; ++i)
        source[to * bytes + i] = part_byte(me, has_parts ? jobranks[to] : 0, i);
    }
    switch (what) {
      case 0: event = hydrant_gather_all_nb(team, dest.data(), source.data(), bytes); break;
      case 1:
        event = gasnet_coll_gather_all_nb(team, dest.data(), source.data(), bytes, flags);
        break;
      case 2:
        event = gasnet_coll_gather_nb(team, root, dest.data(), source.data(), bytes, flags);
        break;
      case 3:
        event = gasnet_coll_scatter_nb(team, dest.data(), root, source.data(), bytes, flags);
        break;
      case 4:
        event = gasnet_coll_exchange_nb(team, dest.data(), source.data(), bytes, flags);
        break;
      default: event = hydrant_exchange_nb(team, dest.data(), source.data(), bytes);
    }
    if (what == 2 && !is_root) {
      verify = [] {};
      return;
    }
    verify = [this, jobranks, what, root, bytes, has_parts] {
      const size_t parts = what == 3 ? 1 : jobranks.size();
      for (size_t part = 0; part < parts; ++part) {
        const gex_Rank_t from = jobranks[what == 3 ? root : part];
        for (size_t i = 0; i < bytes; ++i)
          check(dest[part * bytes + i] == part_byte(from, has_parts ? me : 0, i),
                "parts of members");
      }
    };
  }
  void start_broadcast(const ModelTeam& model, gex_Rank_t root, bool is_root, size_t count,
                       bool in_place, uint32_t seed) {
    dest.assign(count, 0xee);
    source.resize(count);
    auto& data = in_place ? dest : source;
    for (size_t i = 0; is_root && i < count; ++i)
      data[i] = static_cast<unsigned char>(i * 13 + seed);
    event = gex_Coll_BroadcastNB(model.team, root, dest.data(), is_root ? data.data() : nullptr,
                                 count, 0);
    verify = [this, seed] {
      for (size_t i = 0; i < dest.size(); ++i)
        check(dest[i] == static_cast<unsigned char>(i * 13 + seed), "a broadcast");
    };
  }
  void start_composition(const ModelTeam& model, gex_Rank_t root, bool is_root, size_t count,
                         bool in_place, uint32_t seed, bool to_all) {
    source.resize(count * sizeof(Affine));
    dest.assign(count * sizeof(Affine), 0);
    auto& data = in_place && (to_all || is_root) ? dest : source;
    for (size_t i = 0; i < count; ++i) {
      const Affine mine = affine_of(seed, me, i);
      std::memcpy(data.data() + i * sizeof mine, &mine, sizeof mine);
    }
    event = to_all ? gex_Coll_ReduceToAllNB(model.team, dest.data(), data.data(), GEX_DT_USER,
                                            sizeof(Affine), count, GEX_OP_USER_NC, compose_all,
                                            &world, 0)
                   : gex_Coll_ReduceToOneNB(model.team, root, is_root ? dest.data() : nullptr,
                                            data.data(), GEX_DT_USER, sizeof(Affine), count,
                                            GEX_OP_USER_NC, compose_all, &world, 0);
    if (!to_all && !is_root) {
      verify = [] {};
      return;
    }
    const std::vector<gex_Rank_t> jobranks = model.jobranks;
    verify = [this, jobranks, seed, count] {
      for (size_t i = 0; i < count; ++i) {
        Affine expected{1, 0};
        for (const gex_Rank_t jobrank : jobranks)
          expected = compose(expected, affine_of(seed, jobrank, i));
        check(std::memcmp(dest.data() + i * sizeof expected, &expected, sizeof expected) == 0,
              "a reduction in the order of ranks");
      }
    };
  }
  void start_sum(const ModelTeam& model, size_t count, uint32_t seed) {
    std::vector<uint64_t> mine(count);
    for (size_t i = 0; i < count; ++i) mine[i] = uint64_t{me} * 1000 + i + seed;
    source.resize(count * 8);
    dest.resize(count * 8);
    std::memcpy(source.data(), mine.data(), source.size());
    event = gex_Coll_ReduceToAllNB(model.team, dest.data(), source.data(), GEX_DT_U64, 8, count,
                                   GEX_OP_ADD, nullptr, nullptr, 0);
    uint64_t ranks = 0;
    for (const gex_Rank_t jobrank : model.jobranks) ranks += jobrank;
    const uint64_t size = model.jobranks.size();
    verify = [this, ranks, size, seed, count] {
      for (size_t i = 0; i < count; ++i) {
        uint64_t sum = 0;
        std::memcpy(&sum, dest.data() + i * 8, 8);
        check(sum == ranks * 1000 + size * (i + seed), "a sum");
      }
    };
  }
};

// Several collectives at once on one team, finished in another order.
void run_collectives(const ModelTeam& model, uint32_t seed) {
  if (!model.has_me()) return;
  std::mt19937 common(seed);
  std::mt19937 own(seed + me);
  std::vector<Collective> all(1 + common() % 6);
  for (size_t i = 0; i < all.size(); ++i) {
    if (own() % 16 == 0) usleep(static_cast<useconds_t>(own() % 1000));
    all[i].start(model, static_cast<uint32_t>(common()));
  }
  const bool backwards = own() % 2 == 0;
  for (size_t i = 0; i < all.size(); ++i) all[backwards ? all.size() - 1 - i : i].finish();
}

// ---- messages, puts and gets ----

constexpr gex_AM_Index_t kNote = 200;
std::vector<int> notes;  // by rank of the job
void on_note(gex_Token_t token, gex_AM_Arg_t number) {
  gex_Token_Info_t info;
  (void)gex_Token_Info(token, &info, GEX_TI_SRCRANK);
  notes[info.gex_srcrank] = number;
}

// Each member writes to the place of its rank in the job, in the segment of every member.
void use_in_calls(const ModelTeam& model, uint32_t seed) {
  if (!model.has_me()) return;
  const auto number = static_cast<gex_AM_Arg_t>(seed & 0x7fffffff);
  const size_t offset = 768 * 1024 + me * 64;
  for (gex_Rank_t rank = 0; rank < model.jobranks.size(); ++rank) {
    void* owner = nullptr;
    uintptr_t bytes = 0;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(model.team, rank, &owner, nullptr, &bytes, 0));
    check(bytes == kSegment, "the segment of a member");
    char* place = static_cast<char*>(owner) + offset;
    uint64_t values[8] = {seed, rank, me};
    check(gex_RMA_PutBlocking(model.team, rank, place, values, sizeof values, 0) == 0, "a put");
    values[0] = 0;
    gex_Event_Wait(gex_RMA_GetNB(model.team, values, rank, place, sizeof values, 0));
    check(values[0] == seed && values[1] == rank && values[2] == me, "what was put and got");
    check(gex_AM_RequestShort1(model.team, rank, kNote, 0, number) == 0, "a message");
    check(gex_AM_MaxRequestMedium(model.team, rank, GEX_EVENT_NOW, 0, 1) > 0, "a limit");
  }
  barrier(model.team);
  for (const gex_Rank_t jobrank : model.jobranks) GASNET_BLOCKUNTIL(notes[jobrank] == number);
  barrier(model.team);
}

// ---- scenarios ----

ModelTeam whole_job() {
  ModelTeam all{world, {}, {}};
  for (gex_Rank_t rank = 0; rank < job_size; ++rank) all.jobranks.push_back(rank);
  return all;
}

// Teams of teams, all of them in use at once.
void run_random(uint32_t rounds) {
  for (uint32_t round = 0; round < rounds; ++round) {
    std::vector<ModelTeam> teams = {whole_job()};
    std::mt19937 common(round + 1);
    for (int level = 0; level < 3; ++level) {
      const ModelTeam parent = teams[common() % teams.size()];
      if (parent.jobranks.empty()) continue;
      std::vector<ModelTeam> made = level == 1
                                        ? create(parent, round)
                                        : split(parent, round * 4 + static_cast<uint32_t>(level));
      for (ModelTeam& each : made) {
        if (each.has_me()) check_members(each);
        if (!each.jobranks.empty()) teams.push_back(each);
      }
    }
    for (const ModelTeam& each : teams) run_collectives(each, static_cast<uint32_t>(common()));
    for (const ModelTeam& each : teams) use_in_calls(each, static_cast<uint32_t>(common()));
    for (size_t i = teams.size(); i-- > 1;) destroy(teams[i]);
  }
}

// Each call that the random scenarios leave out, once: queries, pairs, blocking and synchronising calls of
// GASNet-1.
void run_calls() {
  const auto last = job_size - 1;
  gex_TM_t team = GEX_TM_INVALID;
  (void)gex_TM_Split(&team, world, 0, static_cast<int>(me), nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
  check(gex_TM_QueryClient(team) == gex_TM_QueryClient(world), "the client of a team");
  check(gex_TM_QueryFlags(team) == 0, "the flags of a team");
  check(gex_TM_QueryCData(team) == nullptr, "the client data of a new team");
  gex_TM_SetCData(team, &team);
  check(gex_TM_QueryCData(team) == &team, "the client data of a team");

  // A pair names ranks of the job.
  const gex_TM_t pair = gex_TM_Pair(gex_TM_QueryEP(world), 0);
  check(pair == gex_TM_Pair(gex_TM_QueryEP(team), 0) && pair != world, "equal pairs");
  void* owner = nullptr;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(pair, last, &owner, nullptr, nullptr, 0));
  const auto number = static_cast<uint64_t>(me) + 77;
  check(gex_RMA_PutBlockingVal(pair, last, static_cast<uint64_t*>(owner) + me, number, 8, 0) == 0,
        "a put to a pair");
  barrier(team);
  check(gex_RMA_GetBlockingVal(pair, last, static_cast<uint64_t*>(owner) + me, 8, 0) == number,
        "a get from a pair");

  constexpr int kFlags = GASNET_COLL_IN_ALLSYNC | GASNET_COLL_OUT_ALLSYNC | GASNET_COLL_LOCAL |
                         GASNET_COLL_SRC_IN_SEGMENT | GASNET_COLL_DST_IN_SEGMENT;
  std::vector<uint32_t> source(job_size);
  std::vector<uint32_t> dest(job_size, 9);
  for (gex_Rank_t to = 0; to < job_size; ++to) source[to] = me * 100 + to;
  gasnet_coll_broadcast(GASNET_TEAM_ALL, dest.data(), last, source.data(), 4, kFlags);
  check(dest[0] == last * 100, "gasnet_coll_broadcast");
  gasnet_coll_scatter(GASNET_TEAM_ALL, dest.data(), 0, source.data(), 4, kFlags);
  check(dest[0] == me, "gasnet_coll_scatter");
  gasnet_coll_gather(GASNET_TEAM_ALL, last, dest.data(), source.data(), 4, kFlags);
  for (gex_Rank_t from = 0; from < job_size; ++from)
    check(me != last || dest[from] == from * 100, "gasnet_coll_gather");
  gasnet_coll_gather_all(GASNET_TEAM_ALL, dest.data(), source.data(), 4, kFlags);
  for (gex_Rank_t from = 0; from < job_size; ++from)
    check(dest[from] == from * 100, "gasnet_coll_gather_all");
  gasnet_coll_exchange(GASNET_TEAM_ALL, dest.data(), source.data(), 4, kFlags);
  for (gex_Rank_t from = 0; from < job_size; ++from)
    check(dest[from] == from * 100 + me, "gasnet_coll_exchange");

  // Handles, synchronised in each way.
  uint32_t values[6] = {};
  gasnet_coll_handle_t handles[6];
  for (uint32_t i = 0; i < 6; ++i) {
    if (me == 0) values[i] = i + 1;
    handles[i] = gasnet_coll_broadcast_nb(GASNET_TEAM_ALL, &values[i], 0, &values[i], 4,
                                          GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC);
  }
  while (gasnet_coll_try_sync(handles[0]) != GASNET_OK) (void)gasnet_AMPoll();
  gasnet_coll_wait_sync(handles[1]);
  while (gasnet_coll_try_sync_some(&handles[2], 1) != GASNET_OK) (void)gasnet_AMPoll();
  gasnet_coll_wait_sync_some(&handles[3], 1);
  while (gasnet_coll_try_sync_all(&handles[4], 1) != GASNET_OK) (void)gasnet_AMPoll();
  gasnet_coll_wait_sync_all(&handles[5], 1);
  check(handles[5] == GASNET_COLL_INVALID_HANDLE, "a handle that is synchronised");
  for (uint32_t i = 0; i < 6; ++i) check(values[i] == i + 1, "broadcasts by handles");

  gasnet_coll_barrier_notify(GASNET_TEAM_ALL, 5, 0);
  while (gasnet_coll_barrier_try(GASNET_TEAM_ALL, 5, 0) != GASNET_OK) (void)gasnet_AMPoll();
  int name = 0;
  check(gasnet_coll_barrier_result(GASNET_TEAM_ALL, &name) == 0 && name == 5,
        "the name of a barrier");
  gasnet_coll_barrier_notify(GASNET_TEAM_ALL, 0, GASNET_BARRIERFLAG_ANONYMOUS);
  check(gasnet_coll_barrier_wait(GASNET_TEAM_ALL, 0, GASNET_BARRIERFLAG_ANONYMOUS) == GASNET_OK,
        "a barrier's wait");
  check(gasnet_coll_barrier(GASNET_TEAM_ALL, static_cast<int>(me), 0) ==
            (job_size == 1 ? GASNET_OK : GASNET_ERR_BARRIER_MISMATCH),
        "a barrier with several names");

  // Tuning has no effect.
  gasnet_coll_set_tree_kind(GASNET_TEAM_ALL, 1, 2, GASNET_COLL_BROADCAST_OP);
  gasnet_coll_set_dissem_limit(GASNET_TEAM_ALL, 100, GASNET_COLL_EXCHANGE_OP);
  check(gasnet_coll_get_num_tree_classes(GASNET_TEAM_ALL, GASNET_COLL_GATHER_OP) > 0,
        "the classes of trees");
  gasnet_coll_loadTuningState(nullptr, GASNET_TEAM_ALL);
  gasnet_coll_dumpTuningState(nullptr, GASNET_TEAM_ALL);
  gasnet_coll_dumpProfile(nullptr, GASNET_TEAM_ALL);

  barrier(team);
  check(gex_TM_Destroy(team, nullptr, GEX_FLAG_GLOBALLY_QUIESCED) == 0, "a destroyed team");
}

// Only rank 0 waits for its broadcasts: polls of the others, which wait in barriers, have to be enough.
void run_polled(uint32_t rounds) {
  std::vector<unsigned char> data(100'000, static_cast<unsigned char>(me == 0 ? 0x5a : 0));
  for (uint32_t round = 0; round < rounds; ++round) {
    const gex_Event_t event =
        gex_Coll_BroadcastNB(world, 0, data.data(), data.data(), data.size(), 0);
    if (me == 0) gex_Event_Wait(event);
    barrier(world);
    if (me != 0) gex_Event_Wait(event);
    check(data.back() == 0x5a, "a broadcast that polls advance");
  }
}

size_t resident_kib() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long size = 0;
  unsigned long resident = 0;
  if (file == nullptr || std::fscanf(file, "%lu %lu", &size, &resident) != 2) return 0;
  std::fclose(file);
  return resident * 4;
}

void run_growth(uint32_t rounds) {
  const auto once = [] {
    gex_TM_t team = GEX_TM_INVALID;
    (void)gex_TM_Split(&team, world, 0, -static_cast<int>(me), nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
    check(gex_TM_Destroy(team, nullptr, 0) == 0, "a team without scratch memory");
  };
  for (int i = 0; i < 200; ++i) once();
  const size_t before = resident_kib();
  for (uint32_t i = 0; i < rounds; ++i) once();
  check(resident_kib() < before + 512, "memory grows with teams that are destroyed");
}

// Two threads split disjoint teams at once, and use them.
void run_threads(uint32_t rounds) {
#if defined(GASNET_PAR)
  gex_TM_t parents[2];
  for (gex_TM_t& parent : parents)
    (void)gex_TM_Split(&parent, world, 0, 0, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
  const auto work = [&](gex_TM_t parent, uint32_t seed) {
    ModelTeam model = whole_job();
    model.team = parent;
    for (uint32_t round = 0; round < rounds; ++round) {
      for (ModelTeam& each : split(model, 2 * (seed + round) + 1)) {  // odd: no scratch memory
        run_collectives(each, seed + round);
        destroy(each);
      }
    }
  };
  std::thread first(work, parents[0], 1000);
  std::thread second(work, parents[1], 2000);
  first.join();
  second.join();
  for (const gex_TM_t parent : parents) (void)gex_TM_Destroy(parent, nullptr, 0);
#else
  (void)rounds;
#endif
}

void add_twice(const void*, void*, size_t, const void*) {}

// Calls that end the job.
void run_wrong(const std::string& what) {
  char byte[64] = {};
  gex_TM_t team = GEX_TM_INVALID;
  gex_EP_Location_t location = {0, 0};
  void* memory = gex_Segment_QueryAddr(segment);
  if (what == "root") gex_Coll_BroadcastNB(world, job_size, byte, byte, 1, 0);
  if (what == "order" && me == 0) gex_Event_Wait(gex_Coll_BroadcastNB(world, 0, byte, byte, 8, 0));
  if (what == "order" && me != 0)
    gex_Event_Wait(gex_Coll_ReduceToAllNB(world, byte + 8, byte, GEX_DT_I32, 4, 1, GEX_OP_ADD,
                                          nullptr, nullptr, 0));
  if (what == "length") gex_Event_Wait(gex_Coll_BroadcastNB(world, 0, byte, byte, 8 + me, 0));
  if (what == "type")
    gex_Coll_ReduceToOneNB(world, 0, byte + 8, byte, GEX_DT_FLT, 4, 1, GEX_OP_XOR, nullptr, nullptr,
                           0);
  if (what == "count")
    gex_Coll_ReduceToAllNB(world, byte + 8, byte, GEX_DT_USER, 4, 0, GEX_OP_USER, add_twice,
                           nullptr, 0);
  if (what == "pair") barrier(gex_TM_Pair(gex_TM_QueryEP(world), 0));
  if (what == "color") gex_TM_Split(&team, world, -1, 0, memory, 64, 0);
  if (what == "scratch") gex_TM_Split(&team, world, 0, 0, memory, 0, 0);
  if (what == "args") {
    location.gex_rank = me == 0 ? 0 : job_size - 1;
    gex_EP_Location_t two[2] = {{0, 0}, {1, 0}};
    if (me == 0) gex_TM_Create(&team, 1, world, two, 2, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
    if (me != 0) gex_TM_Create(&team, 1, world, &location, 1, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
  }
  if (what == "world") gex_TM_Destroy(world, nullptr, 0);
  if (what == "twice") {
    gex_TM_Split(&team, world, 0, 0, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
    gex_TM_Destroy(team, nullptr, 0);
    gex_TM_Destroy(team, nullptr, 0);
  }
  if (what == "destroyed") {  // debug only
    gex_TM_Split(&team, world, 0, 0, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
    gex_TM_Destroy(team, nullptr, 0);
    barrier(team);
  }
  if (what == "overlap") {  // debug only
    gex_TM_Split(&team, world, 0, 0, memory, 64, 0);
    gex_TM_Split(&team, world, 0, 0, static_cast<char*>(memory) + 32, 64, 0);
  }
}

// The last rank dies in the middle of a collective.
void run_killed() {
  std::vector<unsigned char> data(100'000);
  if (me == job_size - 1) _exit(9);
  gex_Event_Wait(gex_Coll_ReduceToAllNB(world, data.data() + 50'000, data.data(), GEX_DT_I32, 4,
                                        10'000, GEX_OP_ADD, nullptr, nullptr, 0));
}

}  // namespace

int main(int argc, char** argv) {
  gex_Client_t client;
  gex_EP_t endpoint;
  if (gex_Client_Init(&client, &endpoint, &world, "teams_client", &argc, &argv, 0) != GASNET_OK)
    return 2;
  if (argc < 3) gasnet_exit(2);
  me = gex_TM_QueryRank(world);
  job_size = gex_TM_QuerySize(world);
  notes.resize(job_size);
  gex_AM_Entry_t handlers[] = {{kNote, reinterpret_cast<gex_AM_Fn_t>(on_note),
                                GEX_FLAG_AM_SHORT | GEX_FLAG_AM_REQUEST, 1, nullptr, "note"}};
  if (gex_EP_RegisterHandlers(endpoint, handlers, 1) != GASNET_OK) gasnet_exit(2);
  if (gex_Segment_Attach(&segment, world, kSegment) != GASNET_OK) gasnet_exit(2);
  const std::string what = argv[1];
  const auto rounds = static_cast<uint32_t>(std::atoi(argv[2]));
  if (what == "random") run_random(rounds);
  if (what == "calls") run_calls();
  if (what == "polled") run_polled(rounds);
  if (what == "growth") run_growth(rounds);
  if (what == "threads") run_threads(rounds);
  if (what == "killed") run_killed();
  run_wrong(what);
  barrier(world);
  if (me == 0) std::puts("all held");
  std::fflush(stdout);
  gasnet_exit(0);
}
