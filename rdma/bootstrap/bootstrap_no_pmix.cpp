// Refuses to open PMIx in a library that was built without PMIx's header. It replaces bootstrap_pmix.cpp.
#include "rdma/bootstrap/bootstrap_pmix.hpp"

namespace hydrant {

Status open_pmix(uint64_t, std::unique_ptr<Bootstrap>*) noexcept {
  return fail(
      Status::kUnsupported,
      "Hydrant was built without PMIx; on Debian: apt-get install libpmix-dev, and build again");
}

}  // namespace hydrant
