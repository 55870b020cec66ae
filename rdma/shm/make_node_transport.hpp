// Opens the transport between the processes of a node.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/transport/transport.hpp"

#include <memory>

namespace hydrant {

// The transport between several ranks of this node. Collective over the node, with one fence of the whole
// job. Errors: kResource: no memory; kBroken: a rank is missing.
Status make_node_transport(Bootstrap& bootstrap, bool single_threaded,
                           std::unique_ptr<Transport>* transport) noexcept;

// Called in place of it by a rank with neighbours that HYDRANT_TRANSPORT keeps from sharing memory. Errors:
// kBadArg: the first rank of the node has another setting; those of the bootstrap.
Status share_no_memory(Bootstrap& bootstrap) noexcept;

}  // namespace hydrant
