// The endpoints of this process: the primordial one (Job::endpoint), which every team has, and those that
// gex_EP_Create() makes. An endpoint has its own handlers and its own bound segment.
//
// Indices count up from 0 in the order of creation, so that ranks that create endpoints in the same order use
// the same indices. Endpoints live as long as the process.
//
// Threads: any. Cost of a query: one or two loads.
#pragma once

#include <hydrant/gasnet/objects.h>

#include "am/job/handler_table.hpp"
#include "am/wire/message.hpp"
#include "firehose/base/memory_range.hpp"
#include "firehose/base/status.hpp"

#include <cstddef>
#include <cstdint>

namespace hydrant {

// Errors, with *made unchanged: kBadArg: no capability, or an unknown one, or an unknown flag; kResource:
// GASNET_MAXEPS endpoints exist, or no memory.
Status create_endpoint(gex_EP_Capabilities_t capabilities, gex_Flags_t flags,
                       gex_EP_t* made) noexcept;

// The number of endpoints, the primordial one included.
uint32_t endpoint_count() noexcept;
// Null: there is none.
hydrant_endpoint* find_endpoint(uint32_t index) noexcept;
// True for an endpoint of this process. Reads nothing through the pointer.
bool is_endpoint(const hydrant_endpoint* endpoint) noexcept;
HandlerTable& handlers_of(hydrant_endpoint& endpoint) noexcept;
// True if the endpoint has all of these capabilities.
bool has_capabilities(const hydrant_endpoint& endpoint, gex_EP_Capabilities_t wanted) noexcept;

// The memory of the segment that is bound to an endpoint of this process; none: length 0.
MemoryRange bound_memory(uint32_t index) noexcept;
// True if the range lies in the bound segment of any endpoint of this process. Cost: some loads per endpoint.
bool is_in_bound_memory(uintptr_t addr, size_t bytes) noexcept;

// The endpoints that a call names by its team: both primordial unless it is a pair (gex_TM_Pair()).
inline EndpointPair endpoints_of(gex_TM_t tm) noexcept {
  const auto bits = reinterpret_cast<uintptr_t>(tm);
  if ((bits & 1) == 0) return {};
  return {.to = static_cast<uint16_t>(bits >> 8), .from = static_cast<uint16_t>(bits >> 32)};
}

}  // namespace hydrant
