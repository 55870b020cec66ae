// Opens the verbs transport with the options that the knobs set. make_transport.cpp calls it; a library
// built without verbs has rdma/make_no_verbs_transport.cpp instead.
#include "rdma/ibv/make_verbs_transport.hpp"

#include "rdma/ibv/ibv_transport.hpp"

#include <utility>

namespace hydrant {

Status make_verbs_transport(Bootstrap& bootstrap, bool single_threaded,
                            std::unique_ptr<NetworkTransport>* transport) noexcept {
  IbvTransport::Options options = ibv::chosen_options();
  options.single_threaded = single_threaded;
  std::unique_ptr<IbvTransport> made;
  const Status status = IbvTransport::open(bootstrap, options, &made);
  if (status == Status::kOk) *transport = std::move(made);
  return status;
}

}  // namespace hydrant
