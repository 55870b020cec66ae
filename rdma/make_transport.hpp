// By what the ranks of a job talk: shared memory, verbs, or one within nodes and the other between them
// (HYDRANT_TRANSPORT), and what HYDRANT_INJECT puts in between.
#pragma once

#include "firehose/base/status.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/network_transport.hpp"
#include "rdma/transport.hpp"

#include <memory>

namespace hydrant {

// Null in *transport if there is one rank only. Collective over the job; ranks may talk after the next fence.
// The transport may ask `bootstrap` at any time from then on, and holds `bootstrap_mu` while it does.
// Errors: kBadArg: HYDRANT_INJECT or HYDRANT_IBV_PORTS; kUnsupported: ranks that cannot be reached, with the
// reason, or read_injection()'s; kResource: no memory; kBroken: a rank is missing.
Status make_transport(Bootstrap& bootstrap, Mutex& bootstrap_mu, bool single_threaded,
                      std::unique_ptr<Transport>* transport) noexcept;

// The transport between the ranks of this node, of which there are several. Collective over the node, with
// one fence of the whole job. Errors: kResource, kBroken, as above.
Status make_node_transport(Bootstrap& bootstrap, bool single_threaded,
                           std::unique_ptr<Transport>* transport) noexcept;

// The transport to any rank by verbs. `bootstrap` outlives it. Errors: kUnsupported: no device, or the
// library was built without rdma-core; kBadArg: HYDRANT_IBV_PORTS; kResource.
Status make_verbs_transport(Bootstrap& bootstrap, bool single_threaded,
                            std::unique_ptr<NetworkTransport>* transport) noexcept;

}  // namespace hydrant
