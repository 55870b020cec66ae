// Implements GASNet-1's collectives over the schedules of GASNet-EX's: the flags add barriers before and
// behind the data's own steps.
#include <hydrant/gasnet/coll1.h>
#include <hydrant/gasnet/events.h>

#include "am/call/in_call.hpp"
#include "am/job/job.hpp"
#include "extended/collective/operation/algorithms.hpp"
#include "extended/collective/operation/operations.hpp"
#include "extended/team/check_collective.hpp"
#include "extended/team/team.hpp"

using namespace hydrant;

namespace {

struct Collective1 {
  const char* call;
  CollectiveKind kind;
  gex_TM_t team;
  gex_Rank_t root;
  void* dest;
  const void* source;
  size_t bytes;
  int flags;
};

Schedule data_schedule(const Collective1& what, Member me) noexcept {
  switch (what.kind) {
    case CollectiveKind::kScatter: return make_scatter(me, what.root, what.bytes);
    case CollectiveKind::kGather: return make_gather(me, what.root, what.bytes);
    case CollectiveKind::kGatherAll: return make_gather_all(me, what.bytes);
    case CollectiveKind::kExchange: return make_exchange(me, what.bytes);
    default: return make_broadcast(me, what.root, what.bytes);
  }
}

// The flags have to contain one of each three.
void check_sync(int flags, const char* call) noexcept {
  const auto is_one_of = [&](int a, int b, int c) {
    const int given = flags & (a | b | c);
    return given == a || given == b || given == c;
  };
  if (!is_one_of(GASNET_COLL_IN_NOSYNC, GASNET_COLL_IN_MYSYNC, GASNET_COLL_IN_ALLSYNC) ||
      !is_one_of(GASNET_COLL_OUT_NOSYNC, GASNET_COLL_OUT_MYSYNC, GASNET_COLL_OUT_ALLSYNC))
    fatal(
        "%s: the flags %#x need one of GASNET_COLL_IN_{NO,MY,ALL}SYNC and one of "
        "GASNET_COLL_OUT_{NO,MY,ALL}SYNC",
        call, static_cast<unsigned>(flags));
}

// The root alone passes the source of a broadcast or scatter, and the destination of a gather.
void check_addresses(const Collective1& what, bool is_root) noexcept {
  const bool is_from_root =
      what.kind == CollectiveKind::kBroadcast || what.kind == CollectiveKind::kScatter;
  const bool needs_source = is_root || !is_from_root;
  const bool needs_dest = is_root || what.kind != CollectiveKind::kGather;
  if (needs_source) check_memory(what.source, what.bytes, "src", what.call);
  if (needs_dest) check_memory(what.dest, what.bytes, "dst", what.call);
}

gex_Event_t start(const Collective1& what) noexcept {
  const InCall in_call(what.call);
  const TeamMembers team = check_collective(what.team, what.call);
  check_root(team, what.root, what.call);
  check_parts(team, what.bytes, what.call);
  check_sync(what.flags, what.call);
  check_addresses(what, what.root == team.rank);
  const Member me = team.member();
  constexpr int kBefore = GASNET_COLL_IN_ALLSYNC;
  constexpr int kBehind = GASNET_COLL_OUT_ALLSYNC;
  if (what.bytes == 0 && (what.flags & (kBefore | kBehind)) == 0) return GEX_EVENT_INVALID;
  Schedule schedule;
  if ((what.flags & kBefore) != 0) add_barrier(schedule, me, kTagsBefore);
  if (what.bytes != 0) schedule.append(data_schedule(what, me));
  if ((what.flags & kBehind) != 0) add_barrier(schedule, me, kTagsBehind);
  const uint32_t signature = signature_of(what.kind, what.root, what.bytes,
                                          static_cast<uint64_t>(what.flags & (kBefore | kBehind)));
  return start_operation(team, next_collective(what.team),
                         {.signature = signature, .source = what.source, .dest = what.dest},
                         std::move(schedule));
}

// The barriers of GASNet-1 have one state for all ranks.
void check_team_all(gex_TM_t team, const char* call) noexcept {
  if (team != GASNET_TEAM_ALL)
    fatal("%s: the team is not GASNET_TEAM_ALL: use gex_Coll_BarrierNB(), which takes any team",
          call);
}

}  // namespace

