// The rank of the job that a call's team and rank name.
#pragma once

#include <hydrant/gasnet/objects.h>

#include "am/job/job.hpp"
#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

namespace hydrant {

// The rank of the job of a member, which exists.
inline Rank jobrank_of(const hydrant_team& team, Rank member) noexcept {
  return team.jobranks != nullptr ? team.jobranks[member] : team.first + member * team.stride;
}

// True if `tm` is a team that was destroyed, as far as clients with GASNET_DEBUG have it checked.
inline bool is_destroyed_team(gex_TM_t tm) noexcept {
  return tm != &hydrant_world && job().hooks.is_live_team != nullptr &&
         !job().hooks.is_live_team(tm);
}

// Translates (tm, rank), in constant time. Errors: kBadArg: no team, a rank that it does not have, or a
// pair with an endpoint that does not exist here, or cannot exist there; for clients with GASNET_DEBUG also a
// team that was destroyed.
Status resolve(gex_TM_t tm, gex_Rank_t rank, Rank* peer) noexcept;
// The same for calls that treat pairs with other endpoints than the primordial ones apart. Errors: also
// kUnsupported, without a text: such a pair.
Status resolve_primordial(gex_TM_t tm, gex_Rank_t rank, Rank* peer) noexcept;

}  // namespace hydrant
