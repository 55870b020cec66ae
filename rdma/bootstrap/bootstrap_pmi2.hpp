// Wire-up by PMI-2: MPICH's mpiexec and srun --mpi=pmi2. libpmi2.so.0 is loaded when it is needed.
#pragma once

#include "rdma/bootstrap/bootstrap.hpp"

#include <memory>

namespace hydrant {

// Errors: kUnsupported: the library is not installed, with the package's name; kBroken: it finds no
// launcher, or the launcher does not answer before the deadline.
Status open_pmi2(uint64_t deadline_ns, std::unique_ptr<Bootstrap>* bootstrap) noexcept;

}  // namespace hydrant
