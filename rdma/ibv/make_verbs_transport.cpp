// Opens the verbs transport with the options that the knobs set. make_transport.cpp calls it; a library
// built without verbs has rdma/make_no_verbs_transport.cpp instead.
#include "rdma/ibv/make_verbs_transport.hpp"

#include "firehose/base/thread.hpp"
#include "rdma/ibv/ibv_transport.hpp"
#include "rdma/ibv/network_agreement.hpp"
#include "rdma/ibv/start_board.hpp"

#include <utility>

namespace hydrant {

namespace {

constexpr uint64_t kAgreementNs = 60'000'000'000;

}  // namespace

Status publish_verbs_networks(Bootstrap& bootstrap) noexcept {
  return ibv::publish_networks(bootstrap);
}

Status make_verbs_transport(Bootstrap& bootstrap, bool single_threaded, std::byte* board,
                            std::unique_ptr<NetworkTransport>* transport) noexcept {
  IbvTransport::Options options = ibv::chosen_options();
  options.single_threaded = single_threaded;
  if (board != nullptr) options.node.adapter = &ibv::StartBoard::at(board).adapter;
  Status status =
      ibv::agree_on_network(bootstrap, board, now_ns() + kAgreementNs, &options.node.network);
  if (status != Status::kOk) return status;
  std::unique_ptr<IbvTransport> made;
  status = IbvTransport::open(bootstrap, options, &made);
  if (status == Status::kOk) *transport = std::move(made);
  return status;
}

}  // namespace hydrant
