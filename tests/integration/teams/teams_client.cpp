// Random teams and collectives over them, against models that every rank can compute. Ends with 0 and "all
// held", or with a line that begins with "WRONG".
// Arguments: the scenario, and the number of rounds.
#include <hydrant/persistent.h>

#include "tests/integration/teams/failing_new.hpp"
#include "tests/integration/teams/model_collective.hpp"
#include "tests/integration/teams/model_team.hpp"

#include <csignal>
#include <gasnet_ratomic.h>
#include <gasnet_vis.h>
#include <string>
#include <thread>

namespace {

// ---- messages, puts and gets ----

constexpr gex_AM_Index_t kNote = 200;
std::vector<int> notes;  // by rank of the job
void on_note(gex_Token_t token, gex_AM_Arg_t number) {
  gex_Token_Info_t info;
  (void)gex_Token_Info(token, &info, GEX_TI_SRCRANK);
  notes[info.gex_srcrank] = number;
}

// Each member writes to the place of its rank in the job, in the segment of every member.
// Lists of puts and gets with all members, and an operation that is started twice.
void use_in_lists(const ModelTeam& model, uint32_t seed) {
  const auto size = static_cast<gex_Rank_t>(model.jobranks.size());
  std::vector<uint64_t> values(size);
  std::vector<hydrant_rma_op_t> list;
  uint64_t total = 0;
  for (gex_Rank_t rank = 0; rank < size; ++rank) {
    void* owner = nullptr;
    gex_Event_Wait(gex_EP_QueryBoundSegmentNB(model.team, rank, &owner, nullptr, nullptr, 0));
    values[rank] = uint64_t{seed} * 1000 + rank * 100 + me;
    void* const place = static_cast<char*>(owner) + 896 * 1024 + me * 64;
    list.push_back({rank, place, &values[rank], sizeof values[rank]});
    total += sizeof values[rank];
  }
  check(hydrant_put_many(model.team, list.data(), list.size(), total, nullptr) == GASNET_OK,
        "a list of puts");
  const std::vector<uint64_t> expected = values;
  std::fill(values.begin(), values.end(), 0);
  gex_Event_t event = GEX_EVENT_INVALID;
  check(hydrant_get_many(model.team, list.data(), list.size(), total, &event) == GASNET_OK,
        "a list of gets");
  gex_Event_Wait(event);
  check(values == expected, "what lists put and got");
  const auto last = size - 1;
  hydrant_operation_t operation = nullptr;
  uint64_t word = 0;
  check(hydrant_get_init(model.team, last, list[last].remote, &word, 8, &operation) == GASNET_OK,
        "an operation");
  for (int i = 0; i < 2; ++i) {
    word = 0;
    check(hydrant_start(operation) == GASNET_OK && hydrant_wait(operation) == GASNET_OK,
          "its start and wait");
    check(word == expected[last], "what an operation got");
  }
  hydrant_operation_free(&operation);
}

void use_in_calls(const ModelTeam& model, uint32_t seed) {
  if (!model.has_me()) return;
  use_in_lists(model, seed);
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
  check(gex_TM_QueryFlags(team) == GEX_FLAG_TM_NO_SCRATCH, "the flags of a team");
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

// A thread's atomics and strided transfers with the next rank, where it has a place of its own.
[[maybe_unused]] void use_next_rank(gex_AD_t domain, uint32_t thread, uint32_t round) {
  const auto next = static_cast<gex_Rank_t>((me + 1) % job_size);
  void* owner = nullptr;
  gex_Event_Wait(gex_EP_QueryBoundSegmentNB(world, next, &owner, nullptr, nullptr, 0));
  char* const place = static_cast<char*>(owner) + size_t{512} * 1024 + thread * 16384;
  uint64_t old = 0;
  gex_Event_Wait(gex_AD_OpNB_U64(domain, &old, next, place, GEX_OP_FADD, 3, 0, 0));
  check(old == uint64_t{3} * round, "an atomic beside other threads' collectives");
  const ptrdiff_t there[] = {16};
  const ptrdiff_t here[] = {8};
  const size_t count[] = {500};
  std::vector<uint64_t> values(count[0], old + me);
  std::vector<uint64_t> result(count[0]);
  gex_Event_Wait(
      gex_VIS_StridedPutNB(world, next, place + 64, there, values.data(), here, 8, count, 1, 0));
  gex_VIS_StridedGetBlocking(world, result.data(), here, next, place + 64, there, 8, count, 1, 0);
  check(result == values, "a strided transfer beside other threads' collectives");
}

// Threads split disjoint teams at once, and use them.
void run_threads(uint32_t rounds) {
#if defined(GASNET_PAR)
  constexpr uint32_t kThreads = 4;
  gex_TM_t parents[kThreads];
  for (gex_TM_t& parent : parents)
    (void)gex_TM_Split(&parent, world, 0, 0, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
  gex_AD_t domain = GEX_AD_INVALID;
  gex_AD_Create(&domain, world, GEX_DT_U64, GEX_OP_FADD, 0);
  const auto work = [&](gex_TM_t parent, uint32_t thread) {
    const uint32_t seed = (thread + 1) * 1000;
    ModelTeam model = whole_job();
    model.team = parent;
    for (uint32_t round = 0; round < rounds; ++round) {
      use_next_rank(domain, thread, round);
      for (ModelTeam& each : split(model, 2 * (seed + round) + 1)) {  // odd: no scratch memory
        run_collectives(each, seed + round);
        destroy(each);
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t thread = 0; thread < kThreads; ++thread)
    threads.emplace_back(work, parents[thread], thread);
  for (std::thread& thread : threads) thread.join();
  gex_AD_Destroy(domain);
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
  if (what == "unit")  // the same length
    gex_Event_Wait(gex_Coll_ReduceToAllNB(world, byte, byte, GEX_DT_USER, me == 0 ? 8 : 16,
                                          me == 0 ? 2 : 1, GEX_OP_USER, add_twice, nullptr, 0));
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
  if (what == "duplicate") {
    gex_EP_Location_t three[3] = {{0, 0}, {1, 0}, {0, 0}};
    gex_TM_Create(&team, 1, world, three, 3, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
  }
  if (what == "parts")
    gex_Event_Wait(hydrant_exchange_nb(world, memory, byte, SIZE_MAX / job_size + 2));
  if (what == "world") gex_TM_Destroy(world, nullptr, 0);
  if (what == "twice") {
    gex_TM_Split(&team, world, 0, 0, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
    gex_TM_Destroy(team, nullptr, 0);
    gex_TM_Destroy(team, nullptr, 0);
  }
  if (what == "early") {
    gex_TM_Split(&team, world, 0, 0, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
    // Rank 0 cannot be complete before the other one.
    if (me == 0) {
      (void)gex_Coll_BarrierNB(team, 0);
      gex_TM_Destroy(team, nullptr, 0);
    }
    barrier(world);
  }
  if (what == "nulls") {
    constexpr int kSync = GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC;
    gasnet_coll_gather(GASNET_TEAM_ALL, 0, byte, nullptr, 8, kSync);
  }
  if (what == "destroyed") {  // debug only
    gex_TM_Split(&team, world, 0, 0, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
    gex_TM_Destroy(team, nullptr, 0);
    barrier(team);
  }
  if (what == "destroyed_put") {  // debug only
    gex_TM_Split(&team, world, 0, 0, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
    gex_TM_Destroy(team, nullptr, 0);
    gex_RMA_PutBlocking(team, 0, memory, byte, 1, 0);
  }
  if (what == "overlap") {  // debug only
    gex_TM_Split(&team, world, 0, 0, memory, 64, 0);
    gex_TM_Split(&team, world, 0, 0, static_cast<char*>(memory) + 32, 64, 0);
  }
}

// Rank 0 fails to allocate once: the job ends with a text, or the calls do what they should.
void run_starved(uint32_t number) {
  // The first round makes what the library keeps.
  for (int round = 0; round < 2; ++round) {
    if (round == 1 && me == 0) fail_allocation(number);
    gex_TM_t team = GEX_TM_INVALID;
    (void)gex_TM_Split(&team, world, 0, static_cast<int>(me), nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
    for (const gex_TM_t each : {team, world}) {
      for (const size_t count : {size_t{1}, size_t{500}, size_t{40'000}}) {
        std::vector<uint64_t> data(count * job_size, me);
        std::vector<uint64_t> result(count * job_size);
        std::vector<gex_Event_t> events = {
            gex_Coll_BarrierNB(each, 0),
            gex_Coll_BroadcastNB(each, 0, result.data(), data.data(), count * 8, 0)};
        gex_Event_WaitAll(events.data(), events.size(), 0);
        check(result[count - 1] == 0, "a broadcast without memory");
        gex_Event_Wait(gex_Coll_ReduceToAllNB(each, result.data(), data.data(), GEX_DT_U64, 8,
                                              count, GEX_OP_ADD, nullptr, nullptr, 0));
        check(result[count - 1] == uint64_t{job_size} * (job_size - 1) / 2, "a sum without memory");
        gex_Event_Wait(hydrant_gather_all_nb(each, result.data(), data.data(), count * 8));
        check(result.back() == job_size - 1, "a gather without memory");
      }
    }
    gex_TM_Destroy(team, nullptr, 0);
  }
  if (me == 0 && !has_allocation_failed()) std::puts("nothing failed");
}

// A function of a reduction that calls the library.
gex_Event_t outstanding;
void call_collective(const void*, void*, size_t, const void*) {
  (void)gex_Coll_BarrierNB(world, 0);
}
void call_test(const void*, void*, size_t, const void*) { (void)gex_Event_Test(outstanding); }
void call_poll(const void*, void*, size_t, const void*) { gasnet_AMPoll(); }
void run_user_function(const std::string& what, size_t count) {
  std::vector<uint64_t> data(count);
  std::vector<uint64_t> sum(count);
  const auto function = what == "user_collective" ? call_collective
                        : what == "user_test"     ? call_test
                                                  : call_poll;
  outstanding = gex_Coll_ReduceToAllNB(world, sum.data(), data.data(), GEX_DT_USER, 8, count,
                                       GEX_OP_USER, function, nullptr, 0);
  if (what == "user_test" && outstanding == GEX_EVENT_INVALID)
    return run_user_function(what, count);
  gex_Event_Wait(outstanding);
}

// The last rank ends in the middle of collectives of the kind `which`: the others have begun the next one, or
// wait in it.
void run_killed(uint32_t which) {
  const bool ends = me == job_size - 1;
  const size_t bytes = which / 8 % 3 == 0 ? 8 : which / 8 % 3 == 1 ? 4000 : 300'000;
  std::vector<unsigned char> heap(4 * bytes * job_size);
  const bool in_segment = which / 24 != 0 && 4 * bytes <= kSegment - kDataOffset;
  unsigned char* const from =
      in_segment ? static_cast<unsigned char*>(gex_Segment_QueryAddr(segment)) + kDataOffset
                 : heap.data();
  unsigned char* const to = from + bytes * (in_segment ? 1 : job_size);
  for (uint32_t round = 0;; ++round) {
    gex_Event_t event = GEX_EVENT_INVALID;
    gex_TM_t team = GEX_TM_INVALID;
    if (ends && round == 20) raise(SIGKILL);
    switch (which % 8) {
      case 0: event = gex_Coll_BarrierNB(world, 0); break;
      case 1: event = gex_Coll_BroadcastNB(world, job_size - 1, to, from, bytes, 0); break;
      case 2:
        event = gex_Coll_ReduceToOneNB(world, 0, to, from, GEX_DT_I64, 8, bytes / 8, GEX_OP_ADD,
                                       nullptr, nullptr, 0);
        break;
      case 3:
        event = gex_Coll_ReduceToAllNB(world, to, from, GEX_DT_I64, 8, bytes / 8, GEX_OP_ADD,
                                       nullptr, nullptr, 0);
        break;
      case 4: event = hydrant_gather_all_nb(world, heap.data() + bytes, heap.data(), bytes); break;
      case 5:
        event = hydrant_exchange_nb(world, heap.data() + 2 * bytes * job_size, heap.data(), bytes);
        break;
      case 6:
        event = gasnet_coll_scatter_nb(
            world, heap.data() + 2 * bytes * job_size, job_size - 1, heap.data(), bytes,
            GASNET_COLL_IN_ALLSYNC | GASNET_COLL_OUT_ALLSYNC | GASNET_COLL_LOCAL);
        break;
      default:
        (void)gex_TM_Split(&team, world, 0, static_cast<int>(me), nullptr, 0,
                           GEX_FLAG_TM_NO_SCRATCH);
        gex_TM_Destroy(team, nullptr, 0);
    }
    // It ends with an operation under way.
    if (ends && round == 19 && which % 2 == 1) continue;
    gex_Event_Wait(event);
  }
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
  if (what == "starved") run_starved(rounds);
  if (what == "killed") run_killed(rounds);
  if (what.starts_with("user_")) run_user_function(what, rounds);
  run_wrong(what);
  barrier(world);
  if (me == 0) std::puts("all held");
  std::fflush(stdout);
  gasnet_exit(0);
}
