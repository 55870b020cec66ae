// Checks that all collective calls make before they start.
#pragma once

#include <hydrant/gasnet/objects.h>

#include "extended/collective/operation.hpp"

#include <cstddef>
#include <gasnet_fwd.h>

namespace hydrant {

// Ends the job with a text before a client is initialised, in a handler, under a handler-safe lock
// (debug), and for what is no team.
TeamMembers check_collective(gex_TM_t tm, const char* call) noexcept;
// Ends the job unless `root` is a member.
void check_root(const TeamMembers& team, Rank root, const char* call) noexcept;

}  // namespace hydrant
