// Joins this process to its job: chooses how, and connects it.
#pragma once

#include "firehose/base/status.hpp"
#include "rdma/bootstrap/bootstrap.hpp"

#include <memory>

namespace hydrant {

// Chooses the implementation by the environment. `argc` and `argv` may be null. With GASNET_PSHM_NODES=N the
// calling process becomes the supervisor of N children: the call returns in the children only.
// Errors: kBroken if a launcher reports several ranks and wire-up finds one: the text holds the command to
// type.
Status open_bootstrap(int* argc, char*** argv, std::unique_ptr<Bootstrap>* bootstrap) noexcept;

}  // namespace hydrant
