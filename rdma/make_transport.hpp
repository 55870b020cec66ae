// Opens the transport of a job: shared memory, verbs, or shared memory within nodes and verbs between them
// (HYDRANT_TRANSPORT), with the layers of HYDRANT_INJECT on top.
#pragma once

#include "firehose/base/status.hpp"
#include "firehose/base/thread.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/injection.hpp"
#include "rdma/transport/transport.hpp"

#include <memory>

namespace hydrant {

// *transport is null if the job has one rank. Collective over the job; ranks may send after the next fence.
// From then on the transport may call `bootstrap` at any time, and holds `bootstrap_mu` while it does.
// Errors: kBadArg: HYDRANT_INJECT or HYDRANT_IBV_PORTS; kUnsupported: unreachable ranks, with the reason;
// kResource: no memory; kBroken: a rank is missing.
Status make_transport(Bootstrap& bootstrap, Mutex& bootstrap_mu, bool single_threaded,
                      const Injection& injection, std::unique_ptr<Transport>* transport) noexcept;

}  // namespace hydrant
