// Starts the collectives of the extended API.
#pragma once

#include <hydrant/gasnet/objects.h>

#include "firehose/base/status.hpp"

#include <gasnet_fwd.h>

namespace hydrant {

// Registers the handlers and reserves memory. Called once, before the job is wired. Errors: kResource.
Status start_collectives() noexcept;
// Finds the nodes of the primordial team's members, and its mailboxes. After the job's fence. Errors: as
// find_nodes_of_world() and connect_mailboxes().
Status connect_collectives() noexcept;

// Starts a barrier of a team other than the primordial one. Ends the job with a text for what is no team.
gex_Event_t start_team_barrier(gex_TM_t tm, const char* call) noexcept;

}  // namespace hydrant
