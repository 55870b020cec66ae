// In place of rdma/ibv, where the library is built without it.
#include "rdma/make_transport.hpp"

namespace hydrant {

Status make_verbs_transport(Bootstrap&, bool, std::unique_ptr<FarTransport>*) noexcept {
  return fail(
      Status::kUnsupported,
      "this library was built without verbs; build it where rdma-core is installed (Debian: "
      "libibverbs-dev), with HYDRANT_WITH_IBV=ON");
}

}  // namespace hydrant
