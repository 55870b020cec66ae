// Implements the C functions of rma.h: tries the fast paths, else describes the operation and starts it
// (rma_transfer.cpp) with one of three kinds of completion. Step 1 of "Tour: a put" ends here.
#include <hydrant/gasnet/rma.h>

#include "am/call/in_call.hpp"
#include "am/job/endpoints.hpp"
#include "am/job/resolve.hpp"
#include "am/segment/segment_check.hpp"
#include "extended/event/event.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_errors.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/mapped_copy.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"
#include "extended/rma/rma.hpp"

using namespace hydrant;

namespace {

bool is_event(const gex_Event_t* lc_opt) noexcept {
  return reinterpret_cast<uintptr_t>(lc_opt) > reinterpret_cast<uintptr_t>(GEX_EVENT_GROUP);
}

Transfer put_of(void* dest, const void* source, size_t bytes, gex_Flags_t flags) noexcept {
  return {.direction = Direction::kPut,
          .remote = reinterpret_cast<uintptr_t>(dest),
          .local = static_cast<std::byte*>(const_cast<void*>(source)),
          .bytes = bytes,
          .immediate = (flags & GEX_FLAG_IMMEDIATE) != 0};
}
Transfer get_of(void* dest, const void* source, size_t bytes, gex_Flags_t flags) noexcept {
  return {.direction = Direction::kGet,
          .remote = reinterpret_cast<uintptr_t>(source),
          .local = static_cast<std::byte*>(dest),
          .bytes = bytes,
          .immediate = (flags & GEX_FLAG_IMMEDIATE) != 0};
}

// The rank in the job of a member of a team that the client has made, or of a pair, for the fast paths, which
// know ranks of the job. GEX_RANK_INVALID: none; also for a pair of a client with GASNET_DEBUG, because
// check_transfer() has to know the peer's endpoint.
[[gnu::noinline]] gex_Rank_t job_rank_of(gex_TM_t tm, gex_Rank_t rank) noexcept {
  Rank peer = 0;
  if (resolve(tm, rank, &peer) != Status::kOk) return GEX_RANK_INVALID;
  return checks_segments() && endpoints_of(tm).to != 0 ? GEX_RANK_INVALID : peer;
}
// Replaces such a rank by that in the job. True: replaced.
[[gnu::always_inline]] inline bool use_job_rank(gex_TM_t& tm, gex_Rank_t& rank) noexcept {
  if (tm == &hydrant_world) [[likely]]
    return false;
  const gex_Rank_t peer = job_rank_of(tm, rank);
  if (peer == GEX_RANK_INVALID) return false;
  tm = &hydrant_world;
  rank = peer;
  return true;
}

// Copies to and from memory of a rank of the job that is mapped here.
[[gnu::noinline]] bool put_known(gex_Rank_t rank, void* dest, const void* source,
                                 size_t bytes) noexcept {
  return put_mapped(&hydrant_world, rank, dest, source, bytes) ||
         put_to_created(rank, dest, source, bytes);
}
[[gnu::noinline]] bool get_known(gex_Rank_t rank, void* dest, const void* source,
                                 size_t bytes) noexcept {
  return get_mapped(&hydrant_world, rank, dest, source, bytes) ||
         get_from_created(rank, dest, source, bytes);
}

// The three completion modes. Each function checks and starts the operation, and reports errors under the
// name of the C call `call`.
[[gnu::noinline]] int finish_blocking(gex_TM_t tm, gex_Rank_t rank, Transfer what,
                                      const char* call) noexcept {
  Status status = check_transfer(tm, rank, what);
  if (status == Status::kOk && what.bytes != 0) {
    CompletionCounter counter;
    status = transfer(what, counter);
    // Started pieces write to this stack frame, so wait even if others failed.
    const Status waited = wait_for(counter);
    if (status == Status::kOk) status = waited;
  }
  return return_or_abort(status, call);
}

// GEX_EVENT_INVALID: the operation is complete; GEX_EVENT_NO_OP: it did not start (immediate).
[[gnu::noinline]] gex_Event_t start_with_event(gex_TM_t tm, gex_Rank_t rank, Transfer what,
                                               const char* call) noexcept {
  Status status = check_transfer(tm, rank, what);
  if (status != Status::kOk || what.bytes == 0) {
    (void)return_or_abort(status, call);
    return GEX_EVENT_INVALID;
  }
  hydrant_event* event = take_counted_event();
  if (event == nullptr) {
    (void)finish_blocking(tm, rank, what, call);
    return GEX_EVENT_INVALID;
  }
  status = transfer(what, event->counter);
  if (status != Status::kOk) [[unlikely]] {
    (void)wait_for(event->counter);
    release_event(event);
    return return_or_abort(status, call) == GASNET_ERR_NOT_READY ? GEX_EVENT_NO_OP
                                                                 : GEX_EVENT_INVALID;
  }
  return finish_or_return_event(event, call);
}

[[gnu::noinline]] int start_implicit(gex_TM_t tm, gex_Rank_t rank, Transfer what,
                                     const char* call) noexcept {
  Status status = check_transfer(tm, rank, what);
  if (status == Status::kOk && what.bytes != 0) {
    RmaThread* thread = RmaThread::mine();
    if (thread == nullptr) return finish_blocking(tm, rank, what, call);
    status = transfer(what, thread->implicit(what.direction));
  }
  return return_or_abort(status, call);
}

// Paths for memory not known to be mapped. Separate functions, so that the callers above need no stack
// frame.
[[gnu::noinline]] int put_blocking(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                                   size_t bytes, gex_Flags_t flags) noexcept {
  const InCall in_call("gex_RMA_PutBlocking");
  if (use_job_rank(tm, rank) && put_known(rank, dest, source, bytes)) return GASNET_OK;
  if (put_by_cma(tm, rank, dest, source, bytes) || put_hit(tm, rank, dest, source, bytes))
    return GASNET_OK;
  const Transfer what = put_of(dest, source, bytes, flags);
  return finish_blocking(tm, rank, what, "gex_RMA_PutBlocking");
}
[[gnu::noinline]] gex_Event_t put_nb(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                                     size_t bytes, gex_Event_t* lc_opt,
                                     gex_Flags_t flags) noexcept {
  const InCall in_call("gex_RMA_PutNB");
  if (use_job_rank(tm, rank) && put_known(rank, dest, source, bytes)) {
    if (is_event(lc_opt)) *lc_opt = GEX_EVENT_INVALID;
    return GEX_EVENT_INVALID;
  }
  Transfer what = put_of(dest, source, bytes, flags);
  what.source_may_change = lc_opt != GEX_EVENT_DEFER;
  const gex_Event_t event = put_by_cma(tm, rank, dest, source, bytes)
                                ? GEX_EVENT_INVALID
                                : start_with_event(tm, rank, what, "gex_RMA_PutNB");
  if (is_event(lc_opt)) *lc_opt = GEX_EVENT_INVALID;
  return event;
}
[[gnu::noinline]] int put_nbi(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                              size_t bytes, gex_Event_t* lc_opt, gex_Flags_t flags) noexcept {
  const InCall in_call("gex_RMA_PutNBI");
  if (use_job_rank(tm, rank) && put_known(rank, dest, source, bytes)) {
    if (is_event(lc_opt)) *lc_opt = GEX_EVENT_INVALID;
    return GASNET_OK;
  }
  Transfer what = put_of(dest, source, bytes, flags);
  what.source_may_change = lc_opt != GEX_EVENT_DEFER;
  const int code = put_by_cma(tm, rank, dest, source, bytes)
                       ? GASNET_OK
                       : start_implicit(tm, rank, what, "gex_RMA_PutNBI");
  if (is_event(lc_opt)) *lc_opt = GEX_EVENT_INVALID;
  return code;
}
[[gnu::noinline]] int get_blocking(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source,
                                   size_t bytes, gex_Flags_t flags) noexcept {
  const InCall in_call("gex_RMA_GetBlocking");
  if (use_job_rank(tm, rank) && get_known(rank, dest, source, bytes)) return GASNET_OK;
  if (get_by_cma(tm, rank, dest, source, bytes) || get_hit(tm, rank, dest, source, bytes))
    return GASNET_OK;
  const Transfer what = get_of(dest, source, bytes, flags);
  return finish_blocking(tm, rank, what, "gex_RMA_GetBlocking");
}
[[gnu::noinline]] gex_Event_t get_nb(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source,
                                     size_t bytes, gex_Flags_t flags) noexcept {
  const InCall in_call("gex_RMA_GetNB");
  if (use_job_rank(tm, rank) && get_known(rank, dest, source, bytes)) return GEX_EVENT_INVALID;
  if (get_by_cma(tm, rank, dest, source, bytes)) return GEX_EVENT_INVALID;
  const Transfer what = get_of(dest, source, bytes, flags);
  return start_with_event(tm, rank, what, "gex_RMA_GetNB");
}
[[gnu::noinline]] int get_nbi(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source,
                              size_t bytes, gex_Flags_t flags) noexcept {
  const InCall in_call("gex_RMA_GetNBI");
  if (use_job_rank(tm, rank) && get_known(rank, dest, source, bytes)) return GASNET_OK;
  if (get_by_cma(tm, rank, dest, source, bytes)) return GASNET_OK;
  const Transfer what = get_of(dest, source, bytes, flags);
  return start_implicit(tm, rank, what, "gex_RMA_GetNBI");
}

}  // namespace

