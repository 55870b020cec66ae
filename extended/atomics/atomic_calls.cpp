// Implements the C functions of gasnet_ratomic.h that are not inlined: checks the arguments, and executes
// operations on memory that is mapped here, or sends them to the owner (atomic_messages.cpp) or to its
// adapter (adapter_atomics.cpp).
#include "am/call/hsl.hpp"
#include "am/call/in_call.hpp"
#include "am/call/thread_state.hpp"
#include "am/job/job.hpp"
#include "am/progress/waiting.hpp"
#include "am/segment/neighbourhood.hpp"
#include "am/segment/segment_check.hpp"
#include "extended/atomics/adapter_atomics.hpp"
#include "extended/atomics/adapter_keys.hpp"
#include "extended/atomics/adapter_trial.hpp"
#include "extended/atomics/atomic_counts.hpp"
#include "extended/atomics/atomic_domain.hpp"
#include "extended/atomics/atomic_messages.hpp"
#include "extended/atomics/atomic_ops.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/event/wait.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_errors.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/team/check_collective.hpp"
#include "extended/team/live_teams.hpp"
#include "extended/team/team.hpp"
#include "firehose/base/log.hpp"

#include <bit>
#include <gasnet_coll.h>
#include <gasnet_ratomic.h>
#include <utility>

using namespace hydrant;

namespace {

// ---- creation ----

void check_arguments(gex_AD_t* ad_p, gex_DT_t type, gex_OP_t ops, gex_Flags_t flags,
                     const char* call) noexcept {
  if (ad_p == nullptr) fatal("%s: ad_p is NULL: pass a place for the domain", call);
  const gex_OP_t all = atomic_ops_of(type);
  if (all == 0)
    fatal("%s: dt is %#x: pass one of GEX_DT_I32, _U32, _I64, _U64, _FLT and _DBL", call, type);
  if (ops == 0) fatal("%s: ops is 0: pass the operations that the domain will be used for", call);
  if ((ops & ~all) != 0) {
    const gex_OP_t first = ops & ~all & (~(ops & ~all) + 1);
    fatal("%s: ops contains GEX_OP_%s (%#x), which is no atomic operation of GEX_DT_%s", call,
          atomic_op_name(first), first, atomic_type_name(type));
  }
  constexpr gex_Flags_t kFavors =
      GEX_FLAG_AD_FAVOR_MY_RANK | GEX_FLAG_AD_FAVOR_MY_NBRHD | GEX_FLAG_AD_FAVOR_REMOTE;
  // Without effect, as in GASNet, which takes any flag.
  const gex_Flags_t favors = flags & ~gex_Flags_t{GEX_FLAG_PEER_SEG_OFFSET};
  if ((favors & ~kFavors) != 0 || (favors & (favors - 1)) != 0)
    fatal("%s: flags are %#x: pass 0, or one of GEX_FLAG_AD_FAVOR_MY_RANK, _MY_NBRHD and _REMOTE",
          call, flags);
}

using Agreement = AtomicDomain::Agreement;

// Ends the job if the members passed different arguments.
Agreement agree(gex_TM_t tm, gex_DT_t type, gex_OP_t ops, gex_Flags_t flags, const Agreement& mine,
                const char* call) noexcept {
  constexpr int kTypeShift = 32;
  constexpr int kFlagShift = 48;
  const uint64_t arguments =
      uint64_t{ops} | uint64_t{type} << kTypeShift | uint64_t{flags} << kFlagShift;
  const uint64_t words[] = {arguments, ~arguments, mine.all_mapped ? 1u : 0u,
                            mine.may_use_adapter ? 1u : 0u, mine.with_processors ? 1u : 0u};
  uint64_t least[std::size(words)] = {};
  gex_Event_Wait(gex_Coll_ReduceToAllNB(tm, least, words, GEX_DT_U64, sizeof *words,
                                        std::size(words), GEX_OP_MIN, nullptr, nullptr, 0));
  if (least[0] != arguments || least[1] != ~arguments) {
    const uint64_t other = least[0] != arguments ? least[0] : ~least[1];
    fatal(
        "%s: dt is %#x, ops %#x and flags %#x on this rank, and %#x, %#x and %#x on another one: "
        "all members have to pass the same",
        call, type, ops, flags, static_cast<unsigned>(other >> kTypeShift & 0xffff),
        static_cast<unsigned>(other & 0xffffffff), static_cast<unsigned>(other >> kFlagShift));
  }
  return {.all_mapped = least[2] != 0,
          .may_use_adapter = least[3] != 0,
          .with_processors = least[4] != 0};
}

void log_way(const AtomicDomain& domain, const char* obstacle) noexcept {
  const hydrant_atomic_domain& ad = *domain.get();
  if (ad.adapter_keys != nullptr) {
    log_info("an atomic domain of GEX_DT_%s and %u ranks uses the adapter",
             atomic_type_name(ad.type), ad.tm->size);
  } else {
    log_info("an atomic domain of GEX_DT_%s and %u ranks does not use the adapter: %s",
             atomic_type_name(ad.type), ad.tm->size,
             obstacle != nullptr ? obstacle : "another member cannot, or a segment is not pinned");
  }
}

// ---- operations ----

struct AtomicCall {
  const char* name;
  gex_DT_t type;
  void* result;
  gex_Rank_t rank;
  uintptr_t target;
  gex_OP_t op;
  uint64_t operand1;
  uint64_t operand2;
  gex_Flags_t flags;

