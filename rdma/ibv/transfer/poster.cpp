// Undoes requests that the adapter refuses. Tours "an Active Message" and "a put" pass by the inline half, in
// the header.
#include "rdma/ibv/transfer/poster.hpp"

#include "firehose/base/errno_text.hpp"
#include "firehose/base/log.hpp"

#include <algorithm>

namespace hydrant::ibv {

// The adapter refused the requests from `bad` on. Some adapters would accept later ones.
[[gnu::noinline]] void Poster::undo_unposted(Peer& peer, const ibv_send_wr* bad, uint32_t count,
                                             int error) noexcept {
  uint32_t refused = 0;
  for (const ibv_send_wr* request = bad; request != nullptr; request = request->next) ++refused;
  if (!peer.state.is_refused())
    log_error("%s: requests to %s are refused: %s", peer.send.port().name, name_of(peer).text,
              errno_text(error));
  for (uint32_t i = std::min(refused, count); i != 0; --i) {
    const SendRecord& record = peer.send.undo_unposted();
    if (record.holds == SendRecord::Holds::kMessage) release_message(peer, record);
  }
  peer.state.refuse();
  deferred_.add(peer);
}

bool Poster::post_tail(Peer& peer) noexcept {
  if (peer.send.room() == 0) return true;
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE;
  request.wr.rdma.remote_addr = peer.memory.peer_slots;
  request.wr.rdma.rkey = peer.memory.peer_slot_key;
  (void)peer.send.add(request, true);
  return post(peer, &request, 1);
}

}  // namespace hydrant::ibv
