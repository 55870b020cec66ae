// Opens the transport over verbs. A library that was built without verbs has the function, too: it refuses.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/transport/network_transport.hpp"

#include <memory>

namespace hydrant {

// The verbs transport, which reaches all ranks. `bootstrap` must outlive it. Errors: kUnsupported: no device,
// or the library was built without rdma-core; kBadArg: HYDRANT_IBV_PORTS; kResource.
Status make_verbs_transport(Bootstrap& bootstrap, bool single_threaded,
                            std::unique_ptr<NetworkTransport>* transport) noexcept;

}  // namespace hydrant
