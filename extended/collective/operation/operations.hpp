// The collective operations under way on this rank, of all teams. Polls of any thread advance them.
#pragma once

#include "extended/collective/operation/operation.hpp"

#include <gasnet_fwd.h>

namespace hydrant {

// Starts an operation. The event is GEX_EVENT_INVALID if it is complete already. Never waits. Ends the job
// if there is no memory. `team` may end its life when the event is complete.
gex_Event_t start_operation(const TeamMembers& team, uint32_t number,
                            const OperationArguments& arguments, Schedule schedule) noexcept;

// The same for a caller that has an event. Null: the operation is complete already.
CollectiveOperation* begin_operation(const TeamMembers& team, uint32_t number,
                                     const OperationArguments& arguments,
                                     Schedule schedule) noexcept;
// True: the operation is complete, and is deleted.
bool finish_operation(CollectiveOperation& operation) noexcept;
bool is_operation_ready(CollectiveOperation& operation) noexcept;
void log_pending_operation(const CollectiveOperation& operation);

// True if events of operations of the team are not synced.
bool has_outstanding_operations(uint64_t team_id) noexcept;

// Starts an operation and waits for it.
void run_operation(const TeamMembers& team, uint32_t number, const OperationArguments& arguments,
                   Schedule schedule) noexcept;

}  // namespace hydrant
