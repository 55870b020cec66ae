// Barriers, teams, collectives and remote atomics.
#include "tests/integration/field/job.hpp"

namespace field::teams {
namespace {

constexpr int kFlags = GASNET_COLL_IN_MYSYNC | GASNET_COLL_OUT_MYSYNC;

// ---- barriers ----

void barriers() {
  gex_Event_Wait(gex_Coll_BarrierNB(world, 0));
  gex_Coll_BarrierBlocking(world, 0);
}
void barriers1() {
  int id = 0;
  gasnet_barrier_notify(7, 0);
  FIELD_DO(gasnet_barrier_wait(7, 0));
  FIELD_DO(gasnet_barrier_result(&id));
  FIELD_IS(id == 7);
  gasnet_barrier_notify(0, GASNET_BARRIERFLAG_ANONYMOUS);
  int code;
  while ((code = gasnet_barrier_try(0, GASNET_BARRIERFLAG_ANONYMOUS)) == GASNET_ERR_NOT_READY)
    continue;
  FIELD_DO(code);
  FIELD_DO(gasnet_barrier(0, GASNET_BARRIERFLAG_UNNAMED));
}
void team_barriers1() {
  int id = 0;
  gasnet_coll_barrier_notify(GASNET_TEAM_ALL, 9, 0);
  FIELD_DO(gasnet_coll_barrier_wait(GASNET_TEAM_ALL, 9, 0));
  FIELD_DO(gasnet_coll_barrier_result(GASNET_TEAM_ALL, &id));
  FIELD_IS(id == 9);
  gasnet_coll_barrier_notify(GASNET_TEAM_ALL, 0, GASNET_BARRIERFLAG_ANONYMOUS);
  int code;
  while ((code = gasnet_coll_barrier_try(GASNET_TEAM_ALL, 0, GASNET_BARRIERFLAG_ANONYMOUS)) ==
         GASNET_ERR_NOT_READY)
    continue;
  FIELD_DO(code);
  FIELD_DO(gasnet_coll_barrier(GASNET_TEAM_ALL, 0, GASNET_BARRIERFLAG_UNNAMED));
}

// ---- teams ----

void check_team(gex_TM_t tm, bool turned) {
  const auto peer = static_cast<gex_Rank_t>(turned ? 1 - other : other);
  FIELD_IS(gex_TM_QuerySize(tm) == kRanks && gex_TM_QueryRank(tm) == 1 - peer);
  FIELD_IS(gex_TM_QueryEP(tm) == endpoint && gex_TM_QueryClient(tm) == client &&
           (gex_TM_QueryFlags(tm), true));
  FIELD_IS(gex_TM_TranslateRankToJobrank(tm, peer) == other &&
           gex_TM_TranslateJobrankToRank(tm, other) == peer);
  FIELD_IS(gex_TM_TranslateRankToEP(tm, peer, 0).gex_rank == other);
  gex_TM_SetCData(tm, source);
  FIELD_IS(gex_TM_QueryCData(tm) == source);
  const unsigned seed = next_seed();
  fill(source, 512, seed);
  FIELD_DO(gex_RMA_PutBlocking(tm, peer, there(8192), source, 512, 0));
  FIELD_DO(gex_RMA_GetBlocking(tm, back, peer, there(8192), 512, 0));
  FIELD_IS(holds(back, 512, seed));
  gex_Event_Wait(gex_Coll_BarrierNB(tm, 0));
}
void split() {
  gex_TM_t tm = GEX_TM_INVALID;
  (void)gex_TM_Split(&tm, world, 1, -static_cast<int>(me), nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
  FIELD_IS(tm != GEX_TM_INVALID);
  check_team(tm, true);
  FIELD_IS(gex_TM_Destroy(tm, nullptr, 0) == 0);
}
void create() {
  gex_TM_t tm = GEX_TM_INVALID;
  gex_EP_Location_t members[kRanks] = {{0, 0}, {1, 0}};
  (void)gex_TM_Create(&tm, 1, world, members, kRanks, nullptr, 0, GEX_FLAG_TM_NO_SCRATCH);
  FIELD_IS(tm != GEX_TM_INVALID);
  check_team(tm, false);
  FIELD_IS(gex_TM_Destroy(tm, nullptr, 0) == 0);
}

// ---- collectives ----

// Lengths that go in one step, in pieces, and in several messages.
constexpr size_t kLengths[] = {8, 3000, kLarge / 2};
char results[2 * kLarge];

void broadcast() {
  for (const size_t bytes : kLengths) {
    const unsigned seed = static_cast<unsigned>(bytes) + 17;
    fill(source, bytes, seed);
    gex_Event_Wait(gex_Coll_BroadcastNB(world, 0, back, source, bytes, 0));
    FIELD_IS(holds(back, bytes, seed));
  }
}
void reduce(bool to_all) {
  auto* const from = reinterpret_cast<uint64_t*>(static_cast<void*>(source));
  const auto* const to = reinterpret_cast<const uint64_t*>(static_cast<const void*>(back));
  for (const size_t bytes : kLengths) {
    for (size_t i = 0; i < bytes / 8; ++i) from[i] = i + me;
    if (to_all) {
      gex_Event_Wait(gex_Coll_ReduceToAllNB(world, back, source, GEX_DT_U64, 8, bytes / 8,
                                            GEX_OP_ADD, nullptr, nullptr, 0));
    } else {
      gex_Event_Wait(gex_Coll_ReduceToOneNB(world, 0, back, source, GEX_DT_U64, 8, bytes / 8,
                                            GEX_OP_ADD, nullptr, nullptr, 0));
      if (me != 0) continue;
    }
    for (size_t i = 0; i < bytes / 8; ++i) FIELD_IS(to[i] == 2 * i + 1);
  }
}
void gather_all(gex_Event_t (*start)(size_t)) {
  for (const size_t bytes : kLengths) {
    fill(source, bytes, 30 + me);
    gex_Event_Wait(start(bytes));
    for (unsigned rank = 0; rank < kRanks; ++rank)
      FIELD_IS(holds(results + rank * bytes, bytes, 30 + rank));
  }
}
void exchange(gex_Event_t (*start)(size_t)) {
  for (const size_t bytes : kLengths) {
    for (unsigned rank = 0; rank < kRanks; ++rank)
      fill(source + rank * bytes, bytes, 50 + me * 8 + rank);
    gex_Event_Wait(start(bytes));
    for (unsigned rank = 0; rank < kRanks; ++rank)
      FIELD_IS(holds(results + rank * bytes, bytes, 50 + rank * 8 + me));
  }
}
void broadcast1() {
  fill(source, 3000, 3);
  gasnet_coll_broadcast(GASNET_TEAM_ALL, back, 1, source, 3000, kFlags);
  FIELD_IS(holds(back, 3000, 3));
  fill(source, 3000, 4);
  gasnet_coll_handle_t handle =
      gasnet_coll_broadcast_nb(GASNET_TEAM_ALL, back, 0, source, 3000, kFlags);
  while (gasnet_coll_try_sync(handle) != GASNET_OK) gasnet_AMPoll();
  FIELD_IS(holds(back, 3000, 4));
}
void scatter1() {
  for (unsigned rank = 0; rank < kRanks; ++rank) fill(source + rank * 3000, 3000, 5 + rank);
  gasnet_coll_scatter(GASNET_TEAM_ALL, back, 0, source, 3000, kFlags);
  FIELD_IS(holds(back, 3000, 5 + me));
  std::memset(back, 0, 3000);
  gasnet_coll_handle_t handles[2] = {
      gasnet_coll_scatter_nb(GASNET_TEAM_ALL, back, 1, source, 3000, kFlags),
      GASNET_COLL_INVALID_HANDLE};
  gasnet_coll_wait_sync_some(handles, 2);
  gasnet_coll_wait_sync_all(handles, 2);
  FIELD_IS(holds(back, 3000, 5 + me));
}
void gather1() {
  fill(source, 3000, 7 + me);
  gasnet_coll_gather(GASNET_TEAM_ALL, 0, results, source, 3000, kFlags);
  for (unsigned rank = 0; me == 0 && rank < kRanks; ++rank)
    FIELD_IS(holds(results + rank * 3000, 3000, 7 + rank));
  gasnet_coll_handle_t handle =
      gasnet_coll_gather_nb(GASNET_TEAM_ALL, 1, results, source, 3000, kFlags);
  while (gasnet_coll_try_sync_some(&handle, 1) != GASNET_OK) gasnet_AMPoll();
  while (gasnet_coll_try_sync_all(&handle, 1) != GASNET_OK) gasnet_AMPoll();
  for (unsigned rank = 0; me == 1 && rank < kRanks; ++rank)
    FIELD_IS(holds(results + rank * 3000, 3000, 7 + rank));
}
gex_Event_t started(void (*start)(size_t), size_t bytes) {
  start(bytes);
  return GEX_EVENT_INVALID;
}
// The requests that have no effect.
void tuning() {
  char name[] = "none";
  gasnet_coll_loadTuningState(name, GASNET_TEAM_ALL);
  gasnet_coll_dumpTuningState(name, GASNET_TEAM_ALL);
  gasnet_coll_dumpProfile(name, GASNET_TEAM_ALL);
  FIELD_IS(gasnet_coll_get_num_tree_classes(GASNET_TEAM_ALL, GASNET_COLL_BROADCAST_OP) == 1);
  gasnet_coll_set_tree_kind(GASNET_TEAM_ALL, 0, 2, GASNET_COLL_BROADCAST_OP);
  gasnet_coll_set_dissem_limit(GASNET_TEAM_ALL, 1, GASNET_COLL_BROADCAST_OP);
}

// ---- atomics ----

// Each rank alone adds to a value of the other one, so that the old values are known.
template <typename T, gex_DT_t type,
          gex_Event_t (*nb)(gex_AD_t, T*, gex_Rank_t, void*, gex_OP_t, T, T, gex_Flags_t),
          int (*nbi)(gex_AD_t, T*, gex_Rank_t, void*, gex_OP_t, T, T, gex_Flags_t)>
void atomics() {
  gex_AD_t domain = GEX_AD_INVALID;
  gex_AD_Create(&domain, world, type, GEX_OP_ADD | GEX_OP_FADD | GEX_OP_SET | GEX_OP_GET, 0);
  FIELD_IS(domain != GEX_AD_INVALID && gex_AD_QueryTM(domain) == world &&
           gex_AD_QueryDT(domain) == type);
  FIELD_IS((gex_AD_QueryOps(domain) & GEX_OP_FADD) != 0 && gex_AD_QueryFlags(domain) == 0);
  gex_AD_SetCData(domain, source);
  FIELD_IS(gex_AD_QueryCData(domain) == source);
  char* const at = there(16384);
  T old = 0;
  gex_Event_Wait(nb(domain, nullptr, other, at, GEX_OP_SET, 5, 0, 0));
  for (int i = 0; i < 80; ++i) {
    gex_Event_Wait(nb(domain, &old, other, at, GEX_OP_FADD, 2, 0, 0));
    FIELD_IS(old == static_cast<T>(5 + 3 * i));
    FIELD_DO(nbi(domain, nullptr, other, at, GEX_OP_ADD, 1, 0, 0));
    gex_NBI_Wait(GEX_EC_RMW, 0);
  }
  gex_Event_Wait(nb(domain, &old, other, at, GEX_OP_GET, 0, 0, 0));
  FIELD_IS(old == static_cast<T>(5 + 240));
  gex_AD_Destroy(domain);
}
#define ATOMIC_ROW(T, name)                                                \
  {                                                                        \
    "gex_AD_OpNB_" #name " gex_AD_OpNBI_" #name                            \
    " gex_AD_Create gex_AD_Destroy gex_AD_QueryTM gex_AD_QueryDT "         \
    "gex_AD_QueryOps gex_AD_QueryFlags gex_AD_SetCData gex_AD_QueryCData", \
        atomics<T, GEX_DT_##name, gex_AD_OpNB_##name, gex_AD_OpNBI_##name> \
  }

const Row kTable[] = {
    {"gex_Coll_BarrierNB gex_Coll_BarrierBlocking", barriers},
    {"gasnet_barrier_notify gasnet_barrier_wait gasnet_barrier_result gasnet_barrier_try "
     "gasnet_barrier",
     barriers1},
    {"gasnet_coll_barrier_notify gasnet_coll_barrier_wait gasnet_coll_barrier_result "
     "gasnet_coll_barrier_try "
     "gasnet_coll_barrier",
     team_barriers1},
    {"gex_TM_Split gex_TM_Destroy gex_TM_QuerySize gex_TM_QueryRank gex_TM_QueryEP "
     "gex_TM_QueryClient "
     "gex_TM_QueryFlags gex_TM_TranslateRankToJobrank gex_TM_TranslateJobrankToRank "
     "gex_TM_TranslateRankToEP "
     "gex_TM_SetCData gex_TM_QueryCData",
     split},
    {"gex_TM_Create", create},
    {"gex_Coll_BroadcastNB", broadcast},
    {"gex_Coll_ReduceToAllNB", [] { reduce(true); }},
    {"gex_Coll_ReduceToOneNB", [] { reduce(false); }},
    {"hydrant_gather_all_nb",
     [] { gather_all([](size_t n) { return hydrant_gather_all_nb(world, results, source, n); }); }},
    {"hydrant_exchange_nb",
     [] { exchange([](size_t n) { return hydrant_exchange_nb(world, results, source, n); }); }},
    {"gasnet_coll_broadcast gasnet_coll_broadcast_nb gasnet_coll_try_sync", broadcast1},
    {"gasnet_coll_scatter gasnet_coll_scatter_nb gasnet_coll_wait_sync_some "
     "gasnet_coll_wait_sync_all",
     scatter1},
    {"gasnet_coll_gather gasnet_coll_gather_nb gasnet_coll_try_sync_some gasnet_coll_try_sync_all",
     gather1},
    {"gasnet_coll_gather_all",
     [] {
       gather_all([](size_t n) {
         return started(
             [](size_t m) { gasnet_coll_gather_all(GASNET_TEAM_ALL, results, source, m, kFlags); },
             n);
       });
     }},
    {"gasnet_coll_gather_all_nb gasnet_coll_wait_sync",
     [] {
       gather_all([](size_t n) {
         return started(
             [](size_t m) {
               gasnet_coll_wait_sync(
                   gasnet_coll_gather_all_nb(GASNET_TEAM_ALL, results, source, m, kFlags));
             },
             n);
       });
     }},
    {"gasnet_coll_exchange",
     [] {
       exchange([](size_t n) {
         return started(
             [](size_t m) { gasnet_coll_exchange(GASNET_TEAM_ALL, results, source, m, kFlags); },
             n);
       });
     }},
    {"gasnet_coll_exchange_nb",
     [] {
       exchange([](size_t n) {
         return gasnet_coll_exchange_nb(GASNET_TEAM_ALL, results, source, n, kFlags);
       });
     }},
    {"gasnet_coll_loadTuningState gasnet_coll_dumpTuningState gasnet_coll_dumpProfile "
     "gasnet_coll_get_num_tree_classes gasnet_coll_set_tree_kind gasnet_coll_set_dissem_limit",
     tuning},
    ATOMIC_ROW(int32_t, I32),
    ATOMIC_ROW(uint32_t, U32),
    ATOMIC_ROW(int64_t, I64),
    ATOMIC_ROW(uint64_t, U64),
    ATOMIC_ROW(float, FLT),
    ATOMIC_ROW(double, DBL),
};

}  // namespace

Rows rows() { return {kTable, sizeof kTable / sizeof *kTable}; }

}  // namespace field::teams
