// Wire-up by PMIx: Open MPI's mpirun, PRRTE, srun --mpi=pmix. libpmix.so.2 is loaded when it is needed.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <memory>

namespace hydrant {

// Errors: kUnsupported: built without PMIx's header, or the library is not installed, with the package's
// name; kBroken: it finds no launcher, or the launcher does not answer before the deadline.
Status open_pmix(uint64_t deadline_ns, std::unique_ptr<Bootstrap>* bootstrap) noexcept;

}  // namespace hydrant
