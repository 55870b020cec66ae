// Keeps the list of collective operations, advances them in polls, and gives them events. The calls
// (collective_calls.cpp) and teams start operations.
#include "extended/collective/operation/operations.hpp"

#include <hydrant/gasnet/events.h>

#include "am/call/thread_state.hpp"
#include "am/job/job.hpp"
#include "extended/collective/steps/nested_calls.hpp"
#include "extended/event/event.hpp"
#include "firehose/base/thread.hpp"

#include <new>
#include <utility>

namespace hydrant {
namespace {

class Operations {
 public:
  // Null: the operation is complete.
  CollectiveOperation* start(std::unique_ptr<CollectiveOperation> operation) noexcept {
    const MutexLock lock(mu_);
    if (operation->advance()) return nullptr;
    CollectiveOperation* started = operation.get();
    operation->next = std::move(first_);
    first_ = std::move(operation);
    job().progress.add(make_progress, this);
    return started;
  }

  // True if the operation is complete; then it has been deleted.
  bool finish(CollectiveOperation& operation) noexcept {
    const MutexLock lock(mu_);
    if (!operation.advance()) return false;
    std::unique_ptr<CollectiveOperation>* link = &first_;
    while (link->get() != &operation) link = &(*link)->next;
    std::unique_ptr<CollectiveOperation> rest = std::move((*link)->next);
    *link = std::move(rest);
    if (first_ == nullptr) job().progress.remove(make_progress, this);
    return true;
  }

  bool has_any_of(uint64_t team_id) noexcept {
    const MutexLock lock(mu_);
    const CollectiveOperation* each = first_.get();
    while (each != nullptr && each->team_id() != team_id) each = each->next.get();
    return each != nullptr;
  }
  bool is_ready(CollectiveOperation& operation) noexcept {
    const MutexLock lock(mu_);
    return operation.is_ready();
  }
  void log_pending(const CollectiveOperation& operation) {
    const MutexLock lock(mu_);
    operation.log_pending();
  }

 private:
  static uint32_t make_progress(void* self) noexcept {
    if (handler_depth != 0) return 0;  // perhaps of an operation that is being advanced
    auto& all = *static_cast<Operations*>(self);
    // If the mutex is taken, its holder advances operations, or another poll does.
    if (!all.mu_.try_lock()) return 0;
    uint32_t completed = 0;
    for (CollectiveOperation* each = all.first_.get(); each != nullptr; each = each->next.get())
      completed += !each->is_done() && each->advance() ? 1 : 0;
    all.mu_.unlock();
    return completed;
  }

  Mutex mu_;
  std::unique_ptr<CollectiveOperation> first_ HYDRANT_GUARDED_BY(mu_);
};

Operations& operations() noexcept {
  // Lives as long as the process, because threads may be using it at process exit.
  alignas(Operations) static std::byte place[sizeof(Operations)];
  static Operations* const all = new (place) Operations;
  return *all;
}

CollectiveOperation& operation_of(const hydrant_event& event) noexcept {
  return *static_cast<CollectiveOperation*>(event.object);
}
bool event_is_done(hydrant_event& event) noexcept {
  check_outside_user_function();
  return finish_operation(operation_of(event));
}
bool event_is_ready(const hydrant_event& event) noexcept {
  return is_operation_ready(operation_of(event));
}
void log_pending_event(const hydrant_event& event) { log_pending_operation(operation_of(event)); }

[[noreturn]] void refuse_without_memory(uint32_t signature) noexcept {
  fatal("%s: no memory for an operation: free memory, or raise ulimit -v",
        collective_name(signature));
}

}  // namespace

CollectiveOperation* begin_operation(const TeamMembers& team, uint32_t number,
                                     const OperationArguments& arguments,
                                     Schedule schedule) noexcept {
  std::unique_ptr<CollectiveOperation> operation =
      CollectiveOperation::make(team, number, arguments, std::move(schedule));
  if (operation == nullptr) refuse_without_memory(arguments.signature);
  return operations().start(std::move(operation));
}
bool finish_operation(CollectiveOperation& operation) noexcept {
  return operations().finish(operation);
}
bool has_outstanding_operations(uint64_t team_id) noexcept {
  return operations().has_any_of(team_id);
}
bool is_operation_ready(CollectiveOperation& operation) noexcept {
  return operations().is_ready(operation);
}
void log_pending_operation(const CollectiveOperation& operation) {
  operations().log_pending(operation);
}

gex_Event_t start_operation(const TeamMembers& team, uint32_t number,
                            const OperationArguments& arguments, Schedule schedule) noexcept {
  hydrant_event* event = take_event();
  if (event == nullptr) refuse_without_memory(arguments.signature);
  event->object = begin_operation(team, number, arguments, std::move(schedule));
  if (event->object == nullptr) {
    release_event(event);
    return GEX_EVENT_INVALID;
  }
  event->is_done = event_is_done;
  event->is_ready = event_is_ready;
  event->log_pending = log_pending_event;
  return event;
}

void run_operation(const TeamMembers& team, uint32_t number, const OperationArguments& arguments,
                   Schedule schedule) noexcept {
  gex_Event_t event = start_operation(team, number, arguments, std::move(schedule));
  if (event != GEX_EVENT_INVALID) gex_Event_Wait(event);
}

}  // namespace hydrant
