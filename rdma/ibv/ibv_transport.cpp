// Implements Transport over verbs by passing each call to a part. A call for a peer without contact starts
// the connection.
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

namespace hydrant {

using ibv::Peer;

// ---- messages ----

Status IbvTransport::post(Rank rank, Lane lane, uint32_t tag, const void* head,
                          uint32_t bytes) noexcept {
  Peer* const peer = peers_.find(rank);
  if (peer == nullptr || !messages_.is_copied(bytes)) [[unlikely]]
    return Transport::post(rank, lane, tag, head, bytes);
  return messages_.post(*peer, lane, tag, head, bytes);
}

Status IbvTransport::reserve(Rank rank, Lane lane, uint32_t bytes, Outgoing* room) noexcept {
  if (bytes > options_.eager_bytes) [[unlikely]]
    return fail(Status::kBadArg, "a message of %u bytes; the most is %u", bytes,
                options_.eager_bytes);
  Peer* const peer = peers_.find(rank);
  if (peer == nullptr) [[unlikely]]
    return handshakes_.start_connection(rank);
  return messages_.reserve(*peer, lane, bytes, room);
}

void IbvTransport::commit(Outgoing& room, uint32_t tag) noexcept {
  messages_.commit(room, tag, nullptr, 0);
}

void IbvTransport::commit_with_cell(Outgoing& room, uint32_t tag, const Cell& cell,
                                    uint32_t bytes) noexcept {
  messages_.commit(room, tag, &cell, bytes);
}

Status IbvTransport::take_cell(Rank, Lane lane, uint32_t bytes, Cell* cell) noexcept {
  if (bytes > options_.cell_bytes) [[unlikely]]
    return fail(Status::kBadArg, "a cell of %u bytes; the largest has %u", bytes,
                options_.cell_bytes);
  return cells_[static_cast<uint32_t>(lane)].take(cell);
}

void IbvTransport::drop_cell(Rank, Lane lane, const Cell& cell) noexcept {
  cells_[static_cast<uint32_t>(lane)].release(cell.index);
}

// ---- peers and statistics ----

uint32_t IbvTransport::rails_with(Rank rank) const noexcept {
  const Peer* const peer = peers_.find(rank);
  if (peer == nullptr || peer->rails == nullptr) return 1;
  return 1 +
         static_cast<uint32_t>(std::popcount(peer->rails->usable.load(std::memory_order_relaxed)));
}

void IbvTransport::disconnect(Rank rank) noexcept {
  if (handshakes_.exists(rank)) peers_.mark_dead(rank);
}

IbvTransport::Counts IbvTransport::counts() const noexcept {
  return {.connected = counters_.connected.value(),
          .handshakes = counters_.handshakes.value(),
          .strangers = counters_.strangers.value(),
          .early = counters_.early.value(),
          .control = counters_.control.value(),
          .probes = counters_.probes.value(),
          .stalls = counters_.stalls.value(),
          .lost = counters_.lost.value(),
          .sleeps = sleeper_.sleeps(),
          .striped = counters_.striped.value()};
}

size_t IbvTransport::list_counts(std::span<Count> rows) const noexcept {
  const Counts now = counts();
  const Count all[] = {
      {"connected", now.connected}, {"handshakes", now.handshakes},
      {"strangers", now.strangers}, {"early", now.early},
      {"control", now.control},     {"probes", now.probes},
      {"stalls", now.stalls},       {"lost", now.lost},
      {"sleeps", now.sleeps},       {"striped", now.striped},
  };
  std::copy_n(all, std::min(rows.size(), std::size(all)), rows.begin());
  return std::size(all);
}

}  // namespace hydrant
