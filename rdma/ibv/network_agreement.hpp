// Makes the ranks of a job choose ports of one network: the best that all its nodes have. The first rank of
// each node publishes the networks of the node's ports before a fence, reads those of the other nodes after
// it, and hands the answer to the ranks of its node. docs/decisions/0059-one-network.md has the costs.
//
// A node whose ports are all on one network has no choice. It reads the entry of the next node alone: if all
// nodes are such, two neighbours have different networks, or all have the same.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/ibv/device/networks.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace hydrant::ibv {

// Called by every rank of a job with several nodes, before a fence. Errors: those of Bootstrap::put().
Status publish_networks(Bootstrap& bootstrap) noexcept;

// Called by every rank after the fence. `board`: MemoryAccess::kStartBytes bytes, zero at first, that the
// ranks of the node share; without them (null) each rank reads the entries itself. *common is empty if any
// port will do: this node's ports are all on one network, or HYDRANT_IBV_PORTS names them, or the launcher
// does not tell which rank is on which node.
// Errors: kUnsupported: no network is common, with two nodes and what they have; kBroken: the first rank of
// this node has not answered, an entry is invalid; those of Bootstrap::get().
Status agree_on_network(Bootstrap& bootstrap, std::byte* board, uint64_t deadline_ns,
                        std::optional<NetworkId>* common) noexcept;

}  // namespace hydrant::ibv
