// Refuses to open verbs in a library that was built without them. It replaces rdma/ibv.
#include "rdma/ibv/make_verbs_transport.hpp"

namespace hydrant {

Status publish_verbs_networks(Bootstrap&) noexcept { return Status::kOk; }

Status make_verbs_transport(Bootstrap&, bool, std::byte*,
                            std::unique_ptr<NetworkTransport>*) noexcept {
  return fail(
      Status::kUnsupported,
      "this library was built without verbs; build it where rdma-core is installed (Debian: "
      "libibverbs-dev), with HYDRANT_WITH_IBV=ON");
}

}  // namespace hydrant
