// Fallback for local memory of puts and gets that cannot be pinned now because a limit is reached:
// on-demand paging (ODP) of all memory, if the adapter supports it (ibv_registrar.hpp). The adapter
// then faults pages in as it accesses them; no memory is pinned, charged or copied. Used only after
// pinning has failed, because an adapter's page fault costs many times more than a copy.
//
// Peers never get such a key, because it would give them access to all memory of this process. Threads:
// any.
#pragma once

#include "extended/rma/common/transfer.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Returns the key for the local end of a put or get whose pin failed with `code`; it covers every
// address and stays valid for the job. Null: no key is available, the failure was not a lack of room,
// or HYDRANT_IBV_ODP is off. Counts `bytes`. Cost: the first call per direction registers.
const std::byte* on_demand_key(int code, Direction direction, size_t bytes) noexcept;

// Operations and bytes that used on-demand paging.
struct OnDemandCounts {
  uint64_t ops = 0;
  uint64_t bytes = 0;
};
OnDemandCounts on_demand_counts() noexcept;

// Discards the keys, because there is a new domain.
void forget_on_demand_keys() noexcept;

}  // namespace hydrant
