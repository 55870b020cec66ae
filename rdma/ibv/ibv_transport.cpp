// Reports on the peers and the parts of the verbs transport.
#include "rdma/ibv/ibv_transport.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

namespace hydrant {

using ibv::Peer;

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
