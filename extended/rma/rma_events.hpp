// The three completion modes of puts, gets and fills: blocking, with an event (NB), and implicit (NBI).
#pragma once

#include <hydrant/gasnet/events.h>

#include "extended/rma/rma.hpp"

namespace hydrant {

// Each function checks and starts the operation, and reports errors under the name of the C call `call`.
int finish_blocking(gex_TM_t tm, gex_Rank_t rank, Transfer what, const char* call) noexcept;
// Returns GEX_EVENT_INVALID if the operation is complete; GEX_EVENT_NO_OP if it did not start (immediate).
gex_Event_t start_with_event(gex_TM_t tm, gex_Rank_t rank, Transfer what,
                             const char* call) noexcept;
int start_implicit(gex_TM_t tm, gex_Rank_t rank, Transfer what, const char* call) noexcept;

// Returns an event whose CompletionCounter is ready for counting; null if there is no memory.
hydrant_event* take_counted_event() noexcept;
// Called after everything was started: returns the event, or, if all pieces are complete, checks for
// failures, releases the event and returns GEX_EVENT_INVALID.
gex_Event_t finish_or_return_event(hydrant_event* event, const char* call) noexcept;
// Reports a failed piece of a completed event: ends the job, or logs it if the event belongs to a call
// that returns errors.
void check_failure(const hydrant_event& event, const char* call) noexcept;

}  // namespace hydrant
