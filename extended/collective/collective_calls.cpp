// Implements gex_Coll_*: checks the arguments, chooses an algorithm (schedules.cpp), and starts the
// operation (operations.cpp). Barriers of the primordial team are in barrier_calls.cpp.
#include <hydrant/coll.h>

#include "am/call/in_call.hpp"
#include "am/job/job.hpp"
#include "extended/collective/collectives.hpp"
#include "extended/collective/operation/algorithms.hpp"
#include "extended/collective/operation/collective_messages.hpp"
#include "extended/collective/operation/operations.hpp"
#include "extended/team/check_collective.hpp"
#include "extended/team/live_teams.hpp"
#include "extended/team/node_team.hpp"
#include "extended/team/team.hpp"
#include "firehose/base/status.hpp"

#include <bit>
#include <gasnet_coll.h>

using namespace hydrant;

namespace {

// The team's lines, if it uses them for that many bytes. The same answer on all members.
NodeTeam* lines_for(gex_TM_t tm, size_t bytes) noexcept {
  NodeTeam* const lines = node_team_of(tm);
  return lines != nullptr && lines->takes(bytes) ? lines : nullptr;
}
gex_Event_t start_lines(NodeTeam& lines, gex_TM_t tm, LineOperations::Call& call) noexcept {
  // Whether the members share their memory is known later.
  if (call.is_vector()) call.other = next_collective(tm);
  return lines.start(call);
}
const std::byte* bytes_at(const void* memory) noexcept {
  return static_cast<const std::byte*>(memory);
}
std::byte* bytes_at(void* memory) noexcept { return static_cast<std::byte*>(memory); }

gex_Event_t start(gex_TM_t tm, const TeamMembers& team, OperationArguments arguments,
                  Schedule schedule) noexcept {
  // For the check of calls that differ.
  if (const MailboxTeam* mailboxes = mailbox_team_of(tm); mailboxes != nullptr)
    arguments.mailboxes = &mailboxes->mailboxes();
  return start_operation(team, next_collective(tm), arguments, std::move(schedule));
}

// The team's mailboxes, if it uses them for that many bytes. The same answer on all members.
MailboxTeam* mailboxes_for(gex_TM_t tm, size_t bytes) noexcept {
  return bytes <= MailboxLine::kMaxBytes ? mailbox_team_of(tm) : nullptr;
}
struct ReduceArguments {
  gex_DT_t type;
  size_t unit;
  size_t count;
  gex_OP_t op;
  gex_Coll_ReduceFn_t function;
  void* data;
};

// Bytes of the vector.
size_t check_reduction(const ReduceArguments& arguments, Reduction* reduction,
                       const char* call) noexcept {
  if (find_reduction(arguments.type, arguments.unit, arguments.op, arguments.function,
                     arguments.data, reduction) != Status::kOk)
    fatal("%s: %s", call, last_error_text());
  size_t bytes = 0;
  if (arguments.count == 0 || __builtin_mul_overflow(arguments.unit, arguments.count, &bytes))
    fatal(
        "%s: dt_cnt is %zu, with elements of %zu bytes: it has to be above 0, and fit the address "
        "space",
        call, arguments.count, arguments.unit);
  return bytes;
}

// Both reductions; `root` is 0 for that to all. A reduction of a few bytes among ranks of a node is over
// in 0.2 us, so nothing that only the others need is done before the lines.
gex_Event_t reduce(CollectiveKind kind, gex_TM_t tm, Rank root, void* dest, const void* source,
                   const ReduceArguments& arguments, const char* call) noexcept {
  check_team_call(tm, call);
  const bool to_all = kind == CollectiveKind::kReduceToAll;
  LineOperations::Call small = {
      .kind = to_all ? LineOperations::Kind::kReduceToAll : LineOperations::Kind::kReduceToOne,
      .root = root,
      .source = bytes_at(source),
      .dest = bytes_at(dest)};
  small.bytes = check_reduction(arguments, &small.reduction, call);
  if (!to_all && root >= tm->size) [[unlikely]]
    check_root(members_of(tm), root, call);
  check_memory(source, small.bytes, "src", call);
  if (to_all || root == tm->rank) check_memory(dest, small.bytes, "dst", call);
  // Types and operations are 32 bits; elements of a client's type are rarely that large.
  const uint64_t what = uint64_t{arguments.type} << 32 | arguments.op;
  small.signature =
      signature_of(kind, root, small.bytes, what ^ std::rotl(uint64_t{arguments.unit}, 8));
  if (NodeTeam* lines = lines_for(tm, small.bytes); lines != nullptr)
    return start_lines(*lines, tm, small);
  if (MailboxTeam* mailboxes = to_all ? mailboxes_for(tm, small.bytes) : nullptr;
      mailboxes != nullptr)
    return mailboxes->start({.source = small.source,
                             .dest = small.dest,
                             .bytes = small.bytes,
                             .reduction = small.reduction,
                             .signature = small.signature,
                             .operation = next_collective(tm)});
  const TeamMembers team = members_of(tm);
  const Member me = team.member();
  return start(
      tm, team,
      {.signature = small.signature, .source = source, .dest = dest, .reduction = small.reduction},
      to_all ? make_reduce_all(me, arguments.unit, arguments.count)
             : make_reduce(me, root, arguments.unit, arguments.count));
}

// The operations that have a part of `bytes` bytes for each member.
gex_Event_t move_parts(CollectiveKind kind, gex_TM_t tm, void* dest, const void* source,
                       size_t bytes, Schedule (*build)(Member, size_t) noexcept,
                       const char* call) noexcept {
  const InCall in_call(call);
  const TeamMembers team = check_collective(tm, call);
  check_parts(team, bytes, call);
  check_memory(source, bytes, "source", call);
  check_memory(dest, bytes, "dest", call);
  if (bytes == 0) return GEX_EVENT_INVALID;
  return start(tm, team, {.signature = signature_of(kind, bytes), .source = source, .dest = dest},
               build(team.member(), bytes));
}

}  // namespace

