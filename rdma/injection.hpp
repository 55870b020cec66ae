// HYDRANT_INJECT: layers between this job and its transport, for measurements and tests. Their code is a
// library of its own, libhydrant_injected, which is loaded only if the text is not empty.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"
#include "rdma/injected/injected_settings.hpp"
#include "rdma/transport/transport.hpp"

#include <memory>

namespace hydrant {

// Reads the environment. Errors: kBadArg: the text is malformed; kUnsupported: the library cannot be loaded.
Status read_injection(Injection* injection) noexcept;

// Wraps *transport in the injected layers. Collective over the job. Requires: read_injection() has succeeded.
// Errors: kResource.
Status inject(const Injection& injection, Bootstrap& bootstrap,
              std::unique_ptr<Transport>* transport) noexcept;

}  // namespace hydrant
