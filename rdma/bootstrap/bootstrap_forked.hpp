// GASNET_PSHM_NODES: the process that initialises becomes the supervisor of N copies of itself.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <memory>

namespace hydrant {

// Returns in the `size` children only; the caller stays behind as their supervisor and leaves with _exit()
// and the job's code. What was buffered in stdio is written before. On failure no child is left, and the
// caller goes on. Errors: kBadArg, kResource.
Status open_forked(Rank size, std::unique_ptr<Bootstrap>* bootstrap) noexcept;

}  // namespace hydrant
