// Local memory of puts and gets that cannot be pinned now, because a limit is reached: where the network's
// adapter can page (on-demand paging of all memory, ibv_registrar.hpp), it takes its pages from the kernel as
// it gets to them, and nothing is pinned, charged or copied. A fallback, tried each time that pinning has
// failed and never before: a fault of an adapter costs many times what a copy does.
//
// Peers are never given such a key: it would let them reach all memory of this process. Threads: any.
#pragma once

#include "extended/rma.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// The key for the local end of a put or get whose pin answered `code`, good for any address; null: there is
// none, the refusal was none of room, or HYDRANT_IBV_ODP is off. It stays valid for the job's life. Counts
// `bytes`. Cost: the first of each direction registers.
const std::byte* on_demand_key(int code, Direction direction, size_t bytes) noexcept;

// What has gone so.
struct OnDemandCounts {
  uint64_t ops = 0;
  uint64_t bytes = 0;
};
OnDemandCounts on_demand_counts() noexcept;

// There is another domain.
void forget_on_demand_keys() noexcept;

}  // namespace hydrant
