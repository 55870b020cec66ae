// Reports on the peers and the parts of the verbs transport.
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

namespace hydrant {

using ibv::Peer;

uint32_t IbvTransport::rails_with(Rank rank) const noexcept {
  const Peer* const peer = parts_.peers.find(rank);
  if (peer == nullptr || peer->rails == nullptr) return 1;
  return 1 +
         static_cast<uint32_t>(std::popcount(peer->rails->usable.load(std::memory_order_relaxed)));
}

void IbvTransport::disconnect(Rank rank) noexcept {
  if (parts_.handshakes.exists(rank)) parts_.peers.mark_dead(rank);
}

IbvTransport::Counts IbvTransport::counts() const noexcept {
  return {.connected = parts_.counters.connected.value(),
          .handshakes = parts_.counters.handshakes.value(),
          .strangers = parts_.counters.strangers.value(),
          .early = parts_.counters.early.value(),
          .ud_errors = parts_.counters.ud_errors.value(),
          .control = parts_.counters.control.value(),
          .probes = parts_.counters.probes.value(),
          .stalls = parts_.counters.stalls.value(),
          .lost = parts_.counters.lost.value(),
          .sleeps = parts_.sleeper.sleeps(),
          .striped = parts_.counters.striped.value()};
}

size_t IbvTransport::list_counts(std::span<Count> rows) const noexcept {
  const Counts now = counts();
  const Count all[] = {
      {"connected", now.connected}, {"handshakes", now.handshakes},
      {"strangers", now.strangers}, {"early", now.early},
      {"control", now.control},     {"probes", now.probes},
      {"stalls", now.stalls},       {"lost", now.lost},
      {"sleeps", now.sleeps},       {"striped", now.striped},
      {"ud_errors", now.ud_errors},
  };
  std::copy_n(all, std::min(rows.size(), std::size(all)), rows.begin());
  return std::size(all);
}

}  // namespace hydrant