extern "C" {

size_t hydrant_wrong_value(size_t bytes) {
  (void)return_or_abort(
      fail(Status::kBadArg, "a value of %zu bytes; valid sizes are 1 to 8", bytes),
      "gex_RMA_Put*Val or gex_RMA_Get*Val");
  return 0;
}

int hydrant_put_blocking(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes,
                         gex_Flags_t flags) {
  if (put_mapped(tm, rank, dest, source, bytes)) return GASNET_OK;
  return put_blocking(tm, rank, dest, source, bytes, flags);
}

gex_Event_t hydrant_put_nb(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source,
                           size_t bytes, gex_Event_t* lc_opt, gex_Flags_t flags) {
  if (!put_mapped(tm, rank, dest, source, bytes))
    return put_nb(tm, rank, dest, source, bytes, lc_opt, flags);
  if (is_event(lc_opt)) *lc_opt = GEX_EVENT_INVALID;
  return GEX_EVENT_INVALID;
}

int hydrant_put_nbi(gex_TM_t tm, gex_Rank_t rank, void* dest, const void* source, size_t bytes,
                    gex_Event_t* lc_opt, gex_Flags_t flags) {
  if (!put_mapped(tm, rank, dest, source, bytes))
    return put_nbi(tm, rank, dest, source, bytes, lc_opt, flags);
  if (is_event(lc_opt)) *lc_opt = GEX_EVENT_INVALID;
  return GASNET_OK;
}

int hydrant_get_blocking(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source, size_t bytes,
                         gex_Flags_t flags) {
  if (get_mapped(tm, rank, dest, source, bytes)) return GASNET_OK;
  return get_blocking(tm, dest, rank, source, bytes, flags);
}

gex_Event_t hydrant_get_nb(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source,
                           size_t bytes, gex_Flags_t flags) {
  if (get_mapped(tm, rank, dest, source, bytes)) return GEX_EVENT_INVALID;
  return get_nb(tm, dest, rank, source, bytes, flags);
}

int hydrant_get_nbi(gex_TM_t tm, void* dest, gex_Rank_t rank, const void* source, size_t bytes,
                    gex_Flags_t flags) {
  if (get_mapped(tm, rank, dest, source, bytes)) return GASNET_OK;
  return get_nbi(tm, dest, rank, source, bytes, flags);
}

}  // extern "C"
