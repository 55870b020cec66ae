// Checks that all collective calls make before they start.
#pragma once

#include <hydrant/gasnet/objects.h>

#include "am/call/thread_state.hpp"
#include "extended/collective/operation.hpp"
#include "extended/collective/reduction.hpp"

#include <cstddef>
#include <gasnet_fwd.h>

namespace hydrant {

// Ends the job with a text before a client is initialised, in a handler, under a handler-safe lock
// (debug), and for what is no team.
TeamMembers check_collective(gex_TM_t tm, const char* call) noexcept;
// Ends the job unless `root` is a member.
void check_root(const TeamMembers& team, Rank root, const char* call) noexcept;

// Ends the job if `memory` is null and there are bytes.
void check_memory(const void* memory, size_t bytes, const char* what, const char* call) noexcept;
// Ends the job unless the parts of all members, `bytes` each, fit the address space.
void check_parts(const TeamMembers& team, size_t bytes, const char* call) noexcept;

// Ends the job: the calling thread is in a handler or in the function of a reduction.
[[noreturn]] void refuse_in_handler(const char* what) noexcept;
// Tests of a collective's event do its work, which cannot be nested.
inline void check_outside_user_function() noexcept {
  if (handler_depth != 0 && is_in_user_function()) [[unlikely]]
    refuse_in_handler("testing the event of a collective");
}

}  // namespace hydrant
