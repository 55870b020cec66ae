// Opens the transport over verbs. A library that was built without verbs has the function, too: it refuses.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/transport/network_transport.hpp"

#include <cstddef>
#include <memory>

namespace hydrant {

// In a job of several nodes: publishes what the ranks need to choose one network. Called by every rank before
// the fence that precedes make_verbs_transport(). Errors: those of Bootstrap::put().
Status publish_verbs_networks(Bootstrap& bootstrap) noexcept;

// The verbs transport, which reaches all ranks. `bootstrap` must outlive it. `board`: the start_block() of
// the first rank of this node, which must outlive the transport; null if its ranks share no memory. Errors:
// kUnsupported: no device, no network that all nodes have, or the library was built without rdma-core;
// kBadArg: HYDRANT_IBV_PORTS; kResource; kBroken: the launcher or the first rank of this node does not
// answer.
Status make_verbs_transport(Bootstrap& bootstrap, bool single_threaded, std::byte* board,
                            std::unique_ptr<NetworkTransport>* transport) noexcept;

}  // namespace hydrant