namespace hydrant {

Status start_collectives() noexcept {
  if (job().debug)
    job().hooks.is_live_team = [](gex_TM_t tm) noexcept { return live_teams().has(tm); };
  start_collective_messages();
  const Status status = start_node_teams();
  return status == Status::kOk ? start_mailboxes() : status;
}

Status connect_collectives() noexcept {
  const Status status = find_nodes_of_world();
  return status == Status::kOk ? connect_mailboxes() : status;
}

gex_Event_t start_team_barrier(gex_TM_t tm, const char* call) noexcept {
  const TeamMembers team = check_collective(tm, call);
  if (NodeTeam* lines = lines_for(tm, 0); lines != nullptr) {
    LineOperations::Call barrier = {.kind = LineOperations::Kind::kBarrier,
                                    .signature = signature_of(CollectiveKind::kBarrier)};
    return start_lines(*lines, tm, barrier);
  }
  if (MailboxTeam* mailboxes = mailboxes_for(tm, 0); mailboxes != nullptr)
    return mailboxes->start(
        {.signature = signature_of(CollectiveKind::kBarrier), .operation = next_collective(tm)});
  return start(tm, team, {.signature = signature_of(CollectiveKind::kBarrier)},
               make_barrier(team.member()));
}

}  // namespace hydrant

extern "C" {

gex_Event_t gex_Coll_BroadcastNB(gex_TM_t tm, gex_Rank_t root, void* dest, const void* source,
                                 size_t bytes, gex_Flags_t) {
  constexpr const char* kCall = "gex_Coll_BroadcastNB";
  const InCall in_call(kCall);
  const TeamMembers team = check_collective(tm, kCall);
  check_root(team, root, kCall);
  check_parts(team, bytes, kCall);
  check_memory(dest, bytes, "dst", kCall);
  if (root == team.rank) check_memory(source, bytes, "src", kCall);
  if (bytes == 0) return GEX_EVENT_INVALID;
  const OperationArguments arguments = {
      .signature = signature_of(CollectiveKind::kBroadcast, root, bytes),
      .source = source,
      .dest = dest};
  if (NodeTeam* lines = lines_for(tm, bytes); lines != nullptr) {
    LineOperations::Call call = {.kind = LineOperations::Kind::kBroadcast,
                                 .root = root,
                                 .source = bytes_at(source),
                                 .dest = bytes_at(dest),
                                 .bytes = bytes,
                                 .signature = arguments.signature};
    return start_lines(*lines, tm, call);
  }
  return start(tm, team, arguments, make_broadcast(team.member(), root, bytes));
}

gex_Event_t gex_Coll_ReduceToOneNB(gex_TM_t tm, gex_Rank_t root, void* dest, const void* source,
                                   gex_DT_t type, size_t unit, size_t count, gex_OP_t op,
                                   gex_Coll_ReduceFn_t user_op, void* user_data, gex_Flags_t) {
  constexpr const char* kCall = "gex_Coll_ReduceToOneNB";
  const InCall in_call(kCall);
  return reduce(CollectiveKind::kReduceToOne, tm, root, dest, source,
                {type, unit, count, op, user_op, user_data}, kCall);
}

gex_Event_t gex_Coll_ReduceToAllNB(gex_TM_t tm, void* dest, const void* source, gex_DT_t type,
                                   size_t unit, size_t count, gex_OP_t op,
                                   gex_Coll_ReduceFn_t user_op, void* user_data, gex_Flags_t) {
  constexpr const char* kCall = "gex_Coll_ReduceToAllNB";
  const InCall in_call(kCall);
  return reduce(CollectiveKind::kReduceToAll, tm, 0, dest, source,
                {type, unit, count, op, user_op, user_data}, kCall);
}

gex_Event_t hydrant_gather_all_nb(gex_TM_t tm, void* dest, const void* source, size_t bytes) {
  return move_parts(CollectiveKind::kGatherAll, tm, dest, source, bytes, make_gather_all,
                    "hydrant_gather_all_nb");
}

gex_Event_t hydrant_exchange_nb(gex_TM_t tm, void* dest, const void* source, size_t bytes) {
  return move_parts(CollectiveKind::kExchange, tm, dest, source, bytes, make_exchange,
                    "hydrant_exchange_nb");
}

}  // extern "C"
