// Checks for clients compiled for one node. Their build line has GASNET_CONDUIT_SMP, and they assume
// that every rank's segment is mapped. All other clients (GASNET_CONDUIT_IBV or the default) run on any
// number of nodes.
#pragma once

#include <hydrant/gasnet/objects.h>

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <cstdint>

namespace hydrant {

bool assumes_one_node(const hydrant_client_info& info) noexcept;

// For such a client: kBadArg if the job has several nodes, the same on every rank, with a text that
// explains how to compile. GASNET_SUPERNODE_MAXSIZE is ignored: *most becomes 0 (no limit) and rank 0
// logs a warning.
Status keep_to_one_node(const JobTopology& topology, uint64_t* most) noexcept;

}  // namespace hydrant
