// The rank of the job that a call's team and rank name.
#pragma once

#include <hydrant/gasnet/objects.h>

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

namespace hydrant {

// Translates (tm, rank), in constant time. Errors: kBadArg: no team, a rank that it does not have, or a
// pair with an endpoint that does not exist here, or cannot exist there.
Status resolve(gex_TM_t tm, gex_Rank_t rank, Rank* peer) noexcept;
// The same for calls that treat pairs with other endpoints than the primordial ones apart. Errors: also
// kUnsupported, without a text: such a pair.
Status resolve_primordial(gex_TM_t tm, gex_Rank_t rank, Rank* peer) noexcept;

}  // namespace hydrant
