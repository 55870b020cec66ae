// Writes the names of peers for logs and errors.
#include "rdma/ibv/transfer/peer.hpp"

#include <cstdio>

namespace hydrant::ibv {

PeerName name_of(Rank number, Rank their_rank, uint64_t group) noexcept {
  PeerName name;
  if (group == 0) {
    std::snprintf(name.text, sizeof name.text, "rank %u", number);
  } else {
    std::snprintf(name.text, sizeof name.text, "peer %u (rank %u of group %016llx)", number,
                  their_rank, static_cast<unsigned long long>(group));
  }
  return name;
}

Status disconnect_error(const Peer& peer) noexcept {
  return fail(Status::kBroken, "%s is gone: %s (its address was %s)", name_of(peer).text,
              peer.state.reason(), text_of(peer.endpoint.address).text);
}

}  // namespace hydrant::ibv
