// The C functions of gasnet_vis.h: tries the short way, which copies mapped memory, else checks the arguments
// and starts the transfer (vis_transfer.cpp).
#include "am/call/in_call.hpp"
#include "am/job/endpoints.hpp"
#include "am/job/job.hpp"
#include "extended/event/event.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_errors.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/vis/check_vis.hpp"
#include "extended/vis/peer_completion.hpp"
#include "extended/vis/short_way.hpp"

#include <gasnet_vis.h>

using namespace hydrant;

namespace {

struct Call {
  gex_TM_t tm;
  gex_Rank_t rank;
  Direction direction;
  gex_Flags_t flags;
  bool is_implicit;
  const char* name;
};

enum Shape : uint8_t { kVector, kIndexed, kStrided };
constexpr unsigned kNb = 4;  // beside HYDRANT_VIS_GET and HYDRANT_VIS_NBI

// By mode.
constexpr const char* kNames[3][6] = {
    {"gex_VIS_VectorPutBlocking", "gex_VIS_VectorGetBlocking", "gex_VIS_VectorPutNBI",
     "gex_VIS_VectorGetNBI", "gex_VIS_VectorPutNB", "gex_VIS_VectorGetNB"},
    {"gex_VIS_IndexedPutBlocking", "gex_VIS_IndexedGetBlocking", "gex_VIS_IndexedPutNBI",
     "gex_VIS_IndexedGetNBI", "gex_VIS_IndexedPutNB", "gex_VIS_IndexedGetNB"},
    {"gex_VIS_StridedPutBlocking", "gex_VIS_StridedGetBlocking", "gex_VIS_StridedPutNBI",
     "gex_VIS_StridedGetNBI", "gex_VIS_StridedPutNB", "gex_VIS_StridedGetNB"}};

bool is_put(unsigned mode) noexcept { return (mode & HYDRANT_VIS_GET) == 0; }

Call call_of(Shape shape, unsigned mode, gex_TM_t tm, gex_Rank_t rank, gex_Flags_t flags) noexcept {
  return {.tm = tm,
          .rank = rank,
          .direction = is_put(mode) ? Direction::kPut : Direction::kGet,
          .flags = flags,
          .is_implicit = (mode & HYDRANT_VIS_NBI) != 0,
          .name = kNames[shape][mode]};
}

// ---- completion ----

// The results of calls: a code, if they block or count for gex_NBI_Wait(), or an event. kComplete is the
// result if the operation is over.
struct Returning {
  using Result = int;
  static constexpr Result kComplete = GASNET_OK;
  static Result fail(Status status, const char* call) noexcept {
    return return_or_abort(status, call);
  }
};
struct WithEvent {
  using Result = gex_Event_t;
  static constexpr Result kComplete = nullptr;
  static Result fail(Status status, const char* call) noexcept {
    return return_or_abort(status, call) == GASNET_ERR_NOT_READY ? GEX_EVENT_NO_OP
                                                                 : GEX_EVENT_INVALID;
  }
};

Status begin(const Call& call, VisTransfer& what, CompletionCounter& counter) noexcept {
  if (!is_completion_armed()) [[likely]]
    return what.bytes != 0 ? start_vis(what, counter) : Status::kOk;
  const PeerCompletion completion = take_completion();
  if (what.immediate || !what.is_put())
    return fail(Status::kBadArg,
                "gex_VIS_SetPeerCompletionHandler() came before; the next operation has to be a "
                "put without GEX_FLAG_IMMEDIATE");
  return start_with_completion(what, completion, endpoints_of(call.tm), counter);
}

int wait(const Call& call, VisTransfer& what) noexcept {
  CompletionCounter counter;
  const Status status = begin(call, what, counter);
  // Started pieces write to this stack frame, so wait even if others failed.
  const Status waited = wait_for(counter);
  return return_or_abort(status == Status::kOk ? waited : status, call.name);
}

gex_Event_t finish(WithEvent, const Call& call, VisTransfer& what) noexcept {
  hydrant_event* event = take_counted_event();
  if (event == nullptr) {
    (void)wait(call, what);
    return GEX_EVENT_INVALID;
  }
  const Status status = begin(call, what, event->counter);
  if (status == Status::kOk) return finish_or_return_event(event, call.name);
  (void)wait_for(event->counter);
  release_event(event);
  return WithEvent::fail(status, call.name);
}

int finish(Returning, const Call& call, VisTransfer& what) noexcept {
  RmaThread* thread = call.is_implicit ? RmaThread::mine() : nullptr;
  if (thread == nullptr) return wait(call, what);
  return return_or_abort(begin(call, what, thread->implicit(what.direction)), call.name);
}

// Checks and starts what the short way has not copied.
template <typename Completion>
auto run(Completion completion, const Call& call, VisTransfer& what) noexcept {
  // Team and rank of an operation that does nothing have no meaning.
  if (what.bytes == 0 && !is_completion_armed()) return Completion::kComplete;
  what.direction = call.direction;
  what.immediate = (call.flags & GEX_FLAG_IMMEDIATE) != 0;
  what.source_may_change = (call.flags & GEX_FLAG_ENABLE_LEAF_LC) != 0;
  if (const Status status = check_vis(call.tm, call.rank, what); status != Status::kOk)
    return Completion::fail(status, call.name);
  return finish(completion, call, what);
}

// ---- the three shapes ----

Status unequal(size_t dest, size_t dest_count, size_t source, size_t source_count) noexcept {
  return fail(Status::kBadArg,
              "dstlist has %zu bytes in %zu pieces, srclist has %zu bytes in %zu: both sides need "
              "the same length",
              dest, dest_count, source, source_count);
}

template <typename Completion>
auto run_lists(Completion completion, const Call& call, const Side& dest, const Side& source,
               size_t source_bytes, VisTransfer& what) noexcept {
  if (what.bytes != source_bytes)
    return Completion::fail(unequal(what.bytes, dest.count, source_bytes, source.count), call.name);
  what.dest = &dest;
  what.source = &source;
  return run(completion, call, what);
}

template <typename Completion>
[[gnu::noinline]] typename Completion::Result do_vector(Completion completion, const Call& call,
                                                        const VectorList& dests,
                                                        const VectorList& sources) noexcept {
  const InCall in_call(call.name);
  VisTransfer what;
  size_t source_bytes = 0;
  Status status = total_of(dests.list, dests.count, "dst", &what.bytes);
  if (status == Status::kOk) status = total_of(sources.list, sources.count, "src", &source_bytes);
  if (status != Status::kOk) return Completion::fail(status, call.name);
  const Side dest = Side::of(dests.list, dests.count);
  const Side source = Side::of(sources.list, sources.count);
  return run_lists(completion, call, dest, source, source_bytes, what);
}

template <typename Completion>
[[gnu::noinline]] typename Completion::Result do_indexed(Completion completion, const Call& call,
                                                         const IndexedList& dests,
                                                         const IndexedList& sources) noexcept {
  const InCall in_call(call.name);
  VisTransfer what;
  size_t source_bytes = 0;
  Status status = total_of(dests.list, dests.count, dests.bytes, "dst", &what.bytes);
  if (status == Status::kOk)
    status = total_of(sources.list, sources.count, sources.bytes, "src", &source_bytes);
  if (status != Status::kOk) return Completion::fail(status, call.name);
  const Side dest = Side::of(dests.list, dests.count, dests.bytes);
  const Side source = Side::of(sources.list, sources.count, sources.bytes);
  return run_lists(completion, call, dest, source, source_bytes, what);
}

template <typename Completion>
[[gnu::noinline]] typename Completion::Result do_grids(Completion completion, const Call& call,
                                                       const GridPair& pair,
                                                       const MemoryRange& box) noexcept {
  Grid dest_side;
  Grid source_side;
  dest_grid(pair, dest_side);
  source_grid(pair, source_side);
  const Side dest = Side::of(dest_side);
  const Side source = Side::of(source_side);
  VisTransfer what;
  what.dest = &dest;
  what.source = &source;
  what.grids = &pair;
  what.peer_box = box;
  what.bytes = pair.bytes;
  return run(completion, call, what);
}

template <typename Completion>
[[gnu::noinline]] typename Completion::Result do_strided(
    Completion completion, const Call& call, const StridedArguments& arguments) noexcept {
  const InCall in_call(call.name);
  GridPair pair;
  MemoryRange box;
  const Status status =
      check_strided(arguments, {"dstaddr", "srcaddr"}, call.direction, pair, &box);
  if (status != Status::kOk) return Completion::fail(status, call.name);
  if (pair.bytes == 0) {
    VisTransfer what;
    return run(completion, call, what);
  }
  if (copy_if_known(call.tm, call.rank, call.direction == Direction::kPut, pair, box)) [[likely]]
    return Completion::kComplete;
  return do_grids(completion, call, pair, box);
}

}  // namespace

