// The three ways in which puts, gets and fills are waited for: at once, by an event, and without one.
#pragma once

#include <hydrant/gasnet/events.h>

#include "extended/rma.hpp"

namespace hydrant {

// Each checks, starts and answers as the C call `call` does.
int finish_blocking(gex_TM_t tm, gex_Rank_t rank, Transfer what, const char* call) noexcept;
// GEX_EVENT_INVALID if it is over; GEX_EVENT_NO_OP if it did not start (immediate).
gex_Event_t start_with_event(gex_TM_t tm, gex_Rank_t rank, Transfer what,
                             const char* call) noexcept;
int start_implicit(gex_TM_t tm, gex_Rank_t rank, Transfer what, const char* call) noexcept;

// An event whose Pieces is ready to be counted; null if there is no memory for one.
hydrant_event* take_pieces_event() noexcept;
// After everything was started: the event, or GEX_EVENT_INVALID, and it is given back, if all is over. Looks
// for failures then.
gex_Event_t hand_out(hydrant_event* event, const char* call) noexcept;
// Ends the job, or tells, if a piece of an event that is complete could not be done. Tells, if the
// event is of a call that returns errors.
void look_for_failure(const hydrant_event& event, const char* call) noexcept;

}  // namespace hydrant
