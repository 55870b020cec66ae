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

}  // namespace hydrant
