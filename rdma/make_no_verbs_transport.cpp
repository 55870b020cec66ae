// Refuses to open verbs in a library that was built without them. It replaces rdma/ibv.
#include "rdma/ibv/make_verbs_transport.hpp"

namespace hydrant {

Status make_verbs_transport(Bootstrap&, bool, std::unique_ptr<NetworkTransport>*) noexcept {
  return fail(
      Status::kUnsupported,
      "this library was built without verbs; build it where rdma-core is installed (Debian: "
      "libibverbs-dev), with HYDRANT_WITH_IBV=ON");
}

}  // namespace hydrant
