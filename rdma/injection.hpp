// HYDRANT_INJECT: what is put between this job and its transport, for measurements and tests. The code is an
// object of its own, libhydrant_injected, which is loaded only when the text is not empty.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/injected/injected_settings.hpp"
#include "rdma/transport.hpp"

#include <memory>

namespace hydrant {

// Reads the environment. Errors: kBadArg: the text is malformed; kUnsupported: the object cannot be loaded.
Status read_injection(Injection* injection) noexcept;

// Puts what was asked for over *transport. Requires: read_injection() has succeeded. Errors: kResource.
Status inject(const Injection& injection, const JobTopology& topology,
              std::unique_ptr<Transport>* transport) noexcept;

}  // namespace hydrant