extern "C" {

void gex_VIS_SetPeerCompletionHandler(gex_AM_Index_t handler, const void* source, size_t bytes,
                                      gex_Flags_t) {
  const InCall in_call("gex_VIS_SetPeerCompletionHandler", CallKind::kLocal);
  Status status = Status::kOk;
  if (handler != 0 && handler < GEX_AM_INDEX_BASE)
    status =
        fail(Status::kBadArg, "handler %u belongs to the library; those of clients begin at %u",
             handler, static_cast<unsigned>(GEX_AM_INDEX_BASE));
  else if (handler != 0 && bytes > GEX_VIS_MAX_PEERCOMPLETION)
    status =
        fail(Status::kBadArg, "%zu bytes; at most %zu (GEX_VIS_MAX_PEERCOMPLETION) are possible",
             bytes, GEX_VIS_MAX_PEERCOMPLETION);
  else if (handler != 0 && bytes != 0 && source == nullptr)
    status = fail(Status::kBadArg, "%zu bytes at NULL", bytes);
  else if (!is_wired())
    status = fail(Status::kNotInit, "no client is initialised");
  else if (!arm_completion({handler, source, bytes}))
    status = fail(Status::kResource, "no memory for a thread's state of puts and gets");
  (void)return_or_abort(status, "gex_VIS_SetPeerCompletionHandler");
}

int hydrant_vis_vector(unsigned mode, gex_TM_t tm, gex_Rank_t rank, size_t dest_count,
                       gex_Memvec_t const dest[], size_t source_count, gex_Memvec_t const source[],
                       gex_Flags_t flags) {
  const VectorList dests = {dest_count, dest};
  const VectorList sources = {source_count, source};
  if (copy_if_known(tm, rank, is_put(mode), dests, sources)) return GASNET_OK;
  return do_vector(Returning{}, call_of(kVector, mode, tm, rank, flags), dests, sources);
}
gex_Event_t hydrant_vis_vector_nb(unsigned mode, gex_TM_t tm, gex_Rank_t rank, size_t dest_count,
                                  gex_Memvec_t const dest[], size_t source_count,
                                  gex_Memvec_t const source[], gex_Flags_t flags) {
  const VectorList dests = {dest_count, dest};
  const VectorList sources = {source_count, source};
  if (copy_if_known(tm, rank, is_put(mode), dests, sources)) return GEX_EVENT_INVALID;
  return do_vector(WithEvent{}, call_of(kVector, mode | kNb, tm, rank, flags), dests, sources);
}
int hydrant_vis_indexed(unsigned mode, gex_TM_t tm, gex_Rank_t rank, size_t dest_count,
                        void* const dest[], size_t dest_bytes, size_t source_count,
                        void* const source[], size_t source_bytes, gex_Flags_t flags) {
  const IndexedList dests = {dest_count, dest, dest_bytes};
  const IndexedList sources = {source_count, source, source_bytes};
  if (copy_if_known(tm, rank, is_put(mode), dests, sources)) return GASNET_OK;
  return do_indexed(Returning{}, call_of(kIndexed, mode, tm, rank, flags), dests, sources);
}
gex_Event_t hydrant_vis_indexed_nb(unsigned mode, gex_TM_t tm, gex_Rank_t rank, size_t dest_count,
                                   void* const dest[], size_t dest_bytes, size_t source_count,
                                   void* const source[], size_t source_bytes, gex_Flags_t flags) {
  const IndexedList dests = {dest_count, dest, dest_bytes};
  const IndexedList sources = {source_count, source, source_bytes};
  if (copy_if_known(tm, rank, is_put(mode), dests, sources)) return GEX_EVENT_INVALID;
  return do_indexed(WithEvent{}, call_of(kIndexed, mode | kNb, tm, rank, flags), dests, sources);
}
int hydrant_vis_strided(unsigned mode, gex_TM_t tm, gex_Rank_t rank, void* dest,
                        const ptrdiff_t dest_strides[], void* source,
                        const ptrdiff_t source_strides[], size_t element, const size_t count[],
                        size_t levels, gex_Flags_t flags) {
  const StridedArguments arguments = {dest,    dest_strides, source, source_strides,
                                      element, count,        levels};
  if (copy_if_known(tm, rank, is_put(mode), arguments)) return GASNET_OK;
  return do_strided(Returning{}, call_of(kStrided, mode, tm, rank, flags), arguments);
}
gex_Event_t hydrant_vis_strided_nb(unsigned mode, gex_TM_t tm, gex_Rank_t rank, void* dest,
                                   const ptrdiff_t dest_strides[], void* source,
                                   const ptrdiff_t source_strides[], size_t element,
                                   const size_t count[], size_t levels, gex_Flags_t flags) {
  const StridedArguments arguments = {dest,    dest_strides, source, source_strides,
                                      element, count,        levels};
  if (copy_if_known(tm, rank, is_put(mode), arguments)) return GEX_EVENT_INVALID;
  return do_strided(WithEvent{}, call_of(kStrided, mode | kNb, tm, rank, flags), arguments);
}

}  // extern "C"
