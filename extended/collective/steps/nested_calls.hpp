// Refuses calls of collectives where they cannot be nested: in handlers and in the functions of reductions.
#pragma once

#include "am/call/thread_state.hpp"
#include "extended/collective/steps/reduction.hpp"

namespace hydrant {

// Ends the job: the calling thread is in a handler or in the function of a reduction.
[[noreturn]] void refuse_in_handler(const char* what) noexcept;
// Tests of a collective's event do its work, which cannot be nested.
inline void check_outside_user_function() noexcept {
  if (handler_depth != 0 && is_in_user_function()) [[unlikely]]
    refuse_in_handler("testing the event of a collective");
}

}  // namespace hydrant