extern "C" {

gasnet_coll_handle_t gasnet_coll_broadcast_nb(gasnet_team_handle_t team, void* dst,
                                              gasnet_image_t srcimage, void* src, size_t nbytes,
                                              int flags) {
  return start({"gasnet_coll_broadcast", CollectiveKind::kBroadcast, team, srcimage, dst, src,
                nbytes, flags});
}
gasnet_coll_handle_t gasnet_coll_scatter_nb(gasnet_team_handle_t team, void* dst,
                                            gasnet_image_t srcimage, void* src, size_t nbytes,
                                            int flags) {
  return start(
      {"gasnet_coll_scatter", CollectiveKind::kScatter, team, srcimage, dst, src, nbytes, flags});
}
gasnet_coll_handle_t gasnet_coll_gather_nb(gasnet_team_handle_t team, gasnet_image_t dstimage,
                                           void* dst, void* src, size_t nbytes, int flags) {
  return start(
      {"gasnet_coll_gather", CollectiveKind::kGather, team, dstimage, dst, src, nbytes, flags});
}
gasnet_coll_handle_t gasnet_coll_gather_all_nb(gasnet_team_handle_t team, void* dst, void* src,
                                               size_t nbytes, int flags) {
  return start(
      {"gasnet_coll_gather_all", CollectiveKind::kGatherAll, team, 0, dst, src, nbytes, flags});
}
gasnet_coll_handle_t gasnet_coll_exchange_nb(gasnet_team_handle_t team, void* dst, void* src,
                                             size_t nbytes, int flags) {
  return start(
      {"gasnet_coll_exchange", CollectiveKind::kExchange, team, 0, dst, src, nbytes, flags});
}

void gasnet_coll_broadcast(gasnet_team_handle_t team, void* dst, gasnet_image_t srcimage, void* src,
                           size_t nbytes, int flags) {
  gex_Event_Wait(gasnet_coll_broadcast_nb(team, dst, srcimage, src, nbytes, flags));
}
void gasnet_coll_scatter(gasnet_team_handle_t team, void* dst, gasnet_image_t srcimage, void* src,
                         size_t nbytes, int flags) {
  gex_Event_Wait(gasnet_coll_scatter_nb(team, dst, srcimage, src, nbytes, flags));
}
void gasnet_coll_gather(gasnet_team_handle_t team, gasnet_image_t dstimage, void* dst, void* src,
                        size_t nbytes, int flags) {
  gex_Event_Wait(gasnet_coll_gather_nb(team, dstimage, dst, src, nbytes, flags));
}
void gasnet_coll_gather_all(gasnet_team_handle_t team, void* dst, void* src, size_t nbytes,
                            int flags) {
  gex_Event_Wait(gasnet_coll_gather_all_nb(team, dst, src, nbytes, flags));
}
void gasnet_coll_exchange(gasnet_team_handle_t team, void* dst, void* src, size_t nbytes,
                          int flags) {
  gex_Event_Wait(gasnet_coll_exchange_nb(team, dst, src, nbytes, flags));
}

void gasnet_coll_barrier_notify(gasnet_team_handle_t team, int id, int flags) {
  check_team_all(team, "gasnet_coll_barrier_notify");
  gasnet_barrier_notify(id, flags);
}
int gasnet_coll_barrier_try(gasnet_team_handle_t team, int id, int flags) {
  check_team_all(team, "gasnet_coll_barrier_try");
  return gasnet_barrier_try(id, flags);
}
int gasnet_coll_barrier_wait(gasnet_team_handle_t team, int id, int flags) {
  check_team_all(team, "gasnet_coll_barrier_wait");
  return gasnet_barrier_wait(id, flags);
}
int gasnet_coll_barrier(gasnet_team_handle_t team, int id, int flags) {
  check_team_all(team, "gasnet_coll_barrier");
  return gasnet_barrier(id, flags);
}
int gasnet_coll_barrier_result(gasnet_team_handle_t team, int* id) {
  check_team_all(team, "gasnet_coll_barrier_result");
  return gasnet_barrier_result(id);
}

}  // extern "C"