  size_t width() const noexcept { return atomic_width(type); }
  bool is_immediate() const noexcept { return (flags & GEX_FLAG_IMMEDIATE) != 0; }
};

constexpr gex_Flags_t kAsserts = GEX_FLAG_AD_MY_RANK | GEX_FLAG_AD_MY_NBRHD;
constexpr gex_Flags_t kFlags =
    GEX_FLAG_IMMEDIATE | kAsserts | GEX_FLAG_AD_REL | GEX_FLAG_AD_ACQ | GEX_FLAG_RANK_IS_JOBRANK;

constexpr const char* kNames[2][6] = {{"gex_AD_OpNB_I32", "gex_AD_OpNB_U32", "gex_AD_OpNB_I64",
                                       "gex_AD_OpNB_U64", "gex_AD_OpNB_FLT", "gex_AD_OpNB_DBL"},
                                      {"gex_AD_OpNBI_I32", "gex_AD_OpNBI_U32", "gex_AD_OpNBI_I64",
                                       "gex_AD_OpNBI_U64", "gex_AD_OpNBI_FLT", "gex_AD_OpNBI_DBL"}};
// The headers pass one of the six types.
const char* name_of(bool is_implicit, gex_DT_t type) noexcept {
  return kNames[is_implicit ? 1 : 0][std::countr_zero(type) % 6];
}

// Ends the job for the first of the call's mistakes that do not depend on the target rank.
[[noreturn, gnu::cold]] void refuse(const hydrant_atomic_domain& ad,
                                    const AtomicCall& call) noexcept {
  if (handler_depth != 0)
    fatal("%s in a handler: start it after the handler has returned", call.name);
  if (atomic_ops_of(ad.type) == 0)
    fatal("%s: %p is not an atomic domain, or was destroyed", call.name,
          static_cast<const void*>(&ad));
  if (call.type != ad.type)
    fatal("%s: the domain is of GEX_DT_%s: call gex_AD_Op*_%s", call.name,
          atomic_type_name(ad.type), atomic_type_name(ad.type));
  if (!is_one_operation(call.op)) fatal("%s: opcode is %#x: pass one GEX_OP_*", call.name, call.op);
  if ((ad.ops & call.op) == 0)
    fatal("%s: GEX_OP_%s is not among the domain's operations (%#x): name it in gex_AD_Create()",
          call.name, atomic_op_name(call.op), ad.ops);
  if ((call.flags & ~kFlags) != 0 || (call.flags & kAsserts) == kAsserts)
    fatal(
        "%s: flags are %#x: pass some of GEX_FLAG_IMMEDIATE, _AD_REL, _AD_ACQ, _RANK_IS_JOBRANK, "
        "and _AD_MY_RANK or _AD_MY_NBRHD",
        call.name, call.flags);
  if (call.target % call.width() != 0)
    fatal("%s: the target %#zx of rank %u is not aligned: it has to be a multiple of %zu",
          call.name, static_cast<size_t>(call.target), call.rank, call.width());
  fatal("%s: result_p is NULL, and GEX_OP_%s returns the old value", call.name,
        atomic_op_name(call.op));
}

[[gnu::cold]] void check_in_debug(const hydrant_atomic_domain* ad, const char* call) noexcept {
  check_no_locks("an atomic operation is started");
  if (!live_domains().has(ad))
    fatal("%s: %p is not an atomic domain, or was destroyed", call, static_cast<const void*>(ad));
  if (ad->tm != &hydrant_world && !live_teams().has(ad->tm))
    fatal("%s: the domain's team was destroyed: destroy the domain before its team", call);
}

// A debug build checks the target rank.
[[gnu::cold]] void check_target(const AtomicCall& call, Rank peer) noexcept {
  if ((call.flags & GEX_FLAG_AD_MY_RANK) != 0 && peer != job().rank())
    fatal("%s: GEX_FLAG_AD_MY_RANK, and the target is rank %u of the job, not this rank", call.name,
          peer);
  if ((call.flags & GEX_FLAG_AD_MY_NBRHD) != 0 && !neighbourhood().contains(peer))
    fatal(
        "%s: GEX_FLAG_AD_MY_NBRHD, and the target, rank %u of the job, is not in this rank's "
        "neighbourhood",
        call.name, peer);
  if (checks_segments() && check_in_segment(peer, 0, call.target, call.width()) != Status::kOk)
    refuse_atomic_target(call.name, peer, call.target, call.width());
}

void check(const hydrant_atomic_domain* ad, const AtomicCall& call) noexcept {
  if (ad == nullptr) [[unlikely]]
    fatal("%s: the domain is GEX_AD_INVALID", call.name);
  if (job().debug) [[unlikely]]
    check_in_debug(ad, call.name);
  const bool is_right = handler_depth == 0 && call.type == ad->type && is_one_operation(call.op) &&
                        (ad->ops & call.op) != 0 && (call.flags & ~kFlags) == 0 &&
                        (call.flags & kAsserts) != kAsserts && call.target % call.width() == 0 &&
                        (call.result != nullptr || !is_fetching(call.op));
  if (!is_right) [[unlikely]]
    refuse(*ad, call);
}

// A target: its rank in the job, its address in this process, if a processor may change it here, and its
// key, if the adapter has to.
struct Target {
  Rank peer = 0;
  void* here = nullptr;
  const std::byte* key = nullptr;
};

[[noreturn, gnu::cold]] void refuse_adapter_target(const AtomicCall& call, Rank peer) noexcept {
  char relation[kSegmentRelationText];
  fatal(
      "%s: the target %#zx is not in the segment that rank %u of the job had when the domain was "
      "made%s: the adapter reaches no other memory",
      call.name, static_cast<size_t>(call.target), peer,
      relate_to_segment(peer, call.target, call.width(), relation, sizeof relation));
}

// In a domain that uses the adapter.
const std::byte* find_key(const hydrant_atomic_domain& ad, const AtomicCall& call, Rank member,
                          Rank peer) noexcept {
  const auto* const keys = static_cast<const AdapterKeys*>(ad.adapter_keys);
  const std::byte* const key = keys->find(member, call.target, call.width());
  if (key == nullptr) [[unlikely]]
    refuse_adapter_target(call, peer);
  return key;
}

Target find_target(const hydrant_atomic_domain& ad, const AtomicCall& call) noexcept {
  const bool is_jobrank = (call.flags & GEX_FLAG_RANK_IS_JOBRANK) != 0;
  Rank member = call.rank;
  if (is_jobrank && ad.tm != &hydrant_world)
    member = gex_TM_TranslateJobrankToRank(ad.tm, call.rank);
  if (member >= ad.tm->size) [[unlikely]]
    fatal("%s: rank %u%s is not in the domain's team of %u ranks", call.name, call.rank,
          is_jobrank ? " of the job" : "", ad.tm->size);
  const Rank peer = members_of(ad.tm).jobrank(member);
  if (job().debug) [[unlikely]]
    check_target(call, peer);
  if (ad.adapter_alone != 0) return {.peer = peer, .key = find_key(ad, call, member, peer)};
  const hydrant_atomic_row* row = find_row(ad, member);
  if (row != nullptr && call.target - row->addr < row->size) [[likely]]
    return {.peer = peer, .here = reinterpret_cast<void*>(call.target + row->shift)};
  if (peer == job().rank()) {
    if (!is_own_atomic_target(call.type, call.target))
      refuse_atomic_target(call.name, peer, call.target, call.width());
    return {.peer = peer,
            .here = paths(peer).self ? reinterpret_cast<void*>(call.target) : nullptr};
  }
  if (ad.adapter_keys != nullptr) return {.peer = peer, .key = find_key(ad, call, member, peer)};
  // Segments that were attached after the domain was made.
  RmaThread* const thread = RmaThread::mine();
  if (!paths(peer).mapped || thread == nullptr || !thread->has_peers()) return {.peer = peer};
  return {.peer = peer, .here = mapped_here(*thread, peer, call.target, call.width())};
}

// True: memory that this rank has released can be announced to others; as transfer() in rma_transfer.cpp.
bool may_signal_others(const AtomicCall& call) noexcept {
  if (call.is_immediate()) return are_exports_settled();
  settle_exports();
  return true;
}

// Other members may wait for this rank to execute their operations.
void serve_others(const AtomicCall& call) noexcept {
  if (!call.is_immediate()) poll_now_and_then();
}

void execute(const hydrant_atomic_domain& ad, const AtomicCall& call,
             const Target& target) noexcept {
  const uint64_t old = apply_atomic(call.type, call.op, target.here, call.operand1, call.operand2);
  if (is_fetching(call.op)) store_atomic_result(call.result, old, call.width());
  count_atomic(target.peer == job().rank() ? AtomicPath::kSelf : AtomicPath::kMapped);
  if (ad.all_mapped == 0) serve_others(call);
}

// Sends the operation to the target's adapter or, without a key, in a message to its owner.
Status send(const AtomicCall& call, const Target& target, CompletionCounter& counter) noexcept {
  RmaThread* const thread = RmaThread::mine();
  if (thread == nullptr)
    return fail(Status::kResource, "no memory for a thread's state of atomic operations");
  // Completions of operations under way read it.
  if (counter.thread != thread) counter.thread = thread;
  const AtomicRequest request = {.peer = target.peer,
                                 .type = call.type,
                                 .op = call.op,
                                 .target = call.target,
                                 .operand1 = call.operand1,
                                 .operand2 = call.operand2,
                                 .result = is_fetching(call.op) ? call.result : nullptr,
                                 .immediate = call.is_immediate()};
  const Status status = target.key != nullptr
                            ? start_adapter_atomic(*thread, request, target.key, counter)
                            : send_atomic(*thread, request, counter);
  if (status != Status::kOk) return status;
  count_atomic(target.key != nullptr ? AtomicPath::kAdapter : AtomicPath::kMessages);
  // A message to this rank is executed at once, so that a wait for it would not poll.
  if (target.peer == job().rank()) serve_others(call);
  return Status::kOk;
}

// For callers without memory for an event.
[[gnu::cold]] Status send_and_wait(const AtomicCall& call, const Target& target) noexcept {
  if (call.is_immediate()) return Status::kNotReady;
  CompletionCounter counter;
  const Status status = send(call, target, counter);
  const Status waited = wait_for(counter);
  return status == Status::kOk ? waited : status;
}

[[gnu::noinline]] gex_Event_t send_with_event(const AtomicCall& call,
                                              const Target& target) noexcept {
  hydrant_event* const event = take_counted_event();
  const Status status =
      event != nullptr ? send(call, target, event->counter) : send_and_wait(call, target);
  if (status == Status::kOk && event != nullptr) return finish_or_return_event(event, call.name);
  if (event != nullptr) release_event(event);
  return return_or_abort(status, call.name) == GASNET_ERR_NOT_READY ? GEX_EVENT_NO_OP
                                                                    : GEX_EVENT_INVALID;
}

[[gnu::noinline]] int send_implicit(const AtomicCall& call, const Target& target) noexcept {
  RmaThread* const thread = RmaThread::mine();
  if (thread == nullptr) return return_or_abort(send_and_wait(call, target), call.name);
  CompletionCounter& counter = call.op == GEX_OP_SET   ? thread->implicit(Direction::kPut)
                               : call.op == GEX_OP_GET ? thread->implicit(Direction::kGet)
                                                       : thread->implicit_atomics();
  return return_or_abort(send(call, target, counter), call.name);
}

// How an operation began.
struct Beginning {
  enum class Kind { kDone, kNotReady, kIsToBeSent } kind;
  Target target;
};

Beginning begin(const hydrant_atomic_domain* ad, const AtomicCall& call) noexcept {
  check(ad, call);
  const Target target = find_target(*ad, call);
  if (!may_signal_others(call)) return {Beginning::Kind::kNotReady, target};
  if (target.here == nullptr) return {Beginning::Kind::kIsToBeSent, target};
  execute(*ad, call, target);
  return {Beginning::Kind::kDone, target};
}

}  // namespace

