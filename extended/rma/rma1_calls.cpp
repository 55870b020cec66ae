// Implements GASNet-1's calls that have no equivalent in GASNet-EX: fills (gasnet_memset*), and gets of
// values with their own handles. They use rma_transfer.cpp and count_pieces.cpp.
#include <hydrant/gasnet/rma1.h>

#include "am/call/in_call.hpp"
#include "am/job/job.hpp"
#include "extended/event/event.hpp"
#include "extended/event/thread_local_pool.hpp"
#include "extended/rma/common/count_pieces.hpp"
#include "extended/rma/common/rma_errors.hpp"
#include "extended/rma/common/rma_thread.hpp"
#include "extended/rma/rma.hpp"

#include <new>

using namespace hydrant;

namespace hydrant {
class ValueHandles;
}

// A pending value. Any thread may sync it, which returns it to the pool of the requesting thread.
struct hydrant_valget {
  gex_Event_t event = GEX_EVENT_INVALID;
  gex_RMA_Value_t value = 0;
  hydrant_valget* next = nullptr;
  ValueHandles* home = nullptr;
};

namespace hydrant {

class ValueHandles {
 public:
  hydrant_valget* take() noexcept {
    hydrant_valget* handle = handles_.take();
    if (handle != nullptr) return handle;
    handle = new (std::nothrow) hydrant_valget;
    if (handle != nullptr) handle->home = this;
    return handle;
  }
  void release(hydrant_valget* handle) noexcept {
    if (ThreadLocalPool<ValueHandles>::is_mine(this)) {
      handles_.free_local(handle);
    } else {
      handles_.free_from_any(handle);
    }
  }

  void joined() noexcept {}
  void left() noexcept {}
  ValueHandles* next_of_all = nullptr;
  ValueHandles* next_orphan = nullptr;

 private:
  CrossThreadFreeList<hydrant_valget> handles_;
};

}  // namespace hydrant

namespace {

// Like check_transfer(), for a fill.
Status check_fill(gasnet_node_t rank, void* dest, size_t bytes) noexcept {
  Transfer what = {.remote = reinterpret_cast<uintptr_t>(dest),
                   .local = static_cast<std::byte*>(dest),
                   .bytes = bytes};
  return check_transfer(&hydrant_world, rank, what);
}

Status fill_and_wait(gasnet_node_t rank, void* dest, int value, size_t bytes) noexcept {
  CompletionCounter counter;
  const Status status = fill(rank, reinterpret_cast<uintptr_t>(dest), value, bytes, counter);
  const Status waited = wait_for(counter);
  return status == Status::kOk ? waited : status;
}

}  // namespace

extern "C" {

void gasnet_memset(gasnet_node_t rank, void* dest, int value, size_t bytes) {
  const InCall in_call("gasnet_memset");
  Status status = check_fill(rank, dest, bytes);
  if (status == Status::kOk && bytes != 0) status = fill_and_wait(rank, dest, value, bytes);
  (void)return_or_abort(status, "gasnet_memset");
}

gasnet_handle_t gasnet_memset_nb(gasnet_node_t rank, void* dest, int value, size_t bytes) {
  const InCall in_call("gasnet_memset_nb");
  Status status = check_fill(rank, dest, bytes);
  hydrant_event* event = nullptr;
  if (status == Status::kOk && bytes != 0) {
    event = take_counted_event();
    status = event != nullptr
                 ? fill(rank, reinterpret_cast<uintptr_t>(dest), value, bytes, event->counter)
                 : fill_and_wait(rank, dest, value, bytes);
  }
  (void)return_or_abort(status, "gasnet_memset_nb");
  return event != nullptr ? finish_or_return_event(event, "gasnet_memset_nb") : GEX_EVENT_INVALID;
}

void gasnet_memset_nbi(gasnet_node_t rank, void* dest, int value, size_t bytes) {
  const InCall in_call("gasnet_memset_nbi");
  Status status = check_fill(rank, dest, bytes);
  if (status == Status::kOk && bytes != 0) {
    RmaThread* thread = RmaThread::mine();
    status = thread != nullptr ? fill(rank, reinterpret_cast<uintptr_t>(dest), value, bytes,
                                      thread->implicit(Direction::kPut))
                               : fill_and_wait(rank, dest, value, bytes);
  }
  (void)return_or_abort(status, "gasnet_memset_nbi");
}

gasnet_valget_handle_t gasnet_get_nb_val(gasnet_node_t rank, void* source, size_t bytes) {
  const InCall in_call("gasnet_get_nb_val");
  ValueHandles* handles = ThreadLocalPool<ValueHandles>::mine();
  hydrant_valget* handle = handles != nullptr ? handles->take() : nullptr;
  if (handle == nullptr) fatal("gasnet_get_nb_val: no memory for a value");
  handle->value = 0;
  handle->event = gex_RMA_GetNB(&hydrant_world, &handle->value, rank, source, bytes, 0);
  return handle;
}

gasnet_register_value_t gasnet_wait_syncnb_valget(gasnet_valget_handle_t handle) {
  const InCall in_call("gasnet_wait_syncnb_valget");
  gex_Event_Wait(handle->event);
  const gasnet_register_value_t value = handle->value;
  handle->home->release(handle);
  return value;
}

}  // extern "C"
