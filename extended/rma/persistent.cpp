// Implements persistent operations (hydrant/persistent.h) and hints about firehoses.
//
// An operation caches what stays constant for the life of the job: the mapping of remote memory in a
// segment; and, for a network between pinned memory, its piece and the network's prepared request.
// Firehoses may change between two starts, so each start looks them up in the cache, usually with a
// hit. Strided operations are made by extended/vis/strided_operation.cpp.
#include "am/call/in_call.hpp"
#include "am/call/thread_state.hpp"
#include "am/job/job.hpp"
#include "am/progress/waiting.hpp"
#include "extended/binding/firehose_binding.hpp"
#include "extended/rma/common/copy.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_errors.hpp"
#include "extended/rma/common/rma_path.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/persistent_operation.hpp"
#include "extended/rma/pinned/rma_pinned.hpp"
#include "extended/rma/rma.hpp"

#include <memory>
#include <new>

using namespace hydrant;

namespace {

int make_operation(gex_TM_t tm, gex_Rank_t rank, const Transfer& wanted,
                   hydrant_operation_t* operation, const char* call) noexcept {
  if (operation == nullptr)
    return return_or_abort(fail(Status::kBadArg, "the pointer to the operation is NULL"), call,
                           true);
  Transfer what = wanted;
  const Status status = check_transfer(tm, rank, what);
  if (status != Status::kOk) return return_or_abort(status, call, true);
  RmaThread* thread = RmaThread::mine();
  auto* made = new (std::nothrow) hydrant_operation_s;
  if (made == nullptr || thread == nullptr || !thread->has_peers()) {
    delete made;
    return return_or_abort(fail(Status::kResource, "no memory for an operation"), call, true);
  }
  made->what = what;
  made->counter.returns_errors = true;
  const bool is_self = what.peer == job().rank();
  if (what.bytes != 0 && (is_self ? paths().self : paths(what.peer).mapped))
    made->mapped = mapped_here(*thread, what.peer, what.remote, what.bytes);
  if (what.bytes != 0 && made->mapped == nullptr && !is_self) {
    if (paths(what.peer).pinned && what.bytes <= kMaxPieceBytes)
      made->persistent.reset(new (std::nothrow) PersistentPiece);
    if (made->persistent != nullptr) make_persistent(*made->persistent, what, made->counter);
    (void)prefetch(what.peer, what.remote, what.bytes);
  }
  *operation = made;
  return GASNET_OK;
}

// Returns true if the operation is under way. False: transfer() handles it and reports errors.
bool start_again(hydrant_operation_s& operation) noexcept {
  RmaThread* thread = RmaThread::mine();
  if (thread == nullptr || !thread->has_peers()) [[unlikely]]
    return false;
  settle_exports();
  operation.counter.thread = thread;
  return start_persistent(*thread, *operation.persistent);
}

Status begin(hydrant_operation_s& operation) noexcept {
  if (handler_depth != 0) [[unlikely]]
    return fail(Status::kBadArg, "a handler must not put or get");
  if (!operation.counter.all_done())
    return fail(Status::kBadArg, "the operation is under way: wait for it first");
  reset(operation.counter);
  operation.counter.returns_errors = true;
  const Transfer& what = operation.what;
  if (what.bytes == 0) {
    return operation.prepared != nullptr ? operation.prepared->start(operation.counter)
                                         : Status::kOk;
  }
  if (operation.persistent != nullptr && start_again(operation)) return Status::kOk;
  if (operation.mapped == nullptr) return transfer(what, operation.counter);
  RmaThread* thread = RmaThread::mine();
  if (thread == nullptr || !thread->has_peers()) [[unlikely]]
    return fail(Status::kResource, "no memory for a thread's state of puts and gets");
  settle_exports();
  if (what.is_put()) {
    copy_bytes(operation.mapped, what.local, what.bytes);
  } else {
    copy_bytes(what.local, operation.mapped, what.bytes);
  }
  thread->count(what.direction, what.peer, what.peer == job().rank() ? Path::kSelf : Path::kMapped,
                what.bytes);
  return Status::kOk;
}

// Reports a failure once.
int outcome_of(hydrant_operation_s& operation, const char* call) noexcept {
  const Status status = failure_of(operation.counter);
  operation.counter.failure.store(0, std::memory_order_relaxed);
  return return_or_abort(status, call, true);
}

int check_given(hydrant_operation_t operation, const char* call) noexcept {
  if (operation != nullptr) return GASNET_OK;
  return return_or_abort(fail(Status::kBadArg, "the operation is NULL"), call, true);
}

Status check_hint(gex_Rank_t rank, const void* remote, size_t bytes) noexcept {
  if (!is_wired()) return fail(Status::kNotInit, "no client is initialised");
  if (rank >= job().size())
    return fail(Status::kBadArg, "rank %u does not exist; the job has %u ranks", rank,
                job().size());
  const auto first = reinterpret_cast<uintptr_t>(remote);
  if (bytes != 0 && first + bytes - 1 < first)
    return fail(Status::kBadArg, "%zu bytes from %p on wrap around the address space", bytes,
                remote);
  return Status::kOk;
}

}  // namespace

