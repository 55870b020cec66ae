// GASNET_PSHM_NODES: the process that initialises becomes the supervisor of N copies of itself.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <memory>

namespace hydrant {

// Returns in the `size` children only. The caller becomes their supervisor, and exits by _exit() with the
// job's code; stdio is flushed before the fork. On failure no child is left, and the call returns in the
// caller. Errors: kBadArg, kResource.
Status open_forked(Rank size, std::unique_ptr<Bootstrap>* bootstrap) noexcept;

}  // namespace hydrant