extern "C" {

void gex_AD_Create(gex_AD_t* ad_p, gex_TM_t tm, gex_DT_t dt, gex_OP_t ops, gex_Flags_t flags) {
  constexpr const char* kCall = "gex_AD_Create";
  const InCall in_call(kCall);
  (void)check_collective(tm, kCall);
  check_arguments(ad_p, dt, ops, flags, kCall);
  std::unique_ptr<AtomicDomain> domain = AtomicDomain::make(tm, dt, ops, flags);
  if (domain == nullptr) fatal("%s: no memory for an atomic domain of %u ranks", kCall, tm->size);
  const char* const obstacle = domain->find_adapter_obstacle();
  // Without an obstacle the trial has been made.
  const bool with_processors =
      obstacle == nullptr && tried_adapter_atomics() == AdapterAtomics::kWithProcessors;
  domain->decide(agree(tm, dt, ops, flags,
                       {.all_mapped = domain->maps_all_members(),
                        .may_use_adapter = obstacle == nullptr,
                        .with_processors = with_processors},
                       kCall));
  if ((flags & GEX_FLAG_AD_FAVOR_REMOTE) != 0) log_way(*domain, obstacle);
  *ad_p = live_domains().add(std::move(domain));
}

void gex_AD_Destroy(gex_AD_t ad) {
  constexpr const char* kCall = "gex_AD_Destroy";
  const InCall in_call(kCall);
  if (!is_wired()) fatal("%s before a client is initialised", kCall);
  if (handler_depth != 0) fatal("%s in a handler: call it after the handler has returned", kCall);
  if (!live_domains().remove(ad))
    fatal("%s: %p is not an atomic domain, or was destroyed before", kCall,
          static_cast<const void*>(ad));
}

gex_Event_t hydrant_atomic_nb(gex_AD_t ad, gex_DT_t type, void* result, gex_Rank_t rank,
                              void* target, gex_OP_t op, uint64_t operand1, uint64_t operand2,
                              gex_Flags_t flags) {
  const char* const name = name_of(false, type);
  const InCall in_call(name);
  const auto at = reinterpret_cast<uintptr_t>(target);
  const AtomicCall call = {name, type, result, rank, at, op, operand1, operand2, flags};
  const Beginning begun = begin(ad, call);
  if (begun.kind == Beginning::Kind::kDone) [[likely]]
    return GEX_EVENT_INVALID;
  if (begun.kind == Beginning::Kind::kNotReady) return GEX_EVENT_NO_OP;
  return send_with_event(call, begun.target);
}

int hydrant_atomic_nbi(gex_AD_t ad, gex_DT_t type, void* result, gex_Rank_t rank, void* target,
                       gex_OP_t op, uint64_t operand1, uint64_t operand2, gex_Flags_t flags) {
  const char* const name = name_of(true, type);
  const InCall in_call(name);
  const auto at = reinterpret_cast<uintptr_t>(target);
  const AtomicCall call = {name, type, result, rank, at, op, operand1, operand2, flags};
  const Beginning begun = begin(ad, call);
  if (begun.kind == Beginning::Kind::kDone) [[likely]]
    return GASNET_OK;
  if (begun.kind == Beginning::Kind::kNotReady) return GASNET_ERR_NOT_READY;
  return send_implicit(call, begun.target);
}

}  // extern "C"
