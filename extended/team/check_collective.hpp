// Checks that all collective calls make before they start. They are inline, because a collective of a few
// bytes among ranks of a node is over in 0.2 us.
#pragma once

#include <hydrant/gasnet/objects.h>

#include "am/call/thread_state.hpp"
#include "am/job/job.hpp"
#include "extended/team/team.hpp"

#include <cstddef>
#include <cstdint>
#include <gasnet_fwd.h>

namespace hydrant {

// Ends the job with a text before a client is initialised, in a handler, under a handler-safe lock
// (debug), and for what is no team.
[[gnu::cold]] void check_team_call_slowly(gex_TM_t tm, const char* call) noexcept;
inline void check_team_call(gex_TM_t tm, const char* call) noexcept {
  if (!is_wired() || handler_depth != 0 || job().careful || tm != &hydrant_world) [[unlikely]]
    check_team_call_slowly(tm, call);
}
// Ends the job where check_team_call() does, else returns the members.
inline TeamMembers check_collective(gex_TM_t tm, const char* call) noexcept {
  check_team_call(tm, call);
  return members_of(tm);
}

// Ends the job unless `root` is a member.
inline void check_root(const TeamMembers& team, Rank root, const char* call) noexcept {
  if (root >= team.size) [[unlikely]]
    fatal("%s: the root rank %u does not exist; the team has %u ranks", call, root, team.size);
}

// Ends the job if `memory` is null and there are bytes.
inline void check_memory(const void* memory, size_t bytes, const char* what,
                         const char* call) noexcept {
  if (memory == nullptr && bytes != 0) [[unlikely]]
    fatal("%s: %s is NULL, and the length is %zu bytes", call, what, bytes);
}
// Ends the job unless the parts of all members, `bytes` each, fit the address space.
inline void check_parts(const TeamMembers& team, size_t bytes, const char* call) noexcept {
  if (bytes > SIZE_MAX / 2 / team.size) [[unlikely]]
    fatal("%s: %u parts of %zu bytes do not fit the address space", call, team.size, bytes);
}

}  // namespace hydrant