extern "C" {

int hydrant_put_init(gex_TM_t tm, gex_Rank_t rank, void* remote, const void* local, size_t bytes,
                     hydrant_operation_t* operation) {
  Transfer what;
  what.direction = Direction::kPut;
  what.remote = reinterpret_cast<uintptr_t>(remote);
  what.local = static_cast<std::byte*>(const_cast<void*>(local));
  what.bytes = bytes;
  return make_operation(tm, rank, what, operation, "hydrant_put_init");
}

int hydrant_get_init(gex_TM_t tm, gex_Rank_t rank, const void* remote, void* local, size_t bytes,
                     hydrant_operation_t* operation) {
  Transfer what;
  what.direction = Direction::kGet;
  what.remote = reinterpret_cast<uintptr_t>(remote);
  what.local = static_cast<std::byte*>(local);
  what.bytes = bytes;
  return make_operation(tm, rank, what, operation, "hydrant_get_init");
}

int hydrant_start(hydrant_operation_t operation) {
  const InCall in_call("hydrant_start");
  if (const int code = check_given(operation, "hydrant_start"); code != GASNET_OK) return code;
  return return_or_abort(begin(*operation), "hydrant_start", true);
}

int hydrant_start_all(const hydrant_operation_t* operations, size_t count) {
  if (operations == nullptr && count != 0)
    return return_or_abort(fail(Status::kBadArg, "%zu operations, and the array is NULL", count),
                           "hydrant_start_all", true);
  for (size_t i = 0; i < count; ++i) {
    const int code = hydrant_start(operations[i]);
    if (code != GASNET_OK) return code;
  }
  return GASNET_OK;
}

int hydrant_test(hydrant_operation_t operation) {
  const InCall in_call("hydrant_test");
  if (const int code = check_given(operation, "hydrant_test"); code != GASNET_OK) return code;
  if (!operation->counter.all_done()) poll_all();
  if (!operation->counter.all_done()) return GASNET_ERR_NOT_READY;
  return outcome_of(*operation, "hydrant_test");
}

int hydrant_wait(hydrant_operation_t operation) {
  const InCall in_call("hydrant_wait");
  if (const int code = check_given(operation, "hydrant_wait"); code != GASNET_OK) return code;
  (void)wait_for(operation->counter);
  return outcome_of(*operation, "hydrant_wait");
}

int hydrant_operation_free(hydrant_operation_t* operation) {
  if (operation == nullptr || *operation == nullptr) return GASNET_OK;
  const int code = hydrant_wait(*operation);
  delete *operation;
  *operation = nullptr;
  return code;
}

int hydrant_prefetch(gex_Rank_t rank, const void* remote, size_t bytes) {
  const InCall in_call("hydrant_prefetch", CallKind::kLocal);
  const Status status = check_hint(rank, remote, bytes);
  if (status != Status::kOk || bytes == 0) return return_or_abort(status, "hydrant_prefetch", true);
  return return_or_abort(prefetch(rank, reinterpret_cast<uintptr_t>(remote), bytes),
                         "hydrant_prefetch", true);
}

int hydrant_evict(gex_Rank_t rank, const void* remote, size_t bytes) {
  const InCall in_call("hydrant_evict", CallKind::kLocal);
  const Status status = check_hint(rank, remote, bytes);
  if (status != Status::kOk || bytes == 0) return return_or_abort(status, "hydrant_evict", true);
  return return_or_abort(evict(rank, reinterpret_cast<uintptr_t>(remote), bytes), "hydrant_evict",
                         true);
}

}  // extern "C"
