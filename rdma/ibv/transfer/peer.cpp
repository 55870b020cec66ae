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

namespace {

struct RefusalText {
  Status status;
  const char* text;
};

RefusalText describe(Refusal refusal) noexcept {
  switch (refusal) {
    case Refusal::kFull:
      return {
          Status::kResource,
          "its queues have no room for another peer: fewer credits (HYDRANT_IBV_CREDITS, on all "
          "ranks), or fewer ranks that contact it"};
    case Refusal::kNoMemory:
      return {Status::kResource,
              "it cannot create what another peer needs, memory or a queue pair (memlock: ulimit "
              "-l); its log names the cause"};
    case Refusal::kSettings: return {Status::kBroken, "it has other settings; its log names both"};
    case Refusal::kClosed:
      return {Status::kBroken, "its program has closed the device's descriptors"};
    case Refusal::kEnded:
      return {Status::kBroken, "it has ended this connection; its log names the cause"};
    case Refusal::kMoved:
      return {Status::kResource,
              "its port has lost the address by which ranks know it; its log names it"};
    default: return {Status::kResource, "a later version of the library knows why; see its log"};
  }
}

}  // namespace

Status report_not_ready(const Peer& peer) noexcept {
  if (peer.state.is_disconnected()) return disconnect_error(peer);
  const Refusal refusal = peer.state.refusal_by_peer();
  if (refusal == Refusal::kNone) return Status::kNotReady;
  const RefusalText why = describe(refusal);
  return fail(why.status, "%s at %s refuses the connection: %s", name_of(peer).text,
              text_of(peer.endpoint.address).text, why.text);
}

Status disconnect_error(const Peer& peer) noexcept {
  return fail(Status::kBroken, "%s is gone: %s (its address was %s)", name_of(peer).text,
              peer.state.reason(), text_of(peer.endpoint.address).text);
}

}  // namespace hydrant::ibv
